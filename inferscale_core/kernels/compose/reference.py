"""Move stored keys to their serving positions: plain torch, float32 inside."""

from __future__ import annotations

from torch import Tensor

from inferscale_core.kv.rope import RotaryTable, move


def compose_layer(
    key: Tensor, value: Tensor, table: RotaryTable, origins: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor]:
    """What the engine's cache must hold for one layer.

    key, value: [num_tokens, num_kv_heads, head_dim], storage dtype, key as rotated to its origin.
    origins, positions: [num_tokens], int64. Returns key at `positions` and value, contiguous, in
    the storage dtype.
    """
    return move(key, table, origins, positions).to(key.dtype), value.contiguous()
