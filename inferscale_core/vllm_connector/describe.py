"""What was found in a loaded model, in plain values: what `inferscale verify` writes down."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from inferscale_core.errors import Unsupported
from inferscale_core.kv.storage import Arena
from inferscale_core.vllm_connector.key_bias import find_key_biases
from inferscale_core.vllm_connector.rotary import attention_parents, rotary_module, table_of
from inferscale_core.vllm_connector.worker_side import WorkerSide

_MAX_ROWS = 4096
"""Tokens of the arena whose keys are looked at."""


def describe(side: WorkerSide, model: nn.Module) -> dict[str, Any]:
    """Of this rank, once it was started."""
    config = side.config
    shapes = sorted({(shape.num_kv_heads, shape.head_dim) for shape in config.layers})
    return {
        "model_class": type(model).__name__,
        "attention": sorted({type(p).__name__ for p, _ in _parents(side, model)}),
        "rotary": _rotary_kinds(side, model),
        "layout": side.readers,
        "num_layers": len(config.layer_names),
        "kv_heads_and_head_dim": [list(shape) for shape in shapes],
        "cache_groups": _groups(side),
        "cache_dtype": str(config.dtype).removeprefix("torch."),
        "block_size": config.block_size,
        "bytes_per_token": config.bytes_per_token,
        "key_bias": _key_bias(side, model),
    }


def key_channels(arena: Arena) -> list[float]:
    """Of each layer the largest root mean square of a key's channel, over the median channel's.

    Over what the arena holds now, whose storage is that of a float cache. Much above 10 means that
    few bits would lose the other channels.
    """
    rows = arena.rows.any(dim=1).nonzero().flatten()[:_MAX_ROWS]
    ratios = []
    for layer in range(len(arena.layers)):
        key, _ = arena.read_layer(rows, layer)
        size = key.float().square().mean(dim=0).sqrt().flatten()
        ratios.append(float(size.max() / size.median().clamp(min=1e-9)))
    return ratios


def _parents(side: WorkerSide, model: nn.Module) -> list[tuple[nn.Module, str]]:
    return list(attention_parents(model, set(side.config.layer_names)))


def _rotary_kinds(side: WorkerSide, model: nn.Module) -> list[dict[str, Any]]:
    """One entry for each rotary embedding, with the number of layers that it turns."""
    modules: dict[int, nn.Module] = {}
    counts: Counter[int] = Counter()
    for parent, layer_name in _parents(side, model):
        module = rotary_module(parent, layer_name)
        modules[id(module)] = module
        counts[id(module)] += 1
    return [_rotary_kind(module, counts[key]) for key, module in modules.items()]


def _rotary_kind(module: nn.Module, num_layers: int) -> dict[str, Any]:
    table = table_of(module, torch.device("cpu"))
    magnitude = float((table.cos[0].square() + table.sin[0].square()).mean().sqrt())
    return {
        "kind": type(module).__name__,
        "layers": num_layers,
        "rotary_dim": table.rotary_dim,
        "head_dim": int(module.head_size),  # type: ignore[arg-type]
        "pairs": "halves" if table.is_neox else "neighbours",
        "base": float(getattr(module, "base", 0.0)),
        "magnitude": round(magnitude, 6),
        "positions": table.max_positions,
    }


def _groups(side: WorkerSide) -> list[dict[str, Any]]:
    config = side.config
    counts = Counter(config.group_of_layer)
    return [
        {"layers": counts[group], "window": window} for group, window in enumerate(config.windows)
    ]


def _key_bias(side: WorkerSide, model: nn.Module) -> dict[str, Any]:
    """What is subtracted before keys are quantised. refused: why it cannot be known, or None."""
    shapes = dict(zip(side.config.layer_names, side.config.layers, strict=True))
    try:
        found = [bias for bias in find_key_biases(model, shapes).values() if bias is not None]
    except Unsupported as exc:
        return {"refused": str(exc), "layers": 0, "largest": 0.0}
    return {
        "refused": None,
        "layers": len(found),
        "largest": max(map(_largest, found), default=0.0),
    }


def _largest(bias: Tensor) -> float:
    return round(float(bias.abs().max()), 3)
