"""Checks and launches the fused compose kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
from torch import Tensor

from inferscale_core.kernels.compose.kernel import compose_kernel
from inferscale_core.kernels.launching import CacheLaunch, check_copies, common_constants
from inferscale_core.kernels.paged import FIRST_CACHE_LINE, PagedGroup

LAYERS_PER_PROGRAM = 4
NUM_WARPS = 4


def prepare_compose(rows: Tensor, groups: Sequence[PagedGroup], cache_line: int) -> CacheLaunch:
    """`compose` of one arena, to be launched again and again. Raises ValueError as that does."""
    return CacheLaunch(
        compose_kernel, _constants, rows, groups, cache_line, LAYERS_PER_PROGRAM, NUM_WARPS
    )


def compose(
    rows: Tensor,
    groups: Sequence[PagedGroup],
    copies: Tensor,
    cache_line: int = FIRST_CACHE_LINE,
    num_programs: int = 4,
) -> None:
    """Write chunks into the engine's caches at their serving positions; one launch per group.

    rows: [num_rows, row elements], the arena. copies: int64, see `paged.as_list`, on the same
    device; its lines hold arena slot, origin (ignored for quantised rows), position, and in line
    cache_line the cache slot; a token whose cache slot is negative is skipped. num_programs: see
    `CacheLaunch`. Raises ValueError for a shape, dtype or stride that the kernel cannot take.
    """
    check_copies(rows, copies)
    prepare_compose(rows, groups, cache_line)(copies, num_programs)


def _constants(group: PagedGroup) -> dict[str, Any]:
    dim, rotary = group.shape.head_dim, group.rotary_dim
    return {
        **common_constants(group),
        "LAYERS_PER_PROGRAM": LAYERS_PER_PROGRAM,
        "SHARES_TABLE": group.shares_table,
        "PAIRS_PAD": triton.next_power_of_2(max(rotary // 2, 1)),
        "REST_PAD": triton.next_power_of_2(max(dim - rotary, 1)),
    }
