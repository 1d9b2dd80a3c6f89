"""Checks and launches the fused compose kernel."""

from __future__ import annotations

from collections.abc import Sequence

import triton
from torch import Tensor

from inferscale_core.kernels.compose.kernel import compose_kernel
from inferscale_core.kernels.launching import (
    check_copies,
    check_group,
    common_arguments,
)
from inferscale_core.kernels.paged import FIRST_CACHE_LINE, PagedGroup

LAYERS_PER_PROGRAM = 4
NUM_WARPS = 4


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
    check_copies(rows, copies, cache_line)
    num_tokens = copies.shape[1]
    if num_tokens == 0:
        return
    for group in groups:
        check_group(rows, group)
        dim, rotary = group.shape.head_dim, group.rotary_dim
        arguments, constants = common_arguments(rows, group, copies, cache_line)
        compose_kernel[(num_tokens, triton.cdiv(group.num_layers, LAYERS_PER_PROGRAM))](
            *arguments,
            **constants,
            LAYERS_PER_PROGRAM=LAYERS_PER_PROGRAM,
            SHARES_TABLE=group.shares_table,
            PAIRS_PAD=triton.next_power_of_2(max(rotary // 2, 1)),
            REST_PAD=triton.next_power_of_2(max(dim - rotary, 1)),
            num_warps=NUM_WARPS,
        )
