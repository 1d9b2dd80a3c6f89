"""Numbers of few bits inside the kernels: reading and writing them, and rounding to them.

`kv.quantise` says what each means and is what these are tested against.
"""

from __future__ import annotations

import triton
import triton.language as tl

INT4_GROUP = tl.constexpr(64)
"""Equal to kv.rows.INT4_GROUP, which a kernel cannot import."""

FP8_MAX = tl.constexpr(448.0)

LEAST_FLOAT16 = tl.constexpr(2.0**-24)
"""Equal to kv.quantise.LEAST_FLOAT16."""


@triton.jit
def from_fp8(code):
    """code: uint8, e4m3. float32."""
    return code.to(tl.float8e4nv, bitcast=True).to(tl.float32)


@triton.jit
def to_fp8(value):
    """value: float32. uint8, e4m3, rounded half to even; beyond 448 it is clipped.

    In integer steps, since the interpreter's own conversion rounds otherwise: adding and taking
    away 2^(exponent + 20) leaves three bits of mantissa, and 2^-8 times a number of e4m3 is one of
    float16 with the same bits.
    """
    value = tl.minimum(tl.maximum(value, -FP8_MAX), FP8_MAX)
    bits = value.to(tl.int32, bitcast=True)
    exponent = tl.maximum((bits & 0x7FFFFFFF) >> 23, 121)
    bump = ((exponent + 20) << 23).to(tl.float32, bitcast=True)
    rounded = (tl.abs(value) + bump) - bump
    half = (rounded * 0.00390625).to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32)
    return ((half >> 7) | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def rounded(value):
    """To the nearest integer, half to even, for magnitudes below 2^22."""
    return (value + 12582912.0) - 12582912.0


@triton.jit
def load_quantised(
    payload_ptr, scales_ptr, bias_ptr, head, dim, inside,
    NUM_HEADS: tl.constexpr, HEADS_PAD: tl.constexpr, HEAD_DIM: tl.constexpr,
    STORAGE: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """Elements `dim` of heads `head`, float32. payload_ptr, scales_ptr: uint8 and float16, of the
    first head of K or of V. bias_ptr: of each head, put back where a scale is not negative."""
    each = tl.arange(0, HEADS_PAD)  # [HEADS_PAD]
    bias = 0.0
    if HAS_BIAS:
        bias = tl.load(bias_ptr + dim, mask=inside, other=0.0).to(tl.float32)
    if STORAGE == "int4":
        width: tl.constexpr = (HEAD_DIM + 1) // 2
        groups: tl.constexpr = (HEAD_DIM + INT4_GROUP - 1) // INT4_GROUP
        is_high = dim >= width
        place = head * width + tl.where(is_high, dim - width, dim)
        byte = tl.load(payload_ptr + place, mask=inside, other=0).to(tl.int32)
        code = (tl.where(is_high, byte >> 4, byte) & 15).to(tl.float32)
        value = code
        # A number of each head and group, once: a load for each element costs more than the rest.
        for group in tl.static_range(groups):
            number = scales_ptr + each * (2 * groups) + group
            scale = tl.load(number, mask=each < NUM_HEADS, other=0.0).to(tl.float32)[:, None]
            minimum = tl.load(number + groups, mask=each < NUM_HEADS, other=0.0).to(tl.float32)
            restored = code * tl.abs(scale) + minimum[:, None]
            if HAS_BIAS:
                restored += tl.where(scale < 0.0, 0.0, bias)
            value = tl.where(dim // INT4_GROUP == group, restored, value)
    else:
        code = tl.load(payload_ptr + head * HEAD_DIM + dim, mask=inside, other=0)
        scale = tl.load(scales_ptr + each, mask=each < NUM_HEADS, other=0.0).to(tl.float32)[:, None]
        if STORAGE == "int8":
            value = code.to(tl.int8, bitcast=True).to(tl.float32) * tl.abs(scale)
        else:
            value = from_fp8(code) * tl.abs(scale)
        if HAS_BIAS:
            value += tl.where(scale < 0.0, 0.0, bias)
    return value


@triton.jit
def load_cached(ptr, scale, inside, IS_FP8: tl.constexpr):
    """What the engine's cache holds at `ptr`, float32. scale: of an fp8 cache."""
    if IS_FP8:
        value = from_fp8(tl.load(ptr, mask=inside, other=0)) * scale
    else:
        value = tl.load(ptr, mask=inside, other=0.0).to(tl.float32)
    return value


@triton.jit
def store_cached(ptr, value, scale, inside, IS_FP8: tl.constexpr):
    """value: float32, rounded once to what the cache holds."""
    if IS_FP8:
        tl.store(ptr, to_fp8(value / scale), mask=inside)
    else:
        tl.store(ptr, value.to(ptr.dtype.element_ty), mask=inside)
