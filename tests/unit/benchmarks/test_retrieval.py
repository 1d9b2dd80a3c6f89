"""The benchmark of retrieval refuses to time what does not find the right facts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.gpu import corpus, retrieval
from inferscale_core.embedding import DeviceEmbedder, EmbedderIdentity
from inferscale_core.embedding.embedder import HostEmbedder, Vectors
from inferscale_core.retrieval import SearchDevice

CPU = torch.device("cpu")
QUESTIONS = corpus.questions(32)


class Turned(HostEmbedder):
    """Another's vectors, turned by some angle."""

    def __init__(self, embedder: DeviceEmbedder, amount: float) -> None:
        self._embedder = embedder
        self._amount = amount

    @property
    def identity(self) -> EmbedderIdentity:
        return self._embedder.identity

    @property
    def max_tokens(self) -> int:
        return self._embedder.max_tokens

    def count_tokens(self, text: str) -> int:
        return self._embedder.count_tokens(text)

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = self._embedder.embed(texts)
        noise = np.random.default_rng(0).normal(size=vectors.shape).astype(np.float32)
        turned = vectors + self._amount * noise / np.linalg.norm(noise, axis=1, keepdims=True)
        units: Vectors = turned / np.linalg.norm(turned, axis=1, keepdims=True)
        return units


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> DeviceEmbedder:
    return corpus.embedder(corpus.RANDOM, "cpu", tmp_path_factory.mktemp("embedder"))


@pytest.fixture(scope="module")
def rows(embedder: DeviceEmbedder) -> torch.Tensor:
    return torch.from_numpy(embedder.embed(corpus.facts(80)))


def test_a_random_embedder_has_the_shape_of_the_packaged_one(embedder: DeviceEmbedder) -> None:
    assert embedder.identity.dimension == 384
    assert embedder.max_tokens == 256
    assert embedder.embed(QUESTIONS[:2]).shape == (2, 384)


def test_figures_come_with_their_check_and_their_floor(embedder: DeviceEmbedder) -> None:
    figures: list[dict[str, Any]] = []
    retrieval.measure(embedder, embedder, [60, 40], QUESTIONS, CPU, figures.append)
    assert [figure["facts"] for figure in figures] == [40] * 3 + [60] * 3
    for figure in figures:
        assert 0 < figure["floor"] < figure["ms"] <= figure["ms_p95"]
        assert figure["cosine_to_float32"] > 0.9999


def test_vectors_a_little_off_are_told_and_far_off_refused(
    embedder: DeviceEmbedder, rows: torch.Tensor
) -> None:
    searched = retrieval.index(rows, SearchDevice(CPU, 1 << 20))
    near = retrieval.check(Turned(embedder, 1e-5), embedder, searched, QUESTIONS)
    assert 0.9999 < near["cosine_to_float32"] < 1
    with pytest.raises(AssertionError, match="cosine"):
        retrieval.check(Turned(embedder, 0.1), embedder, searched, QUESTIONS)


def test_a_device_that_holds_other_rows_is_refused(
    embedder: DeviceEmbedder, rows: torch.Tensor
) -> None:
    searched = retrieval.index(rows, SearchDevice(CPU, 1 << 20))
    searched.on_device()[3] = -searched.on_device()[3]
    with pytest.raises(AssertionError, match="on the device"):
        retrieval.check(embedder, embedder, searched, QUESTIONS)


def test_the_packaged_embedder_is_saved_small_and_gives_the_same_vectors(tmp_path: Path) -> None:
    corpus.save(tmp_path / "half")
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 50e6
    half = corpus.embedder(str(tmp_path / "half"), "cpu", tmp_path)
    packaged = corpus.embedder("packaged", "cpu", tmp_path)
    dots = (half.embed(QUESTIONS) * packaged.embed(QUESTIONS)).sum(axis=1)
    assert dots.min() > 0.9999
