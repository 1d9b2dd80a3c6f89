"""Un-rotate the engine's keys and lay a token's layers side by side: plain torch, float32 inside."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from inferscale_core.kv.rope import RotaryTable, unrotate


def capture_rows(
    pairs: Sequence[tuple[Tensor, Tensor]], tables: Sequence[RotaryTable], positions: Tensor
) -> Tensor:
    """Rows of the arena for `num_tokens` tokens.

    pairs: for each layer key and value as the engine's cache holds them, [num_tokens,
    num_kv_heads, head_dim]. positions: [num_tokens], int64, at which the engine rotated the keys.
    Returns [num_tokens, row_elements] in the pairs' dtype; see `kv.storage` for a row.
    """
    parts = []
    for (key, value), table in zip(pairs, tables, strict=True):
        parts.append(unrotate(key, table, positions).to(key.dtype).flatten(1))
        parts.append(value.flatten(1))
    return torch.cat(parts, dim=1)
