"""Checks and launches the fused capture kernel."""

from __future__ import annotations

from collections.abc import Sequence

import triton
from torch import Tensor

from inferscale_core.kernels.capture.kernel import capture_kernel
from inferscale_core.kernels.compose.launch import LAYERS_PER_PROGRAM, check_copies
from inferscale_core.kernels.paged import PagedGroup


def capture(rows: Tensor, groups: Sequence[PagedGroup], copies: Tensor) -> None:
    """Copy tokens from the engine's caches to arena rows, bitwise; one launch per group.

    rows: [num_rows, row_elements], the arena. copies: [2 or more, num_tokens], int64, on the same
    device: arena slot, cache slot. Raises ValueError as `compose` does.
    """
    check_copies(rows, copies, 2)
    num_tokens = copies.shape[1]
    if num_tokens == 0:
        return
    for group in groups:
        if group.dtype != rows.dtype:
            raise ValueError(f"arena is {rows.dtype}, cache is {group.dtype}")
        heads, dim = group.shape.num_kv_heads, group.shape.head_dim
        strides = group.strides
        capture_kernel[(num_tokens, triton.cdiv(group.num_layers, LAYERS_PER_PROGRAM))](
            rows,
            group.cache_ptrs,
            group.row_offsets,
            copies,
            num_tokens,
            group.num_layers,
            rows.stride(0),
            strides.block,
            strides.head,
            strides.token,
            strides.dim,
            strides.value,
            NUM_HEADS=heads,
            HEAD_DIM=dim,
            BLOCK_SIZE=group.block_size,
            LAYERS_PER_PROGRAM=LAYERS_PER_PROGRAM,
            HEADS_PAD=triton.next_power_of_2(heads),
            DIM_PAD=triton.next_power_of_2(dim),
        )
