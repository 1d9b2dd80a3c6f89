from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from inferscale_core.ids import ModelRevision
from inferscale_core.memory.recipes import Recipe
from inferscale_core.prompt import PromptFormat
from inferscale_core.settings import WorkerSettings
from services.worker.app import WorkerParts, build_parts
from services.worker.engine.mirror import DirectoryMirror
from services.worker.engine.model_files import ModelFiles
from services.worker.engine.reports import Reports
from tests.tiny_tokenizers import byte_level
from tests.worker.control import MemoryControl, WordEmbedder
from tests.worker.fake_engine import FakeEngine

RECIPE = Recipe("test", num_neighbours=3, max_fact_tokens=120)
TOKENIZER = byte_level()


@dataclass
class FakeWorker:
    """A worker's use cases over a fake engine and a control in memory."""

    parts: WorkerParts
    engine: FakeEngine
    control: MemoryControl
    mirror: DirectoryMirror
    reports: Reports


MakeWorker = Callable[..., FakeWorker]


@pytest.fixture
def make_worker() -> MakeWorker:
    def make(
        recipe: Recipe = RECIPE, settings: WorkerSettings | None = None, **engine: Any
    ) -> FakeWorker:
        mirror, reports, control = DirectoryMirror(), Reports(), MemoryControl()
        fake = FakeEngine(mirror, reports, **engine)
        parts = build_parts(
            settings or WorkerSettings(),
            fake,
            ModelFiles(Path(), "tiny", ModelRevision("tiny@1")),
            recipe,
            PromptFormat(TOKENIZER, recipe),
            WordEmbedder(),
            control,
            mirror,
            reports,
            device=torch.device("cpu"),
        )
        return FakeWorker(parts, fake, control, mirror, reports)

    return make


@pytest.fixture
def worker(make_worker: MakeWorker) -> FakeWorker:
    return make_worker()
