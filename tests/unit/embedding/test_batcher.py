from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from inferscale_core.embedding import BatchingEmbedder, EmbedderIdentity
from inferscale_core.embedding.batcher import MAX_TEXTS
from inferscale_core.embedding.embedder import Vectors
from inferscale_core.errors import InvalidInput


class HeldEmbedder:
    """Gives each text's number as its vector. Every pass waits until `go` is set."""

    identity = EmbedderIdentity("held", "1", 1)
    max_tokens = 10

    def __init__(self) -> None:
        self.passes: list[list[str]] = []
        self.started = threading.Semaphore(0)
        self.go = threading.Event()
        self.num_running = 0

    def count_tokens(self, text: str) -> int:
        return len(text)

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.passes.append(list(texts))
        self.num_running += 1
        assert self.num_running == 1, "two passes at once"
        self.started.release()
        assert self.go.wait(10)
        self.num_running -= 1
        if "bad" in texts:
            raise InvalidInput("embedding", "vector is zero")
        if "broken" in texts:
            raise RuntimeError("the device is lost")
        return np.array([[float(text)] for text in texts], dtype=np.float32)


def wait_for(batcher: BatchingEmbedder, count: int) -> None:
    """Until so many callers wait for the running pass."""
    for _ in range(1000):
        if len(batcher._waiting) == count:
            return
        threading.Event().wait(0.005)
    raise AssertionError(f"{len(batcher._waiting)} callers wait, not {count}")


def test_an_idle_embedder_is_asked_at_once() -> None:
    embedder = HeldEmbedder()
    embedder.go.set()
    assert BatchingEmbedder(embedder).embed(["7"]).tolist() == [[7.0]]
    assert embedder.passes == [["7"]]


def test_texts_that_come_during_a_pass_share_the_next_one() -> None:
    embedder = HeldEmbedder()
    batcher = BatchingEmbedder(embedder)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(batcher.embed, ["0"])
        assert embedder.started.acquire(timeout=10)
        others = [pool.submit(batcher.embed, [str(n), str(n + 10)]) for n in range(1, 6)]
        wait_for(batcher, 5)
        embedder.go.set()
        assert first.result(10).tolist() == [[0.0]]
        for n, other in enumerate(others, 1):
            assert other.result(10).tolist() == [[n], [n + 10]]
    assert len(embedder.passes) == 2
    assert len(embedder.passes[1]) == 10


def test_a_pass_takes_no_more_texts_than_its_largest_shape() -> None:
    embedder = HeldEmbedder()
    batcher = BatchingEmbedder(embedder)
    num_others = 2 * MAX_TEXTS + 3
    with ThreadPoolExecutor(num_others + 1) as pool:
        calls = [pool.submit(batcher.embed, ["0"])]
        assert embedder.started.acquire(timeout=10)
        calls += [pool.submit(batcher.embed, [str(n)]) for n in range(1, num_others + 1)]
        wait_for(batcher, num_others)
        embedder.go.set()
        assert [call.result(10)[0, 0] for call in calls] == list(range(num_others + 1))
    assert sorted(map(len, embedder.passes)) == [1, 3, MAX_TEXTS, MAX_TEXTS]


def test_a_refused_text_is_refused_to_its_caller_alone() -> None:
    embedder = HeldEmbedder()
    batcher = BatchingEmbedder(embedder)
    with ThreadPoolExecutor(4) as pool:
        pool.submit(batcher.embed, ["0"])
        assert embedder.started.acquire(timeout=10)
        good, bad = pool.submit(batcher.embed, ["1"]), pool.submit(batcher.embed, ["bad"])
        wait_for(batcher, 2)
        embedder.go.set()
        assert good.result(10).tolist() == [[1.0]]
        with pytest.raises(InvalidInput, match="zero"):
            bad.result(10)
    assert batcher.embed(["5"]).tolist() == [[5.0]]


def test_a_pass_that_fails_fails_all_its_callers_and_no_later_one() -> None:
    embedder = HeldEmbedder()
    batcher = BatchingEmbedder(embedder)
    with ThreadPoolExecutor(4) as pool:
        pool.submit(batcher.embed, ["0"])
        assert embedder.started.acquire(timeout=10)
        calls = [pool.submit(batcher.embed, [text]) for text in ("1", "broken")]
        wait_for(batcher, 2)
        embedder.go.set()
        for call in calls:
            with pytest.raises(RuntimeError, match="lost"):
                call.result(10)
    assert batcher.embed(["5"]).tolist() == [[5.0]]
