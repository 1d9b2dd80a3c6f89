"""Capture for all layers and all requests of a step in one launch.

As many programs as are launched share the tokens; each copies one at a time, of LAYERS_PER_PROGRAM
layers, from the engine's cache to its arena row:
bitwise for cache storage, else un-rotated and quantised head by head, without its bias where that
leaves less to keep, as `kv.quantise` does. Bytes: each slot is read once (a key's partner again,
from L1), each row written once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from inferscale_core.kernels.codes.kernel import (
    INT4_GROUP,
    LEAST_FLOAT16,
    load_cached,
    rounded,
    to_fp8,
)


@triton.jit(do_not_specialize=["cache_line"])
def capture_kernel(
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
    HEADS_PAD: tl.constexpr,
    DIM_PAD: tl.constexpr,
    HALF_PAD: tl.constexpr,
):
    """As of `compose_kernel`; the origin is not read."""
    num_tokens = tl.load(copies_ptr)
    lines_ptr = copies_ptr + FIRST_LINE
    first_layer = tl.program_id(1) * LAYERS_PER_PROGRAM
    head = tl.arange(0, HEADS_PAD)[:, None].to(tl.int64)  # [HEADS_PAD, 1]
    dim = tl.arange(0, DIM_PAD)[None, :]  # [1, DIM_PAD]
    inside = (head < NUM_HEADS) & (dim < HEAD_DIM)
    for token in range(tl.program_id(0), num_tokens, tl.num_programs(0)):
        arena_slot = tl.load(lines_ptr + token)
        cache_slot = tl.load(lines_ptr + cache_line * num_tokens + token)
        if cache_slot >= 0:
            row = rows_ptr + arena_slot * stride_row
            place = (cache_slot // BLOCK_SIZE) * stride_block
            place += (cache_slot % BLOCK_SIZE) * stride_token
            for step in tl.static_range(LAYERS_PER_PROGRAM):
                layer = first_layer + step
                if layer < num_layers:
                    offset = tl.multiple_of(tl.load(row_offsets_ptr + layer), ROW_ALIGNMENT)
                    target = row + offset
                    cache = tl.load(cache_ptrs_ptr + layer).to(tl.pointer_type(CACHE_TYPE))
                    key_in = tl.multiple_of(cache, CACHE_ALIGNMENT) + place + head * stride_head
                    value_in = key_in + value_offset
                    if STORAGE == "cache":
                        key_out = target + head * HEAD_DIM + dim
                        key = tl.load(key_in + dim * stride_dim, mask=inside, other=0)
                        tl.store(key_out, key, mask=inside)
                        value = tl.load(value_in + dim * stride_dim, mask=inside, other=0)
                        tl.store(key_out + NUM_HEADS * HEAD_DIM, value, mask=inside)
                    else:
                        key_scale = 1.0
                        value_scale = 1.0
                        if CACHE_IS_FP8:
                            key_scale = tl.load(cache_scales_ptr + 2 * layer)
                            value_scale = tl.load(cache_scales_ptr + 2 * layer + 1)
                        position = tl.load(lines_ptr + 2 * num_tokens + token)
                        angle = position * (ROTARY_DIM // 2)
                        cos = tl.load(cos_ptrs_ptr + layer).to(tl.pointer_type(tl.float32)) + angle
                        sin = tl.load(sin_ptrs_ptr + layer).to(tl.pointer_type(tl.float32)) + angle
                        bias = bias_ptr + (layer * NUM_HEADS + head) * HEAD_DIM
                        value_out = target + NUM_HEADS * PAYLOAD
                        scales = (target + 2 * NUM_HEADS * PAYLOAD).to(tl.pointer_type(tl.float16))
                        value_scales = scales + NUM_HEADS * NUM_SCALES
                        if STORAGE == "int4":
                            width: tl.constexpr = (HEAD_DIM + 1) // 2
                            low = tl.arange(0, HALF_PAD)[None, :]  # [1, HALF_PAD]
                            high = low + width
                            low_mask = (head < NUM_HEADS) & (low < width)
                            high_mask = (head < NUM_HEADS) & (low < width) & (high < HEAD_DIM)
                            key_low = _unrotated(
                                key_in, stride_dim, low, low_mask, cos, sin, key_scale,
                                ROTARY_DIM, IS_NEOX, CACHE_IS_FP8,
                            )  # fmt: skip
                            key_high = _unrotated(
                                key_in, stride_dim, high, high_mask, cos, sin, key_scale,
                                ROTARY_DIM, IS_NEOX, CACHE_IS_FP8,
                            )  # fmt: skip
                            value_low = load_cached(
                                value_in + low * stride_dim, value_scale, low_mask, CACHE_IS_FP8
                            )
                            value_high = load_cached(
                                value_in + high * stride_dim, value_scale, high_mask, CACHE_IS_FP8
                            )
                            _store_int4(
                                target, scales, bias, head, low, key_low, key_high,
                                low_mask, high_mask, NUM_HEADS, HEAD_DIM, HAS_BIAS,
                            )  # fmt: skip
                            _store_int4(
                                value_out, value_scales, bias, head, low, value_low, value_high,
                                low_mask, high_mask, NUM_HEADS, HEAD_DIM, False,
                            )  # fmt: skip
                        else:
                            key = _unrotated(
                                key_in, stride_dim, dim, inside, cos, sin, key_scale,
                                ROTARY_DIM, IS_NEOX, CACHE_IS_FP8,
                            )  # fmt: skip
                            value = load_cached(
                                value_in + dim * stride_dim, value_scale, inside, CACHE_IS_FP8
                            )
                            _store_by_head(
                                target, scales, bias, head, dim, key, inside,
                                NUM_HEADS, HEAD_DIM, STORAGE, HAS_BIAS,
                            )  # fmt: skip
                            _store_by_head(
                                value_out, value_scales, bias, head, dim, value, inside,
                                NUM_HEADS, HEAD_DIM, STORAGE, False,
                            )  # fmt: skip


@triton.jit
def _unrotated(
    key_ptr, stride_dim, dim, inside, cos_ptr, sin_ptr, scale,
    ROTARY_DIM: tl.constexpr, IS_NEOX: tl.constexpr, IS_FP8: tl.constexpr,
):  # fmt: skip
    """Elements `dim` of the keys with no position, float32. 0 outside."""
    half: tl.constexpr = ROTARY_DIM // 2
    is_rotated = dim < ROTARY_DIM
    if IS_NEOX:
        is_first = dim < half
        pair = tl.where(is_first, dim, dim - half)
        partner = tl.where(is_first, dim + half, dim - half)
    else:
        is_first = dim % 2 == 0
        pair = dim // 2
        partner = tl.where(is_first, dim + 1, dim - 1)
    own = load_cached(key_ptr + dim * stride_dim, scale, inside, IS_FP8)
    other = load_cached(key_ptr + partner * stride_dim, scale, inside & is_rotated, IS_FP8)
    cos = tl.load(cos_ptr + pair, mask=is_rotated, other=1.0)
    sin = tl.load(sin_ptr + pair, mask=is_rotated, other=0.0)
    signed = tl.where(is_first, sin, -sin)
    key = (own * cos + other * signed) / (cos * cos + sin * sin)
    return tl.where(inside, key, 0.0)


@triton.jit
def _store_by_head(
    payload_ptr, scales_ptr, bias_ptr, head, dim, value, inside,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, STORAGE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """int8 or fp8: one scale for a head."""
    limit: tl.constexpr = 127.0 if STORAGE == "int8" else 448.0
    largest = tl.max(tl.abs(value), axis=1, keep_dims=True)  # [HEADS_PAD, 1]
    if HAS_BIAS:
        without = value - tl.load(bias_ptr + dim, mask=inside, other=0.0).to(tl.float32)
        least = tl.max(tl.abs(without), axis=1, keep_dims=True)
        is_left = largest < least
        value = tl.where(is_left, value, without)
        largest = tl.minimum(largest, least)
    scale = tl.minimum(largest / limit, 65504.0).to(tl.float16)
    if HAS_BIAS:
        _store_scale(scales_ptr + head, scale, is_left, head < NUM_HEADS)
    else:
        tl.store(scales_ptr + head, scale, mask=head < NUM_HEADS)
    number = scale.to(tl.float32)
    scaled = tl.where(number > 0.0, value / tl.where(number > 0.0, number, 1.0), 0.0)
    scaled = tl.minimum(tl.maximum(scaled, -limit), limit)
    if STORAGE == "int8":
        code = rounded(scaled).to(tl.int8).to(tl.uint8, bitcast=True)
    else:
        code = to_fp8(scaled)
    tl.store(payload_ptr + head * HEAD_DIM + dim, code, mask=inside)


@triton.jit
def _store_scale(ptr, scale, is_left, mask):
    """Negative where the bias was left in."""
    number = scale.to(tl.float32)
    signed = tl.where(is_left, -tl.maximum(number, LEAST_FLOAT16), number)
    tl.store(ptr, signed.to(tl.float16), mask=mask)


@triton.jit
def _range(low, high, in_low, in_high):
    """Smallest and largest of a group's elements, [HEADS_PAD, 1]."""
    least = tl.minimum(
        tl.min(tl.where(in_low, low, float("inf")), axis=1, keep_dims=True),
        tl.min(tl.where(in_high, high, float("inf")), axis=1, keep_dims=True),
    )
    most = tl.maximum(
        tl.max(tl.where(in_low, low, float("-inf")), axis=1, keep_dims=True),
        tl.max(tl.where(in_high, high, float("-inf")), axis=1, keep_dims=True),
    )
    return least, most


@triton.jit
def _store_int4(
    payload_ptr, scales_ptr, bias_ptr, head, low_dim, low, high, low_mask, high_mask,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """A scale and a minimum for each INT4_GROUP elements; element j beside j + width in a byte."""
    width: tl.constexpr = (HEAD_DIM + 1) // 2
    groups: tl.constexpr = (HEAD_DIM + INT4_GROUP - 1) // INT4_GROUP
    low_code = tl.zeros_like(low)
    high_code = tl.zeros_like(high)
    is_head = head < NUM_HEADS
    if HAS_BIAS:
        low_bias = tl.load(bias_ptr + low_dim, mask=low_mask, other=0.0).to(tl.float32)
        high_bias = tl.load(bias_ptr + low_dim + width, mask=high_mask, other=0.0).to(tl.float32)
    for group in tl.static_range(groups):
        in_low = low_mask & (low_dim // INT4_GROUP == group)
        in_high = high_mask & ((low_dim + width) // INT4_GROUP == group)
        least, most = _range(low, high, in_low, in_high)
        chosen_low = low
        chosen_high = high
        if HAS_BIAS:
            low_without = low - low_bias
            high_without = high - high_bias
            other_least, other_most = _range(low_without, high_without, in_low, in_high)
            is_left = most - least < other_most - other_least
            chosen_low = tl.where(is_left, low, low_without)
            chosen_high = tl.where(is_left, high, high_without)
            least = tl.where(is_left, least, other_least)
            most = tl.where(is_left, most, other_most)
        least = tl.where(is_head, least, 0.0)
        most = tl.where(is_head, most, 0.0)
        scale = tl.minimum((most - least) / 15.0, 65504.0).to(tl.float16)
        minimum = tl.minimum(tl.maximum(least, -65504.0), 65504.0).to(tl.float16)
        number = scales_ptr + head * (2 * groups) + group
        if HAS_BIAS:
            _store_scale(number, scale, is_left, is_head)
        else:
            tl.store(number, scale, mask=is_head)
        tl.store(number + groups, minimum, mask=is_head)
        step = scale.to(tl.float32)
        base = minimum.to(tl.float32)
        divisor = tl.where(step > 0.0, step, 1.0)
        low_code = tl.where(in_low & (step > 0.0), (chosen_low - base) / divisor, low_code)
        high_code = tl.where(in_high & (step > 0.0), (chosen_high - base) / divisor, high_code)
    low_code = rounded(tl.minimum(tl.maximum(low_code, 0.0), 15.0)).to(tl.int32)
    high_code = rounded(tl.minimum(tl.maximum(high_code, 0.0), 15.0)).to(tl.int32)
    byte = (low_code | (high_code << 4)).to(tl.uint8)
    tl.store(payload_ptr + head * width + low_dim, byte, mask=low_mask)
