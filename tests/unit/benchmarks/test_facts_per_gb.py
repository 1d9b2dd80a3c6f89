"""What a rank holds of a fact, by the layout of its rows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import ModelConfig

from benchmarks.facts_per_gb import figures, layers_of
from benchmarks.gpu.shapes import SHAPES, write_config
from inferscale_core.kv.rows import PART_ALIGNMENT, LayerShape, row_layout


@pytest.mark.parametrize("model", SHAPES)
def test_a_rank_has_as_many_heads_as_vllm_gives_it(model: str, tmp_path: Path) -> None:
    config = ModelConfig(model=str(write_config(model, tmp_path)), skip_tokenizer_init=True)
    for ranks in (1, 2, 4, 8, 16):
        parallel: Any = SimpleNamespace(tensor_parallel_size=ranks)
        shape = LayerShape(config.get_num_kv_heads(parallel), config.get_head_size())
        assert set(layers_of(model, ranks)) == {shape}


@pytest.mark.parametrize("model", SHAPES)
def test_a_rank_of_two_holds_half_and_what_rounding_adds(model: str) -> None:
    found = {
        (row["ranks"], row["dtype"]): row["bytes_per_token"]
        for row in figures()
        if row["model"] == model
    }
    rounding = PART_ALIGNMENT * SHAPES[model]["num_hidden_layers"]
    assert found[2, "bf16"] * 2 == found[1, "bf16"]
    for storage in ("fp8", "int8", "int4"):
        assert found[1, storage] <= found[2, storage] * 2 < found[1, storage] + 2 * rounding


def test_ranks_that_outnumber_the_heads_hold_as_much_as_with_fewer() -> None:
    four, eight = (row_layout(layers_of("Qwen2.5-7B", n), torch.bfloat16) for n in (4, 8))
    assert four.layers[0].num_kv_heads == 1
    assert eight.row_bytes == four.row_bytes
