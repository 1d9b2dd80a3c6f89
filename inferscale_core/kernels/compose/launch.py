"""Checks and launches the fused compose kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from inferscale_core.kernels.compose.kernel import compose_kernel
from inferscale_core.kernels.paged import PagedGroup

LAYERS_PER_PROGRAM = 4


def compose(rows: Tensor, groups: Sequence[PagedGroup], copies: Tensor) -> None:
    """Write chunks into the engine's caches at their serving positions; one launch per group.

    rows: [num_rows, row_elements], the arena, storage dtype equal to the caches'. copies:
    [4, num_tokens], int64, on the same device: arena slot, cache slot, origin, position; a token
    whose cache slot is negative is skipped. Raises
    ValueError for a shape, dtype or stride that the kernel cannot take.
    """
    check_copies(rows, copies, 4)
    num_tokens = copies.shape[1]
    if num_tokens == 0:
        return
    for group in groups:
        if group.dtype != rows.dtype:
            raise ValueError(f"arena is {rows.dtype}, cache is {group.dtype}")
        heads, dim, rotary = group.shape.num_kv_heads, group.shape.head_dim, group.rotary_dim
        strides = group.strides
        compose_kernel[(num_tokens, triton.cdiv(group.num_layers, LAYERS_PER_PROGRAM))](
            rows,
            group.cache_ptrs,
            group.cos_ptrs,
            group.sin_ptrs,
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
            ROTARY_DIM=rotary,
            IS_NEOX=group.is_neox,
            BLOCK_SIZE=group.block_size,
            LAYERS_PER_PROGRAM=LAYERS_PER_PROGRAM,
            SHARES_TABLE=group.shares_table,
            HEADS_PAD=triton.next_power_of_2(heads),
            PAIRS_PAD=triton.next_power_of_2(max(rotary // 2, 1)),
            REST_PAD=triton.next_power_of_2(max(dim - rotary, 1)),
            DIM_PAD=triton.next_power_of_2(dim),
        )


def check_copies(rows: Tensor, copies: Tensor, num_lines: int) -> None:
    """Raises ValueError that says what is wrong with the arena or the list of copies."""
    if rows.dim() != 2 or rows.stride(1) != 1:
        raise ValueError(f"arena rows must be contiguous, strides are {rows.stride()}")
    if copies.dtype != torch.int64 or copies.dim() != 2 or copies.shape[0] < num_lines:
        raise ValueError(f"copies must be int64 [{num_lines}, n], not {list(copies.shape)}")
    if not copies.is_contiguous():
        raise ValueError("copies must be contiguous")
    if copies.device != rows.device:
        raise ValueError(f"copies are on {copies.device}, the arena on {rows.device}")
