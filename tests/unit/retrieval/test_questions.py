"""Questions that share a pass find what each finds alone."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ClassVar

import pytest
import torch

from inferscale_core.embedding import DeviceEmbedder, load_embedder
from inferscale_core.embedding.embedder import LentVectors
from inferscale_core.errors import InvalidInput
from inferscale_core.ids import FactId
from inferscale_core.retrieval import SearchDevice, questions, vectors
from inferscale_core.retrieval.questions import Question, QuestionSearch
from inferscale_core.retrieval.vectors import FactVectors
from inferscale_core.settings import EmbedderSettings
from tests.worker.control import DIMENSION, WordEmbedder

TOPICS = ("dogs", "chess", "rain", "Bologna", "violins", "the alarm", "her sister", "bread")
QUESTIONS = [f"Does user {n} like {topic}?" for n, topic in enumerate(TOPICS * 2)]
NOWHERE = "a text without a direction"


class NamedVectors(WordEmbedder):
    """Some texts have vectors of their own."""

    def __init__(self, vector_by_text: Mapping[str, torch.Tensor]) -> None:
        self._vector_by_text = vector_by_text

    @contextmanager
    def on_device(self, texts: Sequence[str]) -> Iterator[torch.Tensor]:
        rows = torch.from_numpy(self.embed(texts))
        for row, text in zip(rows, texts, strict=True):
            row[:] = self._vector_by_text.get(text, row)
        yield rows


def users_of(embedder: DeviceEmbedder, device: SearchDevice, num_facts: int) -> list[FactVectors]:
    """As many as there are questions; each with as many facts more than the one before."""
    lines = [f"Someone likes {topic}, they say {n} times." for n in range(30) for topic in TOPICS]
    rows = torch.from_numpy(embedder.embed(lines))
    empty = FactVectors.empty(embedder.identity.dimension, device)
    return [
        empty.replaced((), [FactId(f"u{user}f{n:04}") for n in range(size)], rows[:size])
        for user, size in enumerate(range(num_facts, num_facts + len(QUESTIONS)))
    ]


def ask_at_once(
    search: QuestionSearch, users: Sequence[FactVectors], limit: int
) -> list[list[tuple[FactId, float]]]:
    barrier = threading.Barrier(len(QUESTIONS))

    def ask(question: str, user: FactVectors) -> list[tuple[FactId, float]]:
        barrier.wait(10)
        return search.nearest(question, user, limit).facts

    with ThreadPoolExecutor(len(QUESTIONS)) as pool:
        return list(pool.map(ask, QUESTIONS, users))


@pytest.mark.parametrize("max_bytes", [0, 1 << 20, 40_000], ids=["host", "device", "some of each"])
@pytest.mark.parametrize("max_ranked_rows", [1 << 14, 0], ids=["one number", "two"])
@pytest.mark.parametrize("is_on_gpu", [False, True])
def test_users_who_ask_at_once_find_what_each_finds_alone(
    max_bytes: int, max_ranked_rows: int, is_on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "MAX_RANKED_ROWS", max_ranked_rows)
    monkeypatch.setattr(questions, "_is_on_gpu", lambda _: is_on_gpu)
    embedder = WordEmbedder()
    users = users_of(embedder, SearchDevice(torch.device("cpu"), max_bytes), num_facts=150)
    found = ask_at_once(QuestionSearch(embedder), users, limit=7)
    queries = torch.from_numpy(embedder.embed(QUESTIONS))
    assert found == [user.nearest(query, 7) for user, query in zip(users, queries, strict=True)]
    assert {len(facts) for facts in found} == {7}


def test_the_real_model_finds_what_its_vectors_find() -> None:
    embedder = load_embedder(EmbedderSettings(device="cpu"))
    users = users_of(embedder, SearchDevice.host(), num_facts=40)
    found = ask_at_once(QuestionSearch(embedder), users, limit=5)
    queries = torch.from_numpy(embedder.embed(QUESTIONS))
    for facts, user, query in zip(found, users, queries, strict=True):
        wanted = user.nearest(query, 5)
        # Padding to the longest text of a pass moves a vector by rounding, which may swap two.
        assert [score for _, score in facts] == pytest.approx([s for _, s in wanted], abs=1e-5)
        assert {fact_id for fact_id, _ in facts[:3]} <= {fact_id for fact_id, _ in wanted}


def test_only_what_is_asked_is_embedded() -> None:
    """An embedder may know the vectors of prepared questions alone."""

    class Counted(WordEmbedder):
        asked: ClassVar[list[str]] = []

        def on_device(self, texts: Sequence[str]) -> LentVectors:
            self.asked.extend(texts)
            return super().on_device(texts)

    embedder = Counted()
    user = users_of(embedder, SearchDevice.host(), num_facts=3)[0]
    QuestionSearch(embedder).nearest(QUESTIONS[0], user, 1)
    assert embedder.asked == [QUESTIONS[0]]


def test_facts_of_one_user_only_are_found_and_no_more_than_there_are() -> None:
    embedder = WordEmbedder()
    users = users_of(embedder, SearchDevice.host(), num_facts=3)
    for number, facts in enumerate(ask_at_once(QuestionSearch(embedder), users, limit=8)):
        assert len(facts) == min(8, 3 + number)
        assert {fact_id.split("f")[0] for fact_id, _ in facts} == {f"u{number}"}


@pytest.mark.parametrize("bad", [0.0, 1e-9, torch.nan, torch.inf])
def test_a_question_without_a_direction_is_refused_alone(bad: float) -> None:
    embedder = NamedVectors({NOWHERE: torch.full((DIMENSION,), bad)})
    user = users_of(embedder, SearchDevice.host(), num_facts=20)[0]
    search = QuestionSearch(embedder)
    with pytest.raises(InvalidInput, match="embedding") as refused:
        search.nearest(NOWHERE, user, 5)
    assert NOWHERE not in str(refused.value)
    shared = search._run(
        [Question(text, user, 5) for text in (QUESTIONS[0], NOWHERE, QUESTIONS[1])]
    )
    assert [isinstance(outcome, InvalidInput) for outcome in shared] == [False, True, False]
    alone = search.nearest(QUESTIONS[1], user, 5).facts
    query = torch.from_numpy(embedder.embed([QUESTIONS[1]])[0])
    assert alone == user.nearest(query, 5)


def test_on_a_host_each_caller_searches_in_its_own_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A small memory does not wait for the search of a large one that was asked for beside it."""
    embedder = WordEmbedder()
    users = users_of(embedder, SearchDevice.host(), num_facts=20)
    threads, ranked = {}, FactVectors.ranked

    def seen(self: FactVectors, query: torch.Tensor, limit: int) -> torch.Tensor:
        threads[self.ids[0]] = threading.get_ident()
        return ranked(self, query, limit)

    monkeypatch.setattr(FactVectors, "ranked", seen)
    ask_at_once(QuestionSearch(embedder), users, limit=5)
    assert len(set(threads.values())) == len(users)


def test_a_pass_of_users_of_all_kinds_finds_what_each_finds_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without facts, with fewer than are asked for, with more than one number tells apart, with
    more than the device takes; and more together than it has room for."""
    monkeypatch.setattr(vectors, "MAX_RANKED_ROWS", 100)
    monkeypatch.setattr(questions, "_is_on_gpu", lambda _: True)
    embedder = WordEmbedder()
    device = SearchDevice(torch.device("cpu"), 4 * 64 * DIMENSION * 4)
    rows = torch.from_numpy(
        embedder.embed([f"They like {t}, {n}." for n in range(40) for t in TOPICS])
    )
    asked = []
    for user, (size, limit) in enumerate(itertools.product((0, 3, 30, 90, 120, 300), (1, 8, 200))):
        ids = [FactId(f"u{user}f{n:04}") for n in range(size)]
        facts = FactVectors.empty(DIMENSION, device).replaced((), ids, rows[:size])
        asked.append(Question(QUESTIONS[user % len(QUESTIONS)], facts, limit))
    assert len({question.vectors.is_on_device for question in asked}) == 2
    search, launched = QuestionSearch(embedder), []
    rank = search._rank

    def seen(queries: torch.Tensor, tables: Sequence[torch.Tensor], limit: int) -> torch.Tensor:
        launched.append(len(tables))
        return rank(queries, tables, limit)

    search._rank = seen
    answers = iter(search._run(asked))
    monkeypatch.setattr(search, "_shared", lambda _: next(answers))
    for question in asked:
        [query] = torch.from_numpy(embedder.embed([question.text]))
        found = search.nearest(question.text, question.vectors, question.limit).facts
        assert found == question.vectors.nearest(query, question.limit)
        assert len(found) == min(question.limit, len(question.vectors.ids))
    assert 1 < len(launched) < sum(launched), "some together, and not all"
