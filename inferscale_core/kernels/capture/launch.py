"""Checks and launches the fused capture kernel."""

from __future__ import annotations

from collections.abc import Sequence

import triton
from torch import Tensor

from inferscale_core.kernels.capture.kernel import capture_kernel
from inferscale_core.kernels.launching import (
    check_copies,
    check_group,
    common_arguments,
)
from inferscale_core.kernels.paged import FIRST_CACHE_LINE, PagedGroup

LAYERS_PER_PROGRAM = 4
NUM_WARPS = 4


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
    check_copies(rows, copies, cache_line)
    num_tokens = copies.shape[1]
    if num_tokens == 0:
        return
    for group in groups:
        check_group(rows, group)
        arguments, constants = common_arguments(rows, group, copies, cache_line)
        capture_kernel[(num_tokens, triton.cdiv(group.num_layers, LAYERS_PER_PROGRAM))](
            *arguments,
            **constants,
            LAYERS_PER_PROGRAM=LAYERS_PER_PROGRAM,
            HALF_PAD=triton.next_power_of_2(-(-group.shape.head_dim // 2)),
            num_warps=NUM_WARPS,
        )
