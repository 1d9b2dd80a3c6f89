"""What the engine is started with, of what an operator set."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferscale_core.ids import ModelRevision
from inferscale_core.memory.recipes import Storage
from inferscale_core.settings import EngineSettings
from services.worker.engine.host import _engine_arguments
from services.worker.engine.model_files import ModelFiles


@pytest.fixture
def model(tmp_path: Path) -> ModelFiles:
    """A folder that exists: vLLM asks a hub for any other path when it may not go online."""
    return ModelFiles(tmp_path, "tiny", ModelRevision("tiny@1"))


@pytest.mark.parametrize("storage", Storage)
def test_the_connector_is_told_the_recipes_storage(model: ModelFiles, storage: Storage) -> None:
    arguments = _engine_arguments(EngineSettings(), model, "inproc://events", storage, {})
    extra = arguments.kv_transfer_config.kv_connector_extra_config
    assert extra["storage"] == str(storage)
    assert arguments.kv_cache_dtype == "auto"


def test_the_dtype_of_the_engines_cache_is_what_is_set(model: ModelFiles) -> None:
    settings = EngineSettings(kv_cache_dtype="fp8")
    arguments = _engine_arguments(settings, model, "inproc://events", Storage.CACHE, {})
    assert arguments.kv_cache_dtype == "fp8"


@pytest.mark.parametrize("block_size", [None, 32])
def test_the_engines_blocks_are_as_large_as_is_set(
    model: ModelFiles, block_size: int | None
) -> None:
    settings = EngineSettings(block_size=block_size)
    arguments = _engine_arguments(settings, model, "inproc://events", Storage.CACHE, {})
    assert arguments.block_size == block_size
