"""`inferscale verify` on real engines with tiny models."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferscale_core.memory.recipes import Storage
from services.verification.__main__ import NEGATIVE, main
from services.worker.verdict import Verdict, verdict_from_json
from tests.tiny_models import MODELS, TinyModel
from tests.tiny_tokenizers import byte_level, save_with

pytestmark = pytest.mark.engine


def verify(
    folder: Path, model: TinyModel, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[int, Verdict]:
    path = model.save(folder)
    save_with(byte_level(), path)
    settings = {
        "DTYPE": "float32",
        "MAX_MODEL_LEN": "4096",
        "MAX_NUM_SEQS": "16",
        "KV_CACHE_BYTES": str(96 << 20),
        "ARENA_BYTES": str(32 << 20),
        "ENFORCE_EAGER": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"INFERSCALE_ENGINE__{name}", value)
    out = folder / "verdict.json"
    status = main([str(path), "--out", str(out), *arguments])
    return status, verdict_from_json(out.read_text())


def test_a_model_that_is_served_exactly_passes_with_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, verdict = verify(
        tmp_path, MODELS["qwen2"], monkeypatch, "--storage", "cache,int8", "--questions", "8"
    )
    said = capsys.readouterr().out
    assert (status, verdict.passed) == (0, True), said
    assert [check.name for check in verdict.checks] == [
        "model_is_supported",
        "injection_equals_prefill",
        "a_difference_would_show",
        "recipe_answers_as_text_does",
    ]
    assert verdict.model_revision.startswith("qwen2@")
    found = verdict.found
    assert found["attention"] == ["Qwen2Attention"]
    (rotary,) = found["rotary"]
    assert (rotary["kind"], rotary["layers"], rotary["pairs"]) == ("RotaryEmbedding", 3, "halves")
    assert found["cache_groups"] == [{"layers": 3, "window": None}]
    assert (found["cache_dtype"], found["tensor_parallel_size"]) == ("float32", 1)
    assert (found["key_bias"]["layers"], found["key_bias"]["refused"]) == (3, None)
    assert found["key_bias"]["largest"] > 0
    assert found["key_channel_ratio"] > 1
    assert 0 < found["key_means"]["least_share"] < found["key_means"]["largest_share"] < 1
    means = verdict.means
    assert means is not None
    assert means.digest == found["key_means"]["digest"]
    assert [heads.shape for heads in means.by_layer.values()] == [(2, 32)] * 3
    edges = verdict.checks[1].figures["injected_tokens"]
    block = found["block_size"]
    assert {1, block - 1, block, block + 1} <= set(edges)
    assert verdict.checks[1].figures["same_answers"] == len(edges)
    assert [one.storage for one in verdict.storages] == [Storage.CACHE, Storage.INT8]
    cache, int8 = (one.figures for one in verdict.storages)
    assert (cache["n"], cache["kl_first"], cache["top1"]) == (8, 0.0, 1.0)
    assert 0 < int8["kl_first"] < 0.05
    assert int8["nll_of_others"] == cache["nll"]
    assert "injection_equals_prefill" in said


def test_a_model_that_is_refused_gets_a_negative_verdict_that_names_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned_positions = TinyModel(
        "gpt2",
        "gpt2",
        {"n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 4096, "vocab_size": 512},
        drop=(
            *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
            *("num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps"),
        ),
    )
    status, verdict = verify(tmp_path, learned_positions, monkeypatch)
    assert (status, verdict.passed) == (NEGATIVE, False)
    (check,) = verdict.checks
    assert (check.name, check.passed) == ("model_is_supported", False)
    assert "GPT2Attention" in check.detail
    assert verdict.storages == ()


def test_what_is_no_model_is_an_error_and_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main([str(tmp_path / "nothing"), "--out", str(tmp_path / "v.json")]) == 1
    assert "nothing" in capsys.readouterr().err
    assert not (tmp_path / "v.json").exists()
