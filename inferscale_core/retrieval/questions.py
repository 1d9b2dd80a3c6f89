"""From questions to the nearest facts, without a wait between embedding and search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

from inferscale_core.embedding import DeviceEmbedder
from inferscale_core.embedding.buckets import BATCHES
from inferscale_core.embedding.embedder import SMALLEST_NORM
from inferscale_core.errors import InvalidInput
from inferscale_core.ids import FactId
from inferscale_core.kernels.rank.reference import rank
from inferscale_core.retrieval.sharing import SharedPasses
from inferscale_core.retrieval.similarity import on_steps
from inferscale_core.retrieval.vectors import FactVectors

Ranker = Callable[[torch.Tensor, Sequence[torch.Tensor], int], torch.Tensor]
"""As `kernels.rank.reference.rank`."""

MAX_QUESTIONS = BATCHES[-1]
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


@dataclass(frozen=True, slots=True)
class _Answer:
    """numbers: the ranking where `is_ranked`, else the exact query, in host memory."""

    numbers: torch.Tensor
    is_ranked: bool
    embedded: float


class QuestionSearch:
    """Questions of any users that come at once are embedded in one pass. On a GPU rows that are
    there are searched in it too, and the GPU is waited for once.

    Every wait for it costs: a GPU that generates at the same time gives this process its turn by
    the millisecond, and each launch takes longer than what it launches. What is searched on the
    host, each caller searches in its own thread. Safe to call from several threads; slow, so never
    call it on an event loop.
    """

    def __init__(self, embedder: DeviceEmbedder) -> None:
        self._embedder = embedder
        self._shared: SharedPasses[Question, _Answer] = SharedPasses(self._run, MAX_QUESTIONS)
        self._rank: Ranker = rank
        if embedder.device.type == "cuda":
            from inferscale_core.kernels.rank.launch import Rank

            self._rank = Rank(embedder.device, MAX_QUESTIONS)
            vectors = torch.zeros(1, embedder.identity.dimension, device=embedder.device)
            self._rank(vectors, [vectors], 1).cpu()  # Compiles it, so that no question waits.

    def nearest(self, text: str, vectors: FactVectors, limit: int) -> Found:
        """The `limit` facts most similar to a text of no more tokens than the embedder reads.

        Raises InvalidInput when the model gives a zero, NaN or infinite vector.
        """
        answer = self._shared(Question(text, vectors, limit))
        ranking = answer.numbers
        if not answer.is_ranked:
            ranking = vectors.ranked(ranking.view(torch.float64), limit).cpu()
        return Found(vectors.named(ranking), answer.embedded)

    def _run(self, questions: Sequence[Question]) -> list[_Answer | InvalidInput]:
        texts = [question.text for question in questions]
        with self._embedder.on_device(texts) as vectors, _finished_on_error(vectors):
            embedded = time.perf_counter()
            on_gpu = _is_on_gpu(vectors)
            ranked_here = [on_gpu and question.vectors.is_on_device for question in questions]
            exact_vectors = vectors.double()
            norms = exact_vectors.norm(dim=-1)
            exact = on_steps((exact_vectors / norms[:, None]).float())
            rankings = self._ranked_together(questions, exact, ranked_here)
            parts = [norms.view(torch.int64)]
            for place, (question, query) in enumerate(zip(questions, exact, strict=True)):
                if place in rankings:
                    parts.append(rankings[place])
                elif ranked_here[place]:
                    parts.append(question.vectors.ranked(query, question.limit))
                else:
                    parts.append(query.view(torch.int64))
            numbers = torch.cat(parts).cpu()  # Here the device is waited for.
        lengths = numbers[: len(questions)].view(torch.float64).tolist()
        ends = accumulate(map(len, parts))
        found = (numbers[begin:end] for begin, end in pairwise(ends))
        return [
            _Answer(own, is_ranked, embedded)
            if SMALLEST_NORM <= length < float("inf")
            else InvalidInput("embedding", f"the question's vector has a norm of {length}")
            for length, own, is_ranked in zip(lengths, found, ranked_here, strict=True)
        ]

    def _ranked_together(
        self, questions: Sequence[Question], exact: torch.Tensor, ranked_here: Sequence[bool]
    ) -> dict[int, torch.Tensor]:
        """By place the rankings of those whose facts a number can tell apart, in one launch or, for
        more rows than the device is to hold, a few."""
        few = {
            place: question
            for place, question in enumerate(questions)
            if ranked_here[place] and question.vectors.has_few_facts
        }
        rankings: dict[int, torch.Tensor] = {}
        for places in _that_fit(few):
            rows = [few[place].vectors.on_device() for place in places]
            queries = torch.stack([exact[place] for place in places]).float()
            limits = [few[place].limit for place in places]
            ranked = self._rank(queries, rows, max(limits))
            for place, own, table, limit in zip(places, ranked, rows, limits, strict=True):
                rankings[place] = own[: min(limit, len(table))]
        return rankings


def _that_fit(questions: Mapping[int, Question]) -> Iterator[list[int]]:
    """The keys in order, of as many as whose rows the device has room for together."""
    places: list[int] = []
    room = 0
    for place, question in questions.items():
        num_bytes = question.vectors.rows.capacity_bytes
        if places and num_bytes > room:
            yield places
            places = []
        if not places:
            room = question.vectors.device.max_bytes
        places.append(place)
        room -= num_bytes
    if places:
        yield places


@contextmanager
def _finished_on_error(vectors: torch.Tensor) -> Iterator[None]:
    """Before an error is raised the device has read what the next pass writes."""
    try:
        yield
    except BaseException:
        if vectors.is_cuda:
            torch.cuda.current_stream(vectors.device).synchronize()
        raise


def _is_on_gpu(vectors: torch.Tensor) -> bool:
    return vectors.is_cuda
