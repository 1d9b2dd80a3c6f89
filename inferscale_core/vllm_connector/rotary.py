"""Finds the rotary embedding of every attention layer, and takes over the engine's own tables.

A layer's keys can be moved only if rotation is the last thing that happened to them and we know its
inverse. So attention classes and rotary variants are listed by name; anything else is refused at
start-up. Each table is then checked against the module itself on random keys.

Source: vLLM 0.26 and 0.32, model_executor/layers/rotary_embedding and the attention classes named
in ATTENTION_CLASSES, whose forward rotates after any key norm and hands the result to `attn`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from inferscale_core.errors import Unsupported
from inferscale_core.kv.rope import RotaryTable, apply, rotation

ATTENTION_CLASSES = frozenset(
    {
        "LlamaAttention",
        "MistralAttention",
        "Qwen2Attention",
        "Qwen3Attention",
        "GemmaAttention",
        "Gemma2Attention",
        "Gemma3Attention",
        "PhiAttention",
        "StablelmAttention",
        "GPTNeoXAttention",
        "GPTJAttention",
        "Glm4Attention",
    }
)

TABLE_CLASSES = frozenset(
    {
        "RotaryEmbedding",
        "Llama3RotaryEmbedding",
        "YaRNScalingRotaryEmbedding",
        "LinearScalingRotaryEmbedding",
        "NTKScalingRotaryEmbedding",
        "DynamicNTKScalingRotaryEmbedding",
        "DynamicNTKAlphaRotaryEmbedding",
        "Gemma4RotaryEmbedding",
    }
)
LONGROPE_CLASS = "Phi3LongRoPEScaledRotaryEmbedding"

# A bf16 module rounds products and sums; each step is at most 2^-8 relative, and there are three.
CHECK_TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def find_tables(
    model: nn.Module, layer_names: Iterable[str], device: torch.device, max_positions: int
) -> dict[str, RotaryTable]:
    """The rotary table of every named layer. Layers that share a module share a table.

    Raises Unsupported that names the layer and the class or variant.
    """
    wanted = set(layer_names)
    tables: dict[int, RotaryTable] = {}
    by_layer: dict[str, RotaryTable] = {}
    for parent, layer_name in attention_parents(model, wanted):
        module = rotary_module(parent, layer_name)
        if id(module) not in tables:
            tables[id(module)] = table_of(module, device)
            check_table(module, tables[id(module)], layer_name, max_positions)
        by_layer[layer_name] = tables[id(module)]
    missing = wanted - by_layer.keys()
    if missing:
        raise Unsupported(
            f"layer {min(missing)}: {type(model).__name__} has no attention module of the engine's "
            "own around it"
        )
    return by_layer


def table_of(module: nn.Module, device: torch.device) -> RotaryTable:
    """The engine's own angles in float32. Raises Unsupported that names the variant."""
    kind = type(module).__name__
    if kind == LONGROPE_CLASS:
        cache = _longrope_cache(module)
    elif kind in TABLE_CLASSES:
        if len(getattr(module, "scaling_factors", [1])) != 1:
            raise Unsupported(f"rotary variant {kind} with several scaling factors")
        cache = _as_tensor(module.cos_sin_cache)
    else:
        raise Unsupported(f"rotary variant {kind}")
    cos, sin = cache.to(device, torch.float32).chunk(2, dim=-1)
    return RotaryTable(
        cos=cos.contiguous(),
        sin=sin.contiguous(),
        rotary_dim=int(module.rotary_dim),  # type: ignore[arg-type]
        is_neox=bool(getattr(module, "is_neox_style", True)),
    )


def check_table(module: nn.Module, table: RotaryTable, layer_name: str, max_positions: int) -> None:
    """The module itself, applied to random keys, must agree with the table at sample positions."""
    if table.max_positions < max_positions:
        raise Unsupported(
            f"layer {layer_name}: rotary tables for {table.max_positions} positions, "
            f"but a context of {max_positions}"
        )
    dtype = _module_dtype(module)
    device = table.cos.device
    last = max_positions - 1
    positions = torch.tensor([min(p, last) for p in (0, 1, 15, 16, 4095, last)], device=device)
    head_dim = int(module.head_size)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    key = torch.randn(len(positions), 1, head_dim, generator=generator).to(device, dtype)
    expected = _apply(module, positions, key)
    actual = apply(rotation(table, positions), key.float())
    scale = float(expected.abs().max())
    error = float((actual - expected.float()).abs().max()) / scale
    if not error <= CHECK_TOLERANCE[dtype]:
        raise Unsupported(
            f"layer {layer_name}: rotary variant {type(module).__name__} does not rotate as its "
            f"table says (relative error {error:.2g})"
        )


def attention_parents(model: nn.Module, wanted: set[str]) -> Iterator[tuple[nn.Module, str]]:
    for parent in model.modules():
        for child in parent.children():
            layer_name = getattr(child, "layer_name", None)
            if layer_name in wanted and hasattr(child, "impl"):
                yield parent, layer_name


def rotary_module(parent: nn.Module, layer_name: str) -> nn.Module:
    """Of an attention module. Raises Unsupported that names the layer and the attention class."""
    kind = type(parent).__name__
    if kind not in ATTENTION_CLASSES:
        raise Unsupported(f"layer {layer_name}: attention class {kind}")
    found = [child for child in parent.children() if "Rotary" in type(child).__name__]
    if len(found) != 1:
        raise Unsupported(f"layer {layer_name}: {kind} has {len(found)} rotary embeddings, not 1")
    return found[0]


def _longrope_cache(module: nn.Module) -> Tensor:
    cache = _as_tensor(module.long_short_cos_sin_cache)
    original = int(module.original_max_position_embeddings)  # type: ignore[arg-type]
    return cache[original:] if module.use_long_rope else cache[:original]


def _module_dtype(module: nn.Module) -> torch.dtype:
    cache = getattr(module, "cos_sin_cache", None)
    if cache is None:
        cache = module.long_short_cos_sin_cache
    return _as_tensor(cache).dtype


def _apply(module: nn.Module, positions: Tensor, key: Tensor) -> Tensor:
    flat = key.reshape(key.shape[0], -1).clone()
    forward = getattr(module, "forward_native", module.forward)
    _, rotated = forward(positions, flat.clone(), flat)
    return _as_tensor(rotated).reshape(key.shape)


def _as_tensor(value: object) -> Tensor:
    assert isinstance(value, Tensor)
    return value
