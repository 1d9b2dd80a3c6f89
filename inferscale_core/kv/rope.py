"""Moving keys from the position at which they were computed to the one at which they serve.

A chunk stores keys as the engine rotated them, with the position of each: its origin. Serving at
position p' multiplies by R(p') R(origin)⁻¹ in float32 and rounds once. Undoing the rotation before
storing, as the paper does, rounds twice; and where origin and p' agree this product is exactly the
identity, so jointly encoded chunks are bitwise what prefill wrote.

The tables are the engine's own, magnitudes and rounding included, so a moved key equals what the
model's rotary module gives for the same un-rotated key. R⁻¹ divides by cos² + sin² instead of
assuming 1: yarn and longrope scale their tables, and bfloat16 tables are off by up to 2⁻⁷.

Source: RoFormer (arXiv 2104.09864); arXiv 2607.27090, section 3 (chunked RoPE).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """Angles of one rotary embedding for every position.

    cos, sin: [max_positions, rotary_dim / 2], float32, on the cache's device, scaled by the
    variant's magnitude. is_neox: halves of the rotated part are paired; otherwise neighbours
    (GPT-J). Dimensions from rotary_dim on are not rotated.
    """

    cos: Tensor
    sin: Tensor
    rotary_dim: int
    is_neox: bool

    @property
    def max_positions(self) -> int:
        return self.cos.shape[0]


def rotate(key: Tensor, table: RotaryTable, positions: Tensor) -> Tensor:
    """Rotate un-rotated keys to `positions`.

    key: [num_tokens, num_kv_heads, head_dim], any float dtype. positions: [num_tokens], int64.
    Computed in float32; returns float32, same shape, newly allocated.
    """
    return _turn(key, table.cos[positions], table.sin[positions], table)


def move(key: Tensor, table: RotaryTable, origins: Tensor, positions: Tensor) -> Tensor:
    """Rotate keys that were rotated to `origins` on to `positions`.

    Shapes and result as for `rotate`; origins: [num_tokens], int64. Exactly the input where both
    positions agree.
    """
    old_cos, old_sin = table.cos[origins], table.sin[origins]
    new_cos, new_sin = table.cos[positions], table.sin[positions]
    square = old_cos * old_cos + old_sin * old_sin
    cos = (new_cos * old_cos + new_sin * old_sin) / square
    sin = (new_sin * old_cos - new_cos * old_sin) / square
    return _turn(key, cos, sin, table)


def _turn(key: Tensor, cos: Tensor, sin: Tensor, table: RotaryTable) -> Tensor:
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    turned = key.to(torch.float32, copy=True)
    part = turned[..., : table.rotary_dim]
    if table.is_neox:
        first, second = part.chunk(2, dim=-1)
    else:
        first, second = part[..., 0::2], part[..., 1::2]
    new_first = first * cos - second * sin
    new_second = second * cos + first * sin
    first.copy_(new_first)
    second.copy_(new_second)
    return turned
