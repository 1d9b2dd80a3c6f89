"""Moved keys equal what each of vLLM's rotary modules gives for the same un-rotated keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from inferscale_core.errors import Unsupported
from inferscale_core.kv.rope import apply as turn
from inferscale_core.kv.rope import rotation, shift
from inferscale_core.vllm_connector.rotary import check_table, table_of

HEAD_DIM = 64
MAX_POSITIONS = 8192
PLACES = (1, 15, 16, 4095)
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "interleaved": {"is_neox_style": False},
    "partial-25": {"partial_rotary_factor": 0.25},
    "partial-50-interleaved": {"partial_rotary_factor": 0.5, "is_neox_style": False},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 2048,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048},
    "linear": {"rope_type": "linear", "factor": 2.0},
    "dynamic-ntk": {"rope_type": "dynamic", "factor": 4.0},
    "dynamic-ntk-alpha": {"rope_type": "dynamic", "alpha": 1000.0},
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0] * 32,
        "long_factor": [1.0 + 0.2 * i for i in range(32)],
        "original_max_position_embeddings": 2048,
    },
    "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.5},
    "other-base": {"rope_theta": 1_000_000.0},
}


@pytest.fixture(autouse=True)
def _vllm_config() -> Iterator[None]:
    """Rotary modules read the current engine configuration when they are built."""
    from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config

    config = VllmConfig(compilation_config=CompilationConfig(custom_ops=["none"]))
    config.model_config = type("ModelConfig", (), {"max_model_len": MAX_POSITIONS})()  # type: ignore[assignment]
    with set_current_vllm_config(config, check_compile=False):
        yield


def build(variant: str, dtype: torch.dtype) -> torch.nn.Module:
    from vllm.model_executor.layers.rotary_embedding import get_rope

    fields = {"rope_theta": 10_000.0, "rope_type": "default"} | VARIANTS[variant]
    is_neox = fields.pop("is_neox_style", True)
    return get_rope(
        HEAD_DIM, MAX_POSITIONS, is_neox_style=is_neox, rope_parameters=fields, dtype=dtype
    )


def apply(module: torch.nn.Module, key: torch.Tensor, place: int) -> torch.Tensor:
    positions = torch.full((key.shape[0],), place)
    flat = key.reshape(key.shape[0], -1)
    forward = getattr(module, "forward_native", module.forward)
    _, rotated = forward(positions, flat.clone(), flat.clone())
    return rotated.reshape(key.shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_key_computed_anywhere_serves_anywhere(variant: str, dtype: torch.dtype) -> None:
    module = build(variant, dtype)
    table = table_of(module, torch.device("cpu"))
    key = torch.randn(5, 2, HEAD_DIM, generator=torch.Generator().manual_seed(1)).to(dtype)
    tolerance = 1e-4 if dtype == torch.float32 else 2**-5
    for origin in (0, *PLACES):
        stored = apply(module, key, origin)
        for place in PLACES:
            origins, places = torch.full((5,), origin), torch.full((5,), place)
            moved = turn(shift(table, origins, places), stored).float()
            expected = apply(module, key, place).float()
            error = float((moved - expected).abs().max() / expected.abs().max())
            assert error <= tolerance, f"{origin} to {place}: {error}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_key_that_stays_is_bitwise_what_the_engine_wrote(variant: str) -> None:
    module = build(variant, torch.bfloat16)
    table = table_of(module, torch.device("cpu"))
    stored = apply(module, torch.randn(7, 2, HEAD_DIM).to(torch.bfloat16), 4095)
    places = torch.full((7,), 4095)
    assert torch.equal(turn(shift(table, places, places), stored), stored)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_table_rotates_as_the_module_does(variant: str) -> None:
    module = build(variant, torch.float32)
    table = table_of(module, torch.device("cpu"))
    key = torch.randn(4, 2, HEAD_DIM)
    rotated = turn(rotation(table, torch.full((4,), 16)), key)
    torch.testing.assert_close(rotated, apply(module, key, 16), rtol=1e-4, atol=1e-4)
    check_table(module, table, "layer", 4096)


def test_the_halves_are_not_mistaken_for_neighbours() -> None:
    """The control: with the pairing of the other layout the check must fail."""
    module = build("plain", torch.float32)
    table = table_of(build("interleaved", torch.float32), torch.device("cpu"))
    with pytest.raises(Unsupported, match="does not rotate as its table says"):
        check_table(module, table, "model.layers.3.attn", 4096)


def test_a_context_longer_than_the_tables_is_refused() -> None:
    module = build("plain", torch.float32)
    table = table_of(module, torch.device("cpu"))
    with pytest.raises(Unsupported, match="8192 positions, but a context of 9000"):
        check_table(module, table, "layer", 9000)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"mrope_section": [8, 12, 12]}, "MRotaryEmbedding"),
        (
            {
                "rope_type": "deepseek_yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 2048,
            },
            "DeepseekScalingRotaryEmbedding",
        ),
    ],
)
def test_an_unknown_variant_is_refused_by_name(fields: dict[str, Any], name: str) -> None:
    from vllm.model_executor.layers.rotary_embedding import get_rope

    parameters = {"rope_theta": 10_000.0, "rope_type": "default"} | fields
    module = get_rope(HEAD_DIM, MAX_POSITIONS, rope_parameters=parameters, dtype=torch.float32)
    with pytest.raises(Unsupported, match=name):
        table_of(module, torch.device("cpu"))
