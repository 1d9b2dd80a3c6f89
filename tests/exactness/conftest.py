from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine_kit import TinyEngine
from tests.tiny_models import LLAMA, MODELS

DTYPES = ("float32", "bfloat16")


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(
    scope="module",
    params=[(m.name, dtype) for m in MODELS.values() if m.is_native for dtype in DTYPES],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def engine(request: pytest.FixtureRequest, model_folder: Path) -> Iterator[TinyEngine]:
    """Every model in every dtype, one after the other: a process holds one engine at a time."""
    name, dtype = request.param
    engine = TinyEngine(MODELS[name].save(model_folder), dtype)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def llama(model_folder: Path) -> Iterator[TinyEngine]:
    """One Llama in float32 for what does not depend on the model."""
    engine = TinyEngine(LLAMA.save(model_folder), "float32")
    yield engine
    engine.close()


@pytest.fixture(scope="module", params=[True, False], ids=["prefix-caching", "no-prefix-caching"])
def tight(model_folder: Path, request: pytest.FixtureRequest) -> Iterator[TinyEngine]:
    """A cache of few blocks and an arena of few pages, so that both run out."""
    engine = TinyEngine(
        LLAMA.save(model_folder),
        "float32",
        num_gpu_blocks_override=16,
        max_model_len=384,
        max_num_seqs=8,
        max_num_batched_tokens=384,
        arena_bytes=1536 * 400,
        enable_prefix_caching=request.param,
    )
    yield engine
    engine.close()
