"""Keys and values of a token as few bits, head by head: plain torch, float32 inside.

    int8   x = payload * scale             scale = largest magnitude of the head / 127
    fp8    x = payload * scale             scale = largest magnitude of the head / 448 (e4m3)
    int4   x = payload * scale + minimum   for every 64 elements of the head; scale = range / 15

Scales and minimums are float16: a head of magnitude above 8 million is clipped, one below 10⁻⁵ is
kept less precisely, which no attention notices. int4 packs element j and j + ceil(head_dim / 2)
into byte j, low bits first. Nothing is shared between tokens.
"""

from __future__ import annotations

from typing import assert_never

import torch
from torch import Tensor

from inferscale_core.kv.rows import INT4_GROUP, LayerShape, PartLayout, part_layout
from inferscale_core.memory.recipes import Storage

INT8_MAX = 127.0
FP8_MAX = 448.0
INT4_MAX = 15.0
FLOAT16_MAX = 65504.0


def pack_part(storage: Storage, key: Tensor, value: Tensor) -> Tensor:
    """One layer's part of quantised rows: [num_tokens, part bytes], uint8; see `kv.rows`.

    key, value: [num_tokens, num_kv_heads, head_dim], any float dtype.
    """
    num_tokens, num_kv_heads, head_dim = key.shape
    layout = part_layout(storage, LayerShape(num_kv_heads, head_dim))
    part = torch.zeros(num_tokens, layout.num_bytes, dtype=torch.uint8, device=key.device)
    for values, view in zip((key, value), _views(layout, part), strict=True):
        payload, scales = quantise(storage, values.float())
        view[0].copy_(payload.flatten(1))
        view[1].copy_(scales.flatten(1).view(torch.uint8))
    return part


def unpack_part(storage: Storage, shape: LayerShape, part: Tensor) -> tuple[Tensor, Tensor]:
    """Key and value of one layer, each [num_tokens, num_kv_heads, head_dim], float32.

    part: as `pack_part` gives it.
    """
    layout = part_layout(storage, shape)

    def restored(payload: Tensor, scales: Tensor) -> Tensor:
        by_head = (part.shape[0], shape.num_kv_heads, -1)
        numbers = scales.contiguous().view(torch.float16).view(by_head)
        return dequantise(storage, payload.reshape(by_head), numbers, shape.head_dim)

    key, value = _views(layout, part)
    return restored(*key), restored(*value)


def quantise(storage: Storage, values: Tensor) -> tuple[Tensor, Tensor]:
    """Payload, uint8, and scales, float16, of values [num_tokens, num_kv_heads, head_dim], float32.

    Both [num_tokens, num_kv_heads, …] with the last axis as `PartLayout` says.
    """
    match storage:
        case Storage.INT4:
            return _quantise_int4(values)
        case Storage.INT8:
            scaled, scales = _scaled(values, INT8_MAX)
            return scaled.round().to(torch.int8).view(torch.uint8), scales
        case Storage.FP8:
            scaled, scales = _scaled(values, FP8_MAX)
            return scaled.to(torch.float8_e4m3fn).view(torch.uint8), scales
        case Storage.CACHE:
            raise AssertionError("what the cache holds is stored as it is")
        case _:
            assert_never(storage)


def dequantise(storage: Storage, payload: Tensor, scales: Tensor, head_dim: int) -> Tensor:
    """What `quantise` kept: [num_tokens, num_kv_heads, head_dim], float32."""
    numbers = scales.float()
    match storage:
        case Storage.INT4:
            return _dequantise_int4(payload, numbers, head_dim)
        case Storage.INT8:
            return payload.view(torch.int8).float() * numbers
        case Storage.FP8:
            return payload.view(torch.float8_e4m3fn).float() * numbers
        case Storage.CACHE:
            raise AssertionError("what the cache holds is stored as it is")
        case _:
            assert_never(storage)


def _scaled(values: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """Values of each head within -limit..limit, and the scales that restore them."""
    scales = _to_float16(values.abs().amax(-1, keepdim=True) / limit)
    return _divided(values, scales).clamp(-limit, limit), scales


def _dequantise_int4(payload: Tensor, numbers: Tensor, head_dim: int) -> Tensor:
    scale, minimum = numbers.chunk(2, dim=-1)
    low, high = payload & 15, payload >> 4
    unpacked = torch.cat([low, high], dim=-1)[..., :head_dim].float()
    return unpacked * _spread(scale, head_dim) + _spread(minimum, head_dim)


def _quantise_int4(values: Tensor) -> tuple[Tensor, Tensor]:
    head_dim = values.shape[-1]
    groups = torch.split(values, INT4_GROUP, dim=-1)
    low = torch.stack([group.amin(-1) for group in groups], dim=-1)
    high = torch.stack([group.amax(-1) for group in groups], dim=-1)
    scales, minimums = _to_float16((high - low) / INT4_MAX), _to_float16(low)
    above = values - _spread(minimums.float(), head_dim)
    codes = _divided(above, _spread(scales, head_dim)).round().clamp(0, INT4_MAX).to(torch.uint8)
    width = -(-head_dim // 2)
    first, second = codes[..., :width], codes[..., width:]
    payload = first.clone()
    payload[..., : second.shape[-1]] |= second << 4
    return payload, torch.cat([scales, minimums], dim=-1)


def _views(layout: PartLayout, part: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """For key and for value: payload and scales of all heads, as bytes."""
    scales, value_scales = layout.scale_offset, layout.value_scale_offset
    end = 2 * value_scales - scales
    return (
        (part[:, : layout.value_offset], part[:, scales:value_scales]),
        (part[:, layout.value_offset : scales], part[:, value_scales:end]),
    )


def _spread(by_group: Tensor, head_dim: int) -> Tensor:
    return by_group.repeat_interleave(INT4_GROUP, dim=-1)[..., :head_dim]


def _to_float16(values: Tensor) -> Tensor:
    return values.clamp(-FLOAT16_MAX, FLOAT16_MAX).half()


def _divided(values: Tensor, scales: Tensor) -> Tensor:
    """0 where the scale is 0."""
    numbers = scales.float()
    return torch.where(numbers > 0, values / numbers, torch.zeros_like(values))
