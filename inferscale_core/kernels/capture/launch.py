"""Checks and launches the fused capture kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
from torch import Tensor

from inferscale_core.kernels.capture.kernel import capture_kernel
from inferscale_core.kernels.launching import CacheLaunch, check_copies, common_constants
from inferscale_core.kernels.paged import FIRST_CACHE_LINE, PagedGroup

LAYERS_PER_PROGRAM = 4
NUM_WARPS = 4


def prepare_capture(rows: Tensor, groups: Sequence[PagedGroup], cache_line: int) -> CacheLaunch:
    """`capture` of one arena, to be launched again and again. Raises ValueError as that does."""
    return CacheLaunch(
        capture_kernel, _constants, rows, groups, cache_line, LAYERS_PER_PROGRAM, NUM_WARPS
    )


def capture(
    rows: Tensor,
    groups: Sequence[PagedGroup],
    copies: Tensor,
    cache_line: int = FIRST_CACHE_LINE,
    num_programs: int = 4,
) -> None:
    """Store tokens of the engine's caches in arena rows; one launch per group.

    rows, copies, cache_line, num_programs: as of `compose`; the origin is ignored, and the position
    is where the engine computed the token. Raises ValueError as `compose` does.
    """
    check_copies(rows, copies)
    prepare_capture(rows, groups, cache_line)(copies, num_programs)


def _constants(group: PagedGroup) -> dict[str, Any]:
    return {
        **common_constants(group),
        "LAYERS_PER_PROGRAM": LAYERS_PER_PROGRAM,
        "HALF_PAD": triton.next_power_of_2(-(-group.shape.head_dim // 2)),
    }
