"""From a question's text to its nearest facts: `python -m benchmarks.gpu.retrieval --out FILE`.

Through the worker's own embedder and search, on the GPU where there is one, for 16 users with rows
of their own: each question alone, 16 in one pass, and 16 threads at once. Facts are embedded in
float32 on the CPU, as control does. Before anything is timed, the same questions are embedded and
searched on the CPU: vectors must be near, and the facts found the same but for those whose
similarities are nearly equal; one and the same vector must find exactly the same.

Floor: every byte of the embedder's layers and of the user's rows is read once, at the rate at which
this device copies a large tensor in the same run.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import corpus
from benchmarks.gpu.machine import ResultFile
from benchmarks.gpu.shapes import SCRATCH
from inferscale_core.embedding import DeviceEmbedder, Embedder
from inferscale_core.embedding.lean import MIN_COSINE, least_cosine
from inferscale_core.ids import FactId
from inferscale_core.retrieval import SearchDevice
from inferscale_core.retrieval.questions import Question, QuestionSearch
from inferscale_core.retrieval.vectors import FactVectors

K, TOGETHER = 50, 16
CPU_THREADS = 8
SAME_SCORE = 1e-3
"""Similarities that differ by less may change places between float16 and float32."""

LAYER_BYTES = 10_646_784 * 2
"""Of the 6 layers of all-MiniLM-L6-v2 in float16; of its word embeddings a few rows are read."""


def index(vectors: torch.Tensor, device: SearchDevice) -> FactVectors:
    ids = [FactId(f"fact-{number:06}") for number in range(len(vectors))]
    return FactVectors.empty(vectors.shape[1], device).replaced((), ids, vectors)


def check(
    embedder: DeviceEmbedder, reference: Embedder, searched: FactVectors, questions: Sequence[str]
) -> dict[str, Any]:
    """Raises AssertionError unless vectors are near and the facts found are the same."""
    on_host = FactVectors(searched.ids, searched.rows, SearchDevice.host())
    actual, expected = embedder.embed(questions), reference.embed(questions)
    cosine = least_cosine(actual, expected)
    assert cosine >= MIN_COSINE, f"cosine {cosine} to the float32 vector"
    search, num_other = QuestionSearch(embedder), 0
    vectors = zip(torch.from_numpy(actual), torch.from_numpy(expected), strict=True)
    for question, (mine, theirs) in zip(questions, vectors, strict=True):
        same = searched.nearest(mine, K) == on_host.nearest(mine, K)
        assert same, "one vector finds other facts on the device"
        found = search.nearest(question, searched, K).facts
        wanted = on_host.nearest(theirs, K)
        worst = wanted[-1][1]
        score_by_id = dict(found)
        for fact_id, score in wanted:
            if fact_id not in score_by_id:
                num_other += 1
                assert score - worst < SAME_SCORE, f"{fact_id} is missing with {score}"
        num_other += sum(a != b for (a, _), (b, _) in zip(found, wanted, strict=True))
        for (_, score), (_, other) in zip(found, wanted, strict=True):
            assert abs(score - other) < SAME_SCORE
    return {"cosine_to_float32": cosine, "places_that_differ": num_other}


def one_by_one(
    search: QuestionSearch, users: Sequence[FactVectors], questions: Sequence[str]
) -> dict[str, Any]:
    """Each question alone, by the wall clock."""
    embed, both = [], []
    for question, user in zip(questions, itertools.cycle(users), strict=False):
        started = time.perf_counter()
        found = search.nearest(question, user, K)
        both.append((time.perf_counter() - started) * 1e3)
        embed.append((found.embedded - started) * 1e3)
    return {**_quantiles("embed", embed), **_quantiles("ms", both)}


def together(
    search: QuestionSearch, users: Sequence[FactVectors], questions: Sequence[str]
) -> dict[str, Any]:
    """Sixteen users at once, each in a thread as in the worker: how long each waits."""
    barrier = threading.Barrier(TOGETHER)

    def ask(question: str, user: FactVectors) -> float:
        barrier.wait()
        started = time.perf_counter()
        search.nearest(question, user, K)
        return (time.perf_counter() - started) * 1e3

    waits: list[float] = []
    with ThreadPoolExecutor(TOGETHER) as pool:
        for begin in range(0, len(questions) - TOGETHER + 1, TOGETHER):
            waits += pool.map(ask, questions[begin : begin + TOGETHER], users)
    return _quantiles("ms", waits)


def in_one_pass(
    search: QuestionSearch, users: Sequence[FactVectors], questions: Sequence[str]
) -> dict[str, Any]:
    """Sixteen questions embedded and searched together, as those are that come during a pass."""
    took = []
    for begin in range(0, len(questions) - TOGETHER + 1, TOGETHER):
        texts = questions[begin : begin + TOGETHER]
        asked = [Question(text, user, K) for text, user in zip(texts, users, strict=True)]
        started = time.perf_counter()
        answers = search._run(asked)
        took.append((time.perf_counter() - started) * 1e3)
        assert not any(isinstance(answer, Exception) for answer in answers)
    return _quantiles("ms", took)


def _quantiles(name: str, values: list[float]) -> dict[str, float]:
    return {name: statistics.median(values), f"{name}_p95": statistics.quantiles(values, n=20)[-1]}


def read_rate(device: torch.device) -> float:
    """Bytes per second that a copy of 1 GiB (on a CPU 64 MiB) reads and writes."""
    size = (1 << 30) if device.type == "cuda" else (64 << 20)
    large = torch.empty(size, dtype=torch.uint8, device=device)
    other = torch.empty_like(large)
    seconds = []
    for _ in range(10):
        _finish(device)
        started = time.perf_counter()
        other.copy_(large)
        _finish(device)
        seconds.append(time.perf_counter() - started)
    return 2 * size / statistics.median(seconds)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(
    embedder: DeviceEmbedder,
    reference: Embedder,
    counts: Sequence[int],
    questions: Sequence[str],
    device: torch.device,
    add: Callable[[dict[str, Any]], None],
) -> None:
    rows_device = SearchDevice(device, (1 << 30) if device.type == "cuda" else 0)
    search = QuestionSearch(embedder)
    rate = read_rate(device)
    texts, rows = corpus.facts(max(counts)), torch.empty(0)
    for count in sorted(counts):
        more = torch.from_numpy(reference.embed(texts[len(rows) : count]))
        rows = torch.cat([rows, more]) if len(rows) else more
        users = [index(rows[:count], rows_device) for _ in range(TOGETHER)]
        checked = check(embedder, reference, users[0], questions[:64])
        floor_ms = (LAYER_BYTES + rows[:count].nbytes) / rate * 1e3
        for kind, run in (
            ("one", one_by_one),
            ("sixteen_in_one_pass", in_one_pass),
            ("sixteen_threads", together),
        ):
            run(search, users, questions[: 4 * TOGETHER])  # Warms up.
            figure = {
                "kind": f"retrieval_{kind}",
                "facts": count,
                "k": K,
                "unit": "ms",
                **run(search, users, questions),
                "floor": floor_ms,
                **checked,
            }
            add(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--embedder", default="packaged", help="a folder, `packaged` or `random`")
    parser.add_argument("--facts", type=int, nargs="+", default=[254, 1000, 10_000])
    parser.add_argument("--questions", type=int, default=320)
    arguments = parser.parse_args()
    if arguments.questions < 2 * TOGETHER:
        parser.error(f"--questions is {arguments.questions}: at least {2 * TOGETHER} are needed")
    # On the CPU facts are embedded, and all is done where there is no GPU. More threads than these
    # wait for each other.
    torch.set_num_threads(min(torch.get_num_threads(), CPU_THREADS))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    embedder = corpus.embedder(arguments.embedder, device.type, SCRATCH)
    reference = corpus.embedder(arguments.embedder, "cpu", SCRATCH)
    questions = corpus.questions(arguments.questions)
    results = ResultFile(arguments.out, embedder=Path(arguments.embedder).name)
    add = partial(results.add, "gpu_retrieval")
    measure(embedder, reference, arguments.facts, questions, device, add)


if __name__ == "__main__":
    main()
