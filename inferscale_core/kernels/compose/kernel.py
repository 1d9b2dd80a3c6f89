"""Compose for all layers and all requests of a step in one launch.

One program moves one token through LAYERS_PER_PROGRAM layers:

    arena row  | K heads x dim | V heads x dim | next layer …     (contiguous, storage dtype)
                     │ rotate origin → position (float32)  │ copy
    cache slot   K at (block, head, offset, dim)        V at the same + value offset

The angle between origin and position is worked out once per program and used for all its layers.
Bytes: each token's row is read once and written once; tables stay in L2.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def compose_kernel(
    rows_ptr,
    cache_ptrs_ptr,
    cos_ptrs_ptr,
    sin_ptrs_ptr,
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
    ROTARY_DIM: tl.constexpr,
    IS_NEOX: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    LAYERS_PER_PROGRAM: tl.constexpr,
    SHARES_TABLE: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    PAIRS_PAD: tl.constexpr,
    REST_PAD: tl.constexpr,
    DIM_PAD: tl.constexpr,
):
    """rows: [num_rows, stride_row]. *_ptrs: [num_layers], addresses. row_offsets: [num_layers].
    copies: [4, num_tokens], int64: arena slot, cache slot, origin, position."""
    token = tl.program_id(0).to(tl.int64)
    first_layer = tl.program_id(1) * LAYERS_PER_PROGRAM
    arena_slot = tl.load(copies_ptr + token)
    cache_slot = tl.load(copies_ptr + num_tokens + token)
    if cache_slot < 0:
        return
    origin = tl.load(copies_ptr + 2 * num_tokens + token)
    position = tl.load(copies_ptr + 3 * num_tokens + token)
    row = rows_ptr + arena_slot * stride_row
    place = (cache_slot // BLOCK_SIZE) * stride_block + (cache_slot % BLOCK_SIZE) * stride_token

    half: tl.constexpr = ROTARY_DIM // 2
    head = tl.arange(0, HEADS_PAD)[:, None].to(tl.int64)  # [HEADS_PAD, 1]
    pair = tl.arange(0, PAIRS_PAD)[None, :]  # [1, PAIRS_PAD]
    is_pair = pair < half
    pair_mask = (head < NUM_HEADS) & is_pair
    left = pair if IS_NEOX else 2 * pair
    right = pair + half if IS_NEOX else 2 * pair + 1
    rest = ROTARY_DIM + tl.arange(0, REST_PAD)[None, :]  # [1, REST_PAD]
    rest_mask = (head < NUM_HEADS) & (rest < HEAD_DIM)
    dim = tl.arange(0, DIM_PAD)[None, :]  # [1, DIM_PAD]
    dim_mask = (head < NUM_HEADS) & (dim < HEAD_DIM)

    element = rows_ptr.dtype.element_ty
    cos = tl.zeros([1, PAIRS_PAD], dtype=tl.float32)
    sin = tl.zeros([1, PAIRS_PAD], dtype=tl.float32)
    for step in tl.static_range(LAYERS_PER_PROGRAM):
        layer = first_layer + step
        if layer < num_layers:
            if step == 0 or not SHARES_TABLE:
                cos_table = tl.load(cos_ptrs_ptr + layer).to(tl.pointer_type(tl.float32))
                sin_table = tl.load(sin_ptrs_ptr + layer).to(tl.pointer_type(tl.float32))
                old_cos = tl.load(cos_table + origin * half + pair, mask=is_pair, other=1.0)
                old_sin = tl.load(sin_table + origin * half + pair, mask=is_pair, other=0.0)
                new_cos = tl.load(cos_table + position * half + pair, mask=is_pair, other=1.0)
                new_sin = tl.load(sin_table + position * half + pair, mask=is_pair, other=0.0)
                square = old_cos * old_cos + old_sin * old_sin
                stays = origin == position
                cos = tl.where(stays, 1.0, (new_cos * old_cos + new_sin * old_sin) / square)
                sin = tl.where(stays, 0.0, (new_sin * old_cos - new_cos * old_sin) / square)
            source = row + tl.load(row_offsets_ptr + layer)
            target = tl.load(cache_ptrs_ptr + layer).to(tl.pointer_type(element)) + place
            key_in = source + head * HEAD_DIM
            key_out = target + head * stride_head
            value_in = key_in + NUM_HEADS * HEAD_DIM
            value_out = key_out + value_offset

            a = tl.load(key_in + left, mask=pair_mask, other=0.0).to(tl.float32)
            b = tl.load(key_in + right, mask=pair_mask, other=0.0).to(tl.float32)
            new_a = (a * cos - b * sin).to(element)
            new_b = (b * cos + a * sin).to(element)
            tl.store(key_out + left * stride_dim, new_a, mask=pair_mask)
            tl.store(key_out + right * stride_dim, new_b, mask=pair_mask)
            if ROTARY_DIM < HEAD_DIM:
                passed = tl.load(key_in + rest, mask=rest_mask, other=0.0)
                tl.store(key_out + rest * stride_dim, passed, mask=rest_mask)
            value = tl.load(value_in + dim, mask=dim_mask, other=0.0)
            tl.store(value_out + dim * stride_dim, value, mask=dim_mask)
