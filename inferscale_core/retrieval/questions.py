"""From questions to the nearest facts, without a wait between embedding and search."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

from inferscale_core.embedding import DeviceEmbedder
from inferscale_core.embedding.embedder import SMALLEST_NORM
from inferscale_core.errors import InvalidInput
from inferscale_core.ids import FactId
from inferscale_core.retrieval.sharing import SharedPasses
from inferscale_core.retrieval.similarity import on_steps
from inferscale_core.retrieval.vectors import FactVectors

MAX_QUESTIONS = 16
"""Questions of one pass: as many texts as the embedder's largest recorded shape takes."""


@dataclass(frozen=True, slots=True)
class Question:
    """text: no longer than the embedder reads."""

    text: str
    vectors: FactVectors
    limit: int


@dataclass(frozen=True, slots=True)
class Found:
    """facts: most similar first, with the cosine. embedded: by `time.perf_counter`, when the
    device had been told to embed; on a GPU it does so later, just before it searches."""

    facts: list[tuple[FactId, float]]
    embedded: float


class QuestionSearch:
    """Questions of any users that come at once share a pass, which waits for the device once.

    Every wait costs: a GPU that generates at the same time gives this process its turn by the
    millisecond, and each launch takes longer than what it launches. Safe to call from several
    threads; slow, so never call it on an event loop.
    """

    def __init__(self, embedder: DeviceEmbedder) -> None:
        self._embedder = embedder
        self._shared: SharedPasses[Question, Found] = SharedPasses(self._run, MAX_QUESTIONS)

    def nearest(self, text: str, vectors: FactVectors, limit: int) -> Found:
        """The `limit` facts most similar to a text of no more tokens than the embedder reads.

        Raises InvalidInput when the model gives a zero, NaN or infinite vector.
        """
        return self._shared(Question(text, vectors, limit))

    def _run(self, questions: Sequence[Question]) -> list[Found | InvalidInput]:
        with self._embedder.on_device([question.text for question in questions]) as vectors:
            embedded = time.perf_counter()
            vectors = vectors.double()
            norms = vectors.norm(dim=-1)
            exact = on_steps((vectors / norms[:, None]).float())
            parts = [norms.view(torch.int64)]
            for question, query in zip(questions, exact, strict=True):
                parts.append(question.vectors.ranked(query, question.limit).to(norms.device))
            # Here the device is waited for.
            numbers = torch.cat(parts).cpu()
        lengths = numbers[: len(questions)].view(torch.float64).tolist()
        ends = accumulate(map(len, parts))
        rankings = (numbers[begin:end] for begin, end in pairwise(ends))
        return [
            Found(question.vectors.named(ranking), embedded)
            if SMALLEST_NORM <= length < float("inf")
            else InvalidInput("embedding", f"the question's vector has a norm of {length}")
            for question, length, ranking in zip(questions, lengths, rankings, strict=True)
        ]
