"""Capture for all layers and all requests of a step in one launch: a gather, bitwise.

One program copies one token of LAYERS_PER_PROGRAM layers from the engine's cache to its arena row.
Bytes: read once, written once.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def capture_kernel(
    rows_ptr,
    cache_ptrs_ptr,
    row_offsets_ptr,
    copies_ptr,
    num_tokens,
    num_layers,
    stride_row,
    stride_block,
    stride_head,
    stride_token,
    stride_dim,
    value_offset,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    LAYERS_PER_PROGRAM: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    DIM_PAD: tl.constexpr,
):
    """rows: [num_rows, stride_row]. cache_ptrs: [num_layers], addresses. row_offsets: [num_layers].
    copies: [2 or more, num_tokens], int64: arena slot, cache slot."""
    token = tl.program_id(0).to(tl.int64)
    first_layer = tl.program_id(1) * LAYERS_PER_PROGRAM
    arena_slot = tl.load(copies_ptr + token)
    cache_slot = tl.load(copies_ptr + num_tokens + token)
    if cache_slot < 0:
        return
    row = rows_ptr + arena_slot * stride_row
    place = (cache_slot // BLOCK_SIZE) * stride_block + (cache_slot % BLOCK_SIZE) * stride_token
    head = tl.arange(0, HEADS_PAD)[:, None].to(tl.int64)  # [HEADS_PAD, 1]
    dim = tl.arange(0, DIM_PAD)[None, :]  # [1, DIM_PAD]
    inside = (head < NUM_HEADS) & (dim < HEAD_DIM)
    element = rows_ptr.dtype.element_ty
    for step in tl.static_range(LAYERS_PER_PROGRAM):
        layer = first_layer + step
        if layer < num_layers:
            source = tl.load(cache_ptrs_ptr + layer).to(tl.pointer_type(element)) + place
            key_in = source + head * stride_head + dim * stride_dim
            key_out = row + tl.load(row_offsets_ptr + layer) + head * HEAD_DIM + dim
            tl.store(key_out, tl.load(key_in, mask=inside, other=0.0), mask=inside)
            value = tl.load(key_in + value_offset, mask=inside, other=0.0)
            tl.store(key_out + NUM_HEADS * HEAD_DIM, value, mask=inside)
