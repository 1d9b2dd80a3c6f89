"""Models whose keys we cannot move are refused when the engine starts, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferscale_core.errors import Unsupported
from tests.engine_kit import TinyEngine
from tests.tiny_models import VOCAB, TinyModel

pytestmark = pytest.mark.engine

SHAPE = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
GPT2 = TinyModel(
    "gpt2-learned-positions",
    "gpt2",
    {"n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 1024, "vocab_size": VOCAB},
    drop=(*SHAPE, "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps"),
)


def test_learned_positions_are_refused_by_the_attention_class(model_folder: Path) -> None:
    with pytest.raises(Unsupported, match="attention class GPT2Attention"):
        TinyEngine(
            GPT2.save(model_folder), "float32", max_model_len=512, max_num_batched_tokens=512
        )
