"""Keys and values of a token as few bits, head by head: plain torch, float32 inside.

    int8   x = payload * scale             scale = largest magnitude of the head / 127
    fp8    x = payload * scale             scale = largest magnitude of the head / 448 (e4m3)
    int4   x = payload * scale + minimum   for every 64 elements of the head; scale = range / 15

Scales and minimums are float16: a head of magnitude above 8 million is clipped, one below 10⁻⁵ is
kept less precisely, which no attention notices. int4 packs element j and j + ceil(head_dim / 2)
into byte j, low bits first. Nothing is shared between tokens.

Where keys of a layer have something in common (a bias, or calibrated means), it is taken from the
elements of each scale for which less is left to keep then: a smaller largest magnitude, or for int4
a smaller range. A negative scale says that it was left in. Decision 0013 says which keys gain.
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
LEAST_FLOAT16 = 2.0**-24
"""Of a negative scale: below it a sign would be lost."""


def pack_part(storage: Storage, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
    """One layer's part of quantised rows: [num_tokens, part bytes], uint8; see `kv.rows`.

    key, value: [num_tokens, num_kv_heads, head_dim], any float dtype. bias: [num_kv_heads,
    head_dim], what the layer's keys have in common, or None.
    """
    num_tokens, num_kv_heads, head_dim = key.shape
    layout = part_layout(storage, LayerShape(num_kv_heads, head_dim))
    part = torch.zeros(num_tokens, layout.num_bytes, dtype=torch.uint8, device=key.device)
    pairs = ((key, bias), (value, None))
    for (values, taken), view in zip(pairs, _views(layout, part), strict=True):
        payload, scales = quantise(storage, values.float(), taken)
        view[0].copy_(payload.flatten(1))
        view[1].copy_(scales.flatten(1).view(torch.uint8))
    return part


def unpack_part(
    storage: Storage, shape: LayerShape, part: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Key and value of one layer, each [num_tokens, num_kv_heads, head_dim], float32.

    part, bias: as `pack_part` gives and took them.
    """
    layout = part_layout(storage, shape)

    def restored(payload: Tensor, scales: Tensor, taken: Tensor | None) -> Tensor:
        by_head = (part.shape[0], shape.num_kv_heads, -1)
        numbers = scales.contiguous().view(torch.float16).view(by_head)
        return dequantise(storage, payload.reshape(by_head), numbers, shape.head_dim, taken)

    key, value = _views(layout, part)
    return restored(*key, bias), restored(*value, None)


def quantise(storage: Storage, values: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Payload, uint8, and scales, float16, of values [num_tokens, num_kv_heads, head_dim], float32.

    Both [num_tokens, num_kv_heads, …] with the last axis as `PartLayout` says.
    """
    if bias is None:
        return _quantised(storage, values)
    head_dim, group = values.shape[-1], group_of(storage, values.shape[-1])
    without = values - bias.float()
    is_left = _extent(storage, values, group) < _extent(storage, without, group)
    chosen = torch.where(_spread(is_left, group, head_dim), values, without)
    payload, scales = _quantised(storage, chosen)
    steps = scales[..., : is_left.shape[-1]]
    steps.copy_(torch.where(is_left, -steps.clamp(min=LEAST_FLOAT16), steps))
    return payload, scales


def dequantise(
    storage: Storage, payload: Tensor, scales: Tensor, head_dim: int, bias: Tensor | None = None
) -> Tensor:
    """What `quantise` kept: [num_tokens, num_kv_heads, head_dim], float32."""
    group = group_of(storage, head_dim)
    numbers = scales.float()
    steps = numbers[..., : -(-head_dim // group)]
    is_left = steps < 0
    steps.copy_(steps.abs())
    values = _restored(storage, payload, numbers, head_dim)
    if bias is None:
        return values
    return torch.where(_spread(is_left, group, head_dim), values, values + bias.float())


def group_of(storage: Storage, head_dim: int) -> int:
    """Elements of a head that share a scale."""
    return INT4_GROUP if storage is Storage.INT4 else head_dim


def _extent(storage: Storage, values: Tensor, group: int) -> Tensor:
    """What a scale is made of, for each: [num_tokens, num_kv_heads, scales]."""
    parts = torch.split(values, group, dim=-1)
    if storage is Storage.INT4:
        return torch.stack([part.amax(-1) - part.amin(-1) for part in parts], dim=-1)
    return torch.stack([part.abs().amax(-1) for part in parts], dim=-1)


def _quantised(storage: Storage, values: Tensor) -> tuple[Tensor, Tensor]:
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


def _restored(storage: Storage, payload: Tensor, numbers: Tensor, head_dim: int) -> Tensor:
    """numbers: scales without signs, float32."""
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
    return unpacked * _spread(scale, INT4_GROUP, head_dim) + _spread(minimum, INT4_GROUP, head_dim)


def _quantise_int4(values: Tensor) -> tuple[Tensor, Tensor]:
    head_dim = values.shape[-1]
    groups = torch.split(values, INT4_GROUP, dim=-1)
    low = torch.stack([group.amin(-1) for group in groups], dim=-1)
    high = torch.stack([group.amax(-1) for group in groups], dim=-1)
    scales, minimums = _to_float16((high - low) / INT4_MAX), _to_float16(low)
    above = values - _spread(minimums.float(), INT4_GROUP, head_dim)
    codes = (
        _divided(above, _spread(scales, INT4_GROUP, head_dim))
        .round()
        .clamp(0, INT4_MAX)
        .to(torch.uint8)
    )
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


def _spread(by_group: Tensor, group: int, head_dim: int) -> Tensor:
    return by_group.repeat_interleave(group, dim=-1)[..., :head_dim]


def _to_float16(values: Tensor) -> Tensor:
    return values.clamp(-FLOAT16_MAX, FLOAT16_MAX).half()


def _divided(values: Tensor, scales: Tensor) -> Tensor:
    """0 where the scale is 0."""
    numbers = scales.float()
    return torch.where(numbers > 0, values / numbers, torch.zeros_like(values))
