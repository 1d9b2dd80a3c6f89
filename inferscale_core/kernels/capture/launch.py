"""Checks and launches the fused capture kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
from torch import Tensor

from inferscale_core.kernels.capture.kernel import capture_kernel
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


class Capture:
    """`capture` of one arena, launched again and again."""

    def __init__(self, rows: Tensor, groups: Sequence[PagedGroup], cache_line: int) -> None:
        """Raises ValueError as `capture` does."""
        self._rows, self._cache_line = rows, cache_line
        self._kept = tuple(groups)  # What the kernels are told the addresses of.
        self._launches = []
        for group in groups:
            check_group(rows, group)
            before, behind = common_arguments(rows, group)
            kernel = Prepared(capture_kernel, _constants(group), NUM_WARPS)
            programs = triton.cdiv(group.num_layers, LAYERS_PER_PROGRAM)
            self._launches.append((kernel, programs, before, behind))

    def __call__(self, copies: Tensor) -> None:
        """copies: as of `capture`."""
        check_copies(self._rows, copies, self._cache_line)
        num_tokens = copies.shape[1]
        if num_tokens == 0:
            return
        for kernel, programs, before, behind in self._launches:
            kernel((num_tokens, programs), *before, copies, self._cache_line, num_tokens, *behind)


def capture(
    rows: Tensor,
    groups: Sequence[PagedGroup],
    copies: Tensor,
    cache_line: int = FIRST_CACHE_LINE,
) -> None:
    """Store tokens of the engine's caches in arena rows; one launch per group.

    rows, copies, cache_line: as of `compose`; the origin is ignored, and the position is where the
    engine computed the token. Raises ValueError as `compose` does.
    """
    Capture(rows, groups, cache_line)(copies)


def _constants(group: PagedGroup) -> dict[str, Any]:
    return {
        **common_constants(group),
        "LAYERS_PER_PROGRAM": LAYERS_PER_PROGRAM,
        "HALF_PAD": triton.next_power_of_2(-(-group.shape.head_dim // 2)),
    }
