"""Stored rows to what the engine's cache must hold: plain torch, float32 inside."""

from __future__ import annotations

import torch
from torch import Tensor

from inferscale_core.kv.quantise import unpack_part
from inferscale_core.kv.rope import Turn, apply
from inferscale_core.kv.rows import LayerShape
from inferscale_core.memory.recipes import Storage


def compose_layer(key: Tensor, value: Tensor, turn: Turn) -> tuple[Tensor, Tensor]:
    """One layer of cache storage.

    key, value: [num_tokens, num_kv_heads, head_dim], storage dtype, key as rotated to its origin.
    turn: from the tokens' origins to their positions. Returns key and value, contiguous, in the
    storage dtype.
    """
    return apply(turn, key), value.contiguous()


def compose_quantised(
    storage: Storage,
    shape: LayerShape,
    part: Tensor,
    turn: Turn,
    bias: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """One layer of quantised storage.

    part: [num_tokens, part bytes], uint8. turn: the rotation to the tokens' positions. bias:
    [num_kv_heads, head_dim], what the keys had in common when they were quantised. Returns key and
    value, contiguous, in `dtype`, rounded to it once.
    """
    key, value = unpack_part(storage, shape, part, bias)
    return apply(turn, key).to(dtype), value.to(dtype)
