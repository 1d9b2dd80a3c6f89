"""What the engine is started with, of what an operator set."""

from __future__ import annotations

from pathlib import Path

import pytest
from vllm.platforms import current_platform

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


@pytest.mark.parametrize("given", [None, 1 << 28])
def test_on_a_gpu_the_engines_cache_has_the_bytes_that_are_set_or_what_its_share_leaves(
    model: ModelFiles, monkeypatch: pytest.MonkeyPatch, given: int | None
) -> None:
    monkeypatch.setattr(type(current_platform), "is_cpu", lambda self: False)
    settings = EngineSettings(kv_cache_bytes=given, gpu_memory_utilization=0.7)
    arguments = _engine_arguments(settings, model, "inproc://events", Storage.CACHE, {})
    assert arguments.kv_cache_memory_bytes == given
    assert arguments.gpu_memory_utilization == 0.7


@pytest.mark.parametrize(("given", "expected"), [(None, 2 << 30), (1 << 28, 1 << 28)])
def test_on_a_cpu_the_engines_cache_has_the_bytes_that_are_set_or_2_gib(
    model: ModelFiles, given: int | None, expected: int
) -> None:
    settings = EngineSettings(kv_cache_bytes=given)
    arguments = _engine_arguments(settings, model, "inproc://events", Storage.CACHE, {})
    assert arguments.kv_cache_memory_bytes == expected
