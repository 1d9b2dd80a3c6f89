"""What the engine is, as far as chunks are concerned; and by name what we refuse.

Both sides derive the arena from the same engine configuration, so they agree on its size.

Source: vLLM 0.26 and 0.32, v1/kv_cache_interface.py (KVCacheConfig, AttentionSpec).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from inferscale_core.errors import InvalidInput, Unsupported
from inferscale_core.kv.pieces import MAX_ROWS
from inferscale_core.kv.rows import LayerShape, RowLayout, row_layout
from inferscale_core.memory.recipes import Storage, storage_by_name

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

DEFAULT_ARENA_BYTES = 1 << 30
DEFAULT_PAGE_TOKENS = 4

GPU_BLOCK_SIZE = 128
"""Tokens of a block that we ask of an engine on a GPU. What a request costs its scheduler grows
with the number of blocks, most of all that of an injected one, whose blocks are all new. The CPU's
engine takes as many by itself."""


CACHE_DTYPES = ("auto", "bfloat16", "float16", "float32", "fp8", "fp8_e4m3")
"""Of the engine's cache. "auto" may still turn out as fp8, when the checkpoint says so."""


@dataclass(frozen=True, slots=True)
class ConnectorConfig:
    """layer_names: layers with a KV cache, in order; `layers` are their shapes on this rank, and
    `group_of_layer` the KV cache group whose block table they follow. windows: for each group the
    tokens that its layers look back, None for all.

    dtype: of the engine's cache; storage: what our rows hold of it. num_pages: pages of the arena
    on each rank. event_endpoint: zmq endpoint of the worker service,
    or None, and then events are kept for whoever asks in the same process.
    """

    layer_names: tuple[str, ...]
    layers: tuple[LayerShape, ...]
    group_of_layer: tuple[int, ...]
    windows: tuple[int | None, ...]
    dtype: torch.dtype
    block_size: int
    page_tokens: int
    num_pages: int
    event_endpoint: str | None
    storage: Storage = Storage.CACHE

    @property
    def num_rows(self) -> int:
        return self.num_pages * self.page_tokens

    @property
    def row_layout(self) -> RowLayout:
        return row_layout(self.layers, self.dtype, self.storage)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of an arena row."""
        return self.row_layout.row_bytes


def read_config(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> ConnectorConfig:
    """Raises Unsupported by name, InvalidInput for a setting out of range."""
    _refuse_engine_settings(vllm_config)
    groups = kv_cache_config.kv_cache_groups
    names = tuple(name for group in groups for name in group.layer_names)
    specs = [_layer_spec(group.kv_cache_spec, n) for group in groups for n in group.layer_names]
    for name, spec in zip(names, specs, strict=True):
        _refuse_spec(name, spec)
    block_sizes = {spec.block_size for spec in specs}
    if len(block_sizes) != 1:
        raise Unsupported(f"KV cache groups with different block sizes: {sorted(block_sizes)}")
    layers = tuple(LayerShape(spec.num_kv_heads, spec.head_size) for spec in specs)
    dtypes = {spec.dtype for spec in specs}
    if len(dtypes) != 1:
        raise Unsupported(f"layers with different cache dtypes: {sorted(map(str, dtypes))}")
    extra = vllm_config.kv_transfer_config.kv_connector_extra_config or {}
    page_tokens = _positive(extra, "page_tokens", DEFAULT_PAGE_TOKENS)
    arena_bytes = _positive(extra, "arena_bytes", DEFAULT_ARENA_BYTES)
    dtype = dtypes.pop()
    storage = storage_by_name(extra.get("storage", Storage.CACHE))
    num_pages = arena_bytes // (page_tokens * row_layout(layers, dtype, storage).row_bytes)
    if num_pages < 1:
        raise InvalidInput("engine.arena_bytes", f"{arena_bytes} holds not one page")
    if num_pages * page_tokens > MAX_ROWS:
        raise InvalidInput("engine.arena_bytes", f"{arena_bytes} holds over {MAX_ROWS} tokens")
    return ConnectorConfig(
        layer_names=names,
        layers=layers,
        group_of_layer=tuple(i for i, group in enumerate(groups) for _ in group.layer_names),
        windows=tuple(_window(group.kv_cache_spec) for group in groups),
        dtype=dtype,
        block_size=block_sizes.pop(),
        page_tokens=page_tokens,
        num_pages=num_pages,
        event_endpoint=extra.get("event_endpoint"),
        storage=storage,
    )


def _refuse_engine_settings(vllm_config: VllmConfig) -> None:
    parallel = vllm_config.parallel_config
    refused = {
        "pipeline parallelism": parallel.pipeline_parallel_size > 1,
        "decode context parallelism": getattr(parallel, "decode_context_parallel_size", 1) > 1,
        "prefill context parallelism": getattr(parallel, "prefill_context_parallel_size", 1) > 1,
        "speculative decoding": vllm_config.speculative_config is not None,
        "multi-head latent attention": vllm_config.model_config.use_mla,
        "kv_load_failure_policy=recompute": getattr(
            vllm_config.kv_transfer_config, "kv_load_failure_policy", "fail"
        )
        != "fail",
    }
    for what, is_used in refused.items():
        if is_used:
            raise Unsupported(f"{_model_name(vllm_config)}: {what} is not supported")
    cache_dtype = str(vllm_config.cache_config.cache_dtype)
    if cache_dtype not in CACHE_DTYPES:
        raise Unsupported(f"{_model_name(vllm_config)}: a KV cache of dtype {cache_dtype!r}")


def _window(spec: Any) -> int | None:
    """Only a SlidingWindowSpec gives up blocks; full-attention blocks stay, window or not."""
    if type(spec).__name__ != "SlidingWindowSpec":
        return None
    return int(spec.sliding_window)


def _layer_spec(spec: Any, name: str) -> Any:
    by_layer = getattr(spec, "kv_cache_specs", None)
    return by_layer[name] if by_layer is not None else spec


def _refuse_spec(name: str, spec: Any) -> None:
    kind = type(spec).__name__
    if kind not in ("FullAttentionSpec", "SlidingWindowSpec"):
        raise Unsupported(f"layer {name}: a KV cache of kind {kind}")
    if getattr(spec, "head_size_v", None) not in (None, spec.head_size):
        raise Unsupported(f"layer {name}: keys and values of different head size")
    if spec.dtype not in (torch.bfloat16, torch.float16, torch.float32, torch.uint8):
        raise Unsupported(f"layer {name}: a KV cache of dtype {spec.dtype}")
    mode = getattr(getattr(spec, "kv_quant_mode", None), "name", "NONE")
    if spec.dtype == torch.uint8 and mode != "FP8_PER_TENSOR":
        raise Unsupported(f"layer {name}: a KV cache of mode {mode}")


def _positive(extra: dict[str, Any], name: str, default: int) -> int:
    value = extra.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(f"engine.{name}", f"{value!r} is not a positive integer")
    return value


def _model_name(vllm_config: VllmConfig) -> str:
    return str(vllm_config.model_config.model)
