"""Lay the keys and values of a token's layers side by side: plain torch, bitwise copies."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def capture_rows(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Rows of the arena for `num_tokens` tokens.

    pairs: for each layer key and value as the engine's cache holds them, each [num_tokens,
    num_kv_heads, head_dim]. Returns [num_tokens, row_elements] in their dtype; `kv.storage` says
    what a row is.
    """
    return torch.cat([part.flatten(1) for pair in pairs for part in pair], dim=1)
