"""Rotary embedding applied to keys, and its exact inverse.

A chunk stores keys as they were before rotation, so that they can be rotated to any position. The
tables are the engine's own, magnitudes included, so a rotated chunk equals what the model's rotary
module gives for the same un-rotated keys. The inverse divides by cos² + sin² instead of assuming 1:
yarn and longrope scale their tables, and tables rounded to bfloat16 are off by up to 2⁻⁷.

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
    cos, sin = _angles(table, positions)
    return _turn(key, cos, sin, table)


def unrotate(key: Tensor, table: RotaryTable, positions: Tensor) -> Tensor:
    """The inverse of `rotate`: keys as they were before the engine rotated them to `positions`."""
    cos, sin = _angles(table, positions)
    square = cos * cos + sin * sin
    return _turn(key, cos / square, -sin / square, table)


def _angles(table: RotaryTable, positions: Tensor) -> tuple[Tensor, Tensor]:
    return (
        table.cos.index_select(0, positions).unsqueeze(1),
        table.sin.index_select(0, positions).unsqueeze(1),
    )


def _turn(key: Tensor, cos: Tensor, sin: Tensor, table: RotaryTable) -> Tensor:
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
