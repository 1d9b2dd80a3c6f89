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


@dataclass(frozen=True, slots=True)
class Turn:
    """One rotation per token. cos, sin: [num_tokens, rotary_dim / 2], float32."""

    cos: Tensor
    sin: Tensor
    rotary_dim: int
    is_neox: bool


def rotation(table: RotaryTable, positions: Tensor) -> Turn:
    """From no position to `positions`: [num_tokens], int64."""
    return Turn(table.cos[positions], table.sin[positions], table.rotary_dim, table.is_neox)


def unrotation(table: RotaryTable, positions: Tensor) -> Turn:
    """Back from `positions` to no position: undoes `rotation`, magnitude included."""
    cos, sin = table.cos[positions], table.sin[positions]
    square = cos * cos + sin * sin
    return Turn(cos / square, -sin / square, table.rotary_dim, table.is_neox)


def shift(table: RotaryTable, origins: Tensor, positions: Tensor) -> Turn:
    """From `origins` to `positions`, each [num_tokens], int64. The identity where they agree."""
    old_cos, old_sin = table.cos[origins], table.sin[origins]
    new_cos, new_sin = table.cos[positions], table.sin[positions]
    square = old_cos * old_cos + old_sin * old_sin
    return Turn(
        (new_cos * old_cos + new_sin * old_sin) / square,
        (new_sin * old_cos - new_cos * old_sin) / square,
        table.rotary_dim,
        table.is_neox,
    )


def apply(turn: Turn, key: Tensor) -> Tensor:
    """Turn keys: [num_tokens, num_kv_heads, head_dim], any float dtype.

    Computed in float32 and rounded once; returns the same shape and dtype, newly allocated and
    contiguous.
    """
    cos, sin = turn.cos.unsqueeze(1), turn.sin.unsqueeze(1)
    turned = torch.empty(key.shape, dtype=key.dtype, device=key.device)
    first, second = _pairs(key, turn)
    new_first, new_second = _pairs(turned, turn)
    first, second = first.float(), second.float()
    new_first.copy_(first * cos - second * sin)
    new_second.copy_(second * cos + first * sin)
    if turn.rotary_dim < key.shape[-1]:
        turned[..., turn.rotary_dim :] = key[..., turn.rotary_dim :]
    return turned


def _pairs(key: Tensor, turn: Turn) -> tuple[Tensor, Tensor]:
    """Views of the two halves of every rotated pair."""
    if turn.is_neox:
        half = turn.rotary_dim // 2
        return key[..., :half], key[..., half : turn.rotary_dim]
    return key[..., 0 : turn.rotary_dim : 2], key[..., 1 : turn.rotary_dim : 2]
