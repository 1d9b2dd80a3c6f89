"""Compose for all layers and all requests of a step in one launch.

As many programs as are launched share the tokens; each moves one at a time through
LAYERS_PER_PROGRAM layers:

    arena row  | K heads x dim | V heads x dim | next layer …     (cache storage, else `kv.rows`)
                     │ dequantise, put bias back,          │ dequantise
                     │ rotate to position (float32)        │
    cache slot   K at (block, head, offset, dim)        V at the same + value offset

A key of cache storage is rotated from its origin, one of quantised storage from nowhere. The angle
is worked out once per token and used for all its layers. Bytes: each token's row is read once and
each slot written once; tables and biases stay in L2.
"""

from __future__ import annotations

import triton
import triton.language as tl

from inferscale_core.kernels.codes.kernel import load_cached, load_quantised, store_cached


@triton.jit(do_not_specialize=["cache_line"])
def compose_kernel(
    rows_ptr,
    cache_ptrs_ptr,
    cos_ptrs_ptr,
    sin_ptrs_ptr,
    row_offsets_ptr,
    cache_scales_ptr,
    bias_ptr,
    copies_ptr,
    cache_line,
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
    STORAGE: tl.constexpr,
    PAYLOAD: tl.constexpr,
    NUM_SCALES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    CACHE_TYPE: tl.constexpr,
    CACHE_IS_FP8: tl.constexpr,
    ROW_ALIGNMENT: tl.constexpr,
    CACHE_ALIGNMENT: tl.constexpr,
    FIRST_LINE: tl.constexpr,
    LAYERS_PER_PROGRAM: tl.constexpr,
    SHARES_TABLE: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    PAIRS_PAD: tl.constexpr,
    REST_PAD: tl.constexpr,
    DIM_PAD: tl.constexpr,
):
    """rows: [num_rows, stride_row]. *_ptrs: [num_layers], addresses. row_offsets: [num_layers].
    cache_scales: [num_layers, 2], float32, of K and V in an fp8 cache. bias: [num_layers,
    NUM_HEADS, HEAD_DIM]. copies: int64, see `paged.as_list`; its lines hold arena slot, origin,
    position, and in line cache_line the cache slot."""
    num_tokens = tl.load(copies_ptr)
    lines_ptr = copies_ptr + FIRST_LINE
    first_layer = tl.program_id(1) * LAYERS_PER_PROGRAM
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

    for token in range(tl.program_id(0), num_tokens, tl.num_programs(0)):
        arena_slot = tl.load(lines_ptr + token)
        cache_slot = tl.load(lines_ptr + cache_line * num_tokens + token)
        if cache_slot >= 0:
            origin = tl.load(lines_ptr + num_tokens + token)
            position = tl.load(lines_ptr + 2 * num_tokens + token)
            row = rows_ptr + arena_slot * stride_row
            place = (cache_slot // BLOCK_SIZE) * stride_block
            place += (cache_slot % BLOCK_SIZE) * stride_token
            cos = tl.zeros([1, PAIRS_PAD], dtype=tl.float32)
            sin = tl.zeros([1, PAIRS_PAD], dtype=tl.float32)
            for step in tl.static_range(LAYERS_PER_PROGRAM):
                layer = first_layer + step
                if layer < num_layers:
                    if step == 0 or not SHARES_TABLE:
                        cos_table = tl.load(cos_ptrs_ptr + layer).to(tl.pointer_type(tl.float32))
                        sin_table = tl.load(sin_ptrs_ptr + layer).to(tl.pointer_type(tl.float32))
                        cos = tl.load(cos_table + position * half + pair, mask=is_pair, other=1.0)
                        sin = tl.load(sin_table + position * half + pair, mask=is_pair, other=0.0)
                        if STORAGE == "cache":
                            old = origin * half + pair
                            old_cos = tl.load(cos_table + old, mask=is_pair, other=1.0)
                            old_sin = tl.load(sin_table + old, mask=is_pair, other=0.0)
                            square = old_cos * old_cos + old_sin * old_sin
                            shifted = (cos * old_cos + sin * old_sin) / square
                            stays = origin == position
                            sin = tl.where(stays, 0.0, (sin * old_cos - cos * old_sin) / square)
                            cos = tl.where(stays, 1.0, shifted)
                    offset = tl.multiple_of(tl.load(row_offsets_ptr + layer), ROW_ALIGNMENT)
                    source = row + offset
                    cache = tl.load(cache_ptrs_ptr + layer).to(tl.pointer_type(CACHE_TYPE))
                    target = tl.multiple_of(cache, CACHE_ALIGNMENT) + place
                    key_out = target + head * stride_head
                    value_out = key_out + value_offset
                    key_scale = 1.0
                    value_scale = 1.0
                    if CACHE_IS_FP8:
                        key_scale = tl.load(cache_scales_ptr + 2 * layer)
                        value_scale = tl.load(cache_scales_ptr + 2 * layer + 1)

                    if STORAGE == "cache":
                        key_in = source + head * HEAD_DIM
                        value_in = key_in + NUM_HEADS * HEAD_DIM
                        a = load_cached(key_in + left, key_scale, pair_mask, CACHE_IS_FP8)
                        b = load_cached(key_in + right, key_scale, pair_mask, CACHE_IS_FP8)
                        value = tl.load(value_in + dim, mask=dim_mask, other=0)
                        tl.store(value_out + dim * stride_dim, value, mask=dim_mask)
                        if ROTARY_DIM < HEAD_DIM:
                            passed = tl.load(key_in + rest, mask=rest_mask, other=0)
                            tl.store(key_out + rest * stride_dim, passed, mask=rest_mask)
                    else:
                        value_in = source + NUM_HEADS * PAYLOAD
                        scales = (source + 2 * NUM_HEADS * PAYLOAD).to(tl.pointer_type(tl.float16))
                        value_scales = scales + NUM_HEADS * NUM_SCALES
                        bias = bias_ptr + (layer * NUM_HEADS + head) * HEAD_DIM
                        a = load_quantised(
                            source, scales, bias, head, left, pair_mask,
                            NUM_HEADS, HEADS_PAD, HEAD_DIM, STORAGE, HAS_BIAS,
                        )  # fmt: skip
                        b = load_quantised(
                            source, scales, bias, head, right, pair_mask,
                            NUM_HEADS, HEADS_PAD, HEAD_DIM, STORAGE, HAS_BIAS,
                        )  # fmt: skip
                        value = load_quantised(
                            value_in, value_scales, bias, head, dim, dim_mask,
                            NUM_HEADS, HEADS_PAD, HEAD_DIM, STORAGE, False,
                        )  # fmt: skip
                        store_cached(
                            value_out + dim * stride_dim, value, value_scale, dim_mask, CACHE_IS_FP8
                        )
                        if ROTARY_DIM < HEAD_DIM:
                            passed = load_quantised(
                                source, scales, bias, head, rest, rest_mask,
                                NUM_HEADS, HEADS_PAD, HEAD_DIM, STORAGE, HAS_BIAS,
                            )  # fmt: skip
                            store_cached(
                                key_out + rest * stride_dim,
                                passed,
                                key_scale,
                                rest_mask,
                                CACHE_IS_FP8,
                            )
                    new_a = a * cos - b * sin
                    new_b = b * cos + a * sin
                    store_cached(
                        key_out + left * stride_dim, new_a, key_scale, pair_mask, CACHE_IS_FP8
                    )
                    store_cached(
                        key_out + right * stride_dim, new_b, key_scale, pair_mask, CACHE_IS_FP8
                    )
