"""What the engine's cache holds to rows of the arena: plain torch, float32 inside."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from inferscale_core.kv.quantise import pack_part
from inferscale_core.kv.rope import Turn, apply
from inferscale_core.memory.recipes import Storage


def capture_rows(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Rows of cache storage for `num_tokens` tokens: bitwise copies, side by side.

    pairs: for each layer key and value as the engine's cache holds them, each [num_tokens,
    num_kv_heads, head_dim]. Returns [num_tokens, row_elements] in their dtype; `kv.rows` says
    what a row is.
    """
    return torch.cat([part.flatten(1) for pair in pairs for part in pair], dim=1)


def capture_quantised(
    storage: Storage, key: Tensor, value: Tensor, back: Turn, bias: Tensor | None
) -> Tensor:
    """One layer's part of rows of a quantised storage: [num_tokens, part bytes], uint8.

    key, value: [num_tokens, num_kv_heads, head_dim], as the engine's cache holds them. back: from
    the tokens' positions to none. bias: [num_kv_heads, head_dim], taken from every key.
    """
    return pack_part(storage, apply(back, key.float()), value, bias)
