from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from inferscale_core.errors import Unsupported
from inferscale_core.settings import EngineSettings
from services.worker.engine.model_files import ModelFiles, find_model, load_tokenizer
from tests.tiny_tokenizers import byte_level, save_with


def model_folder(path: Path, *, config: str = "{}", weights: bytes = b"weights") -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(config)
    (path / "model.safetensors").write_bytes(weights)
    return path


def revision(folder: Path, dtype: Literal["auto", "float32"] = "auto") -> str:
    return find_model(EngineSettings(model=str(folder), dtype=dtype)).revision


def test_a_revision_names_the_model_and_what_its_weights_are(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "tiny")
    first = revision(folder)
    assert first.startswith("tiny@")
    assert revision(folder) == first
    assert revision(folder, "float32") != first
    over_fp8 = EngineSettings(model=str(folder), kv_cache_dtype="fp8")
    assert find_model(over_fp8).revision != first, "other KV of the same weights"
    assert revision(model_folder(folder, weights=b"others!")) != first
    assert revision(model_folder(folder, config=json.dumps({"a": 1}))) != first


def test_tenants_use_the_name_that_settings_give(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "tiny")
    model = find_model(EngineSettings(model=str(folder), served_name="ours"))
    assert (model.served_name, model.folder) == ("ours", folder)


def test_a_model_that_is_not_there_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unsupported, match="no/such/model/here"):
        find_model(EngineSettings(model="no/such/model/here"))


def test_the_tokenizer_beside_the_weights_is_loaded(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "tiny", config=json.dumps({"model_type": "llama"}))
    save_with(byte_level(), folder)
    tokenizer = load_tokenizer(find_model(EngineSettings(model=str(folder))))
    assert tokenizer.chat_template
    assert tokenizer.encode("a", add_special_tokens=False)
    assert isinstance(find_model(EngineSettings(model=str(folder))), ModelFiles)
