"""Checks and launches the fused compose kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
from torch import Tensor

from inferscale_core.kernels.compose.kernel import compose_kernel
from inferscale_core.kernels.launching import (
    Prepared,
    check_copies,
    check_group,
    common_arguments,
    common_constants,
)
from inferscale_core.kernels.paged import FIRST_CACHE_LINE, PagedGroup

LAYERS_PER_PROGRAM = 4
NUM_WARPS = 4


class Compose:
    """`compose` of one arena, launched again and again."""

    def __init__(self, rows: Tensor, groups: Sequence[PagedGroup], cache_line: int) -> None:
        """Raises ValueError as `compose` does."""
        self._rows, self._cache_line = rows, cache_line
        self._kept = tuple(groups)  # What the kernels are told the addresses of.
        self._launches = []
        for group in groups:
            check_group(rows, group)
            before, behind = common_arguments(rows, group)
            kernel = Prepared(compose_kernel, _constants(group), NUM_WARPS)
            programs = triton.cdiv(group.num_layers, LAYERS_PER_PROGRAM)
            self._launches.append((kernel, programs, before, behind))

    def __call__(self, copies: Tensor) -> None:
        """copies: as of `compose`."""
        check_copies(self._rows, copies, self._cache_line)
        num_tokens = copies.shape[1]
        if num_tokens == 0:
            return
        for kernel, programs, before, behind in self._launches:
            kernel((num_tokens, programs), *before, copies, self._cache_line, num_tokens, *behind)


def compose(
    rows: Tensor,
    groups: Sequence[PagedGroup],
    copies: Tensor,
    cache_line: int = FIRST_CACHE_LINE,
) -> None:
    """Write chunks into the engine's caches at their serving positions; one launch per group.

    rows: [num_rows, row elements], the arena. copies: [lines, num_tokens], int64, on the same
    device: arena slot, origin (ignored for quantised rows), position, and in line cache_line the
    cache slot; a token whose cache slot is negative is skipped. Raises ValueError for a shape,
    dtype or stride that the kernel cannot take.
    """
    Compose(rows, groups, cache_line)(copies)


def _constants(group: PagedGroup) -> dict[str, Any]:
    dim, rotary = group.shape.head_dim, group.rotary_dim
    return {
        **common_constants(group),
        "LAYERS_PER_PROGRAM": LAYERS_PER_PROGRAM,
        "SHARES_TABLE": group.shares_table,
        "PAIRS_PAD": triton.next_power_of_2(max(rotary // 2, 1)),
        "REST_PAD": triton.next_power_of_2(max(dim - rotary, 1)),
    }
