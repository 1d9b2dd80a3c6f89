"""What cannot be supported is refused before anything is served, by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVQuantMode,
    MambaSpec,
    SlidingWindowSpec,
)

from inferscale_core.errors import InvalidInput, Unsupported
from inferscale_core.vllm_connector.config import read_config

SHAPE = {"block_size": 16, "num_kv_heads": 2, "head_size": 64, "dtype": torch.bfloat16}


def engine(**changes: Any) -> Any:
    """changes: dotted names, for example `parallel_config.pipeline_parallel_size`."""
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(pipeline_parallel_size=1),
        speculative_config=None,
        model_config=SimpleNamespace(use_mla=False, model="some/model"),
        cache_config=SimpleNamespace(cache_dtype="auto"),
        kv_transfer_config=SimpleNamespace(
            kv_connector_extra_config={"arena_bytes": 1 << 20}, kv_load_failure_policy="fail"
        ),
    )
    for name, value in changes.items():
        *path, last = name.split("__")
        target = config
        for part in path:
            target = getattr(target, part)
        setattr(target, last, value)
    return config


def caches(*specs: Any) -> KVCacheConfig:
    groups = [KVCacheGroupSpec([f"layer.{i}", f"layer.{i}b"], spec) for i, spec in enumerate(specs)]
    return KVCacheConfig(num_blocks=10, kv_cache_tensors=[], kv_cache_groups=groups)


def test_the_arena_follows_from_the_engine() -> None:
    config = read_config(engine(), caches(FullAttentionSpec(**SHAPE)))
    assert config.bytes_per_token == 2 * 2 * 2 * 64 * 2
    assert config.num_pages == (1 << 20) // (config.bytes_per_token * config.page_tokens)
    assert config.block_size == 16


@pytest.mark.parametrize(
    ("storage", "bytes_of_a_head"), [("cache", 128), ("int8", 66), ("fp8", 66), ("int4", 36)]
)
def test_a_smaller_row_gives_more_pages(storage: str, bytes_of_a_head: int) -> None:
    extra = {"arena_bytes": 1 << 20, "storage": storage}
    changed = engine(kv_transfer_config__kv_connector_extra_config=extra)
    config = read_config(changed, caches(FullAttentionSpec(**SHAPE)))
    part = 2 * 2 * bytes_of_a_head
    assert config.bytes_per_token == 2 * (-(-part // 16) * 16)
    assert config.num_pages == (1 << 20) // (config.bytes_per_token * config.page_tokens)


def test_an_unknown_storage_names_the_setting_and_what_there_is() -> None:
    extra = {"arena_bytes": 1 << 20, "storage": "int2"}
    with pytest.raises(InvalidInput, match=r"recipe\.storage.*'int2'.*cache, fp8, int8, int4"):
        read_config(
            engine(kv_transfer_config__kv_connector_extra_config=extra),
            caches(FullAttentionSpec(**SHAPE)),
        )


def test_bytes_in_a_cache_are_taken_only_as_fp8_with_one_scale_for_a_layer() -> None:
    shape = SHAPE | {"dtype": torch.uint8}
    taken = FullAttentionSpec(**shape, kv_quant_mode=KVQuantMode.FP8_PER_TENSOR)
    config = read_config(engine(cache_config__cache_dtype="fp8"), caches(taken))
    assert config.bytes_per_token == 2 * 2 * 2 * 64
    refused = FullAttentionSpec(**shape, kv_quant_mode=KVQuantMode.INT8_PER_TOKEN_HEAD)
    with pytest.raises(Unsupported, match="INT8_PER_TOKEN_HEAD"):
        read_config(engine(), caches(refused))


@pytest.mark.parametrize(
    ("change", "value", "words"),
    [
        ("parallel_config__pipeline_parallel_size", 2, "pipeline parallelism"),
        ("parallel_config__decode_context_parallel_size", 2, "decode context parallelism"),
        ("speculative_config", object(), "speculative decoding"),
        ("model_config__use_mla", True, "multi-head latent attention"),
        ("cache_config__cache_dtype", "fp8_e5m2", "dtype 'fp8_e5m2'"),
        ("kv_transfer_config__kv_load_failure_policy", "recompute", "recompute"),
    ],
)
def test_engine_settings_are_refused_by_name(change: str, value: Any, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        read_config(engine(**{change: value}), caches(FullAttentionSpec(**SHAPE)))


def test_layers_keep_to_the_block_table_of_their_group() -> None:
    specs = FullAttentionSpec(**SHAPE), SlidingWindowSpec(**SHAPE, sliding_window=128)
    config = read_config(engine(), caches(*specs))
    assert config.layer_names == ("layer.0", "layer.0b", "layer.1", "layer.1b")
    assert config.group_of_layer == (0, 0, 1, 1)
    assert config.windows == (None, 128)


def test_groups_with_different_block_sizes_are_refused() -> None:
    specs = FullAttentionSpec(**SHAPE), FullAttentionSpec(**SHAPE | {"block_size": 32})
    with pytest.raises(Unsupported, match=r"different block sizes: \[16, 32\]"):
        read_config(engine(), caches(*specs))


def test_a_state_space_cache_is_refused() -> None:
    spec = MambaSpec(block_size=16, shapes=((4, 4),), dtypes=(torch.float32,))
    with pytest.raises(Unsupported, match="MambaSpec"):
        read_config(engine(), caches(spec))


@pytest.mark.parametrize("value", [0, -1, "1GB", True])
def test_an_arena_of_no_size_names_the_setting(value: Any) -> None:
    extra = {"arena_bytes": value}
    with pytest.raises(InvalidInput, match=r"engine\.arena_bytes"):
        read_config(
            engine(kv_transfer_config__kv_connector_extra_config=extra),
            caches(FullAttentionSpec(**SHAPE)),
        )


@pytest.mark.parametrize(
    ("value", "problem"), [(64, "holds not one page"), (1 << 60, "holds over 2147483648 tokens")]
)
def test_an_arena_too_small_or_too_large_names_the_setting(value: int, problem: str) -> None:
    with pytest.raises(InvalidInput, match=rf"engine\.arena_bytes: {value} {problem}"):
        read_config(
            engine(kv_transfer_config__kv_connector_extra_config={"arena_bytes": value}),
            caches(FullAttentionSpec(**SHAPE)),
        )
