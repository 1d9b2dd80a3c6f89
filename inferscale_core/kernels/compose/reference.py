"""Move stored keys to their serving positions: plain torch, float32 inside."""

from __future__ import annotations

from torch import Tensor

from inferscale_core.kv.rope import Turn, apply


def compose_layer(key: Tensor, value: Tensor, turn: Turn) -> tuple[Tensor, Tensor]:
    """What the engine's cache must hold for one layer.

    key, value: [num_tokens, num_kv_heads, head_dim], storage dtype, key as rotated to its origin.
    turn: from the tokens' origins to their positions. Returns key and value, contiguous, in the
    storage dtype.
    """
    return apply(turn, key), value.contiguous()
