"""From a question's text to its nearest facts: `python -m benchmarks.gpu.retrieval --out FILE`.

Through the worker's own embedder and index, on the GPU where there is one. Facts are embedded in
float32 on the CPU, as control does. Before anything is timed, the same questions are embedded and
searched on the CPU: vectors must be near, and the facts found the same but for those whose
similarities are nearly equal; one and the same vector must find exactly the same.

Floor: every byte of the embedder's layers and of the user's rows is read once, at the rate at which
this device copies a large tensor in the same run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import corpus
from benchmarks.gpu.machine import gpu_rows
from benchmarks.gpu.shapes import SCRATCH
from benchmarks.rows import make_rows
from inferscale_core.embedding import BatchingEmbedder, Embedder
from inferscale_core.embedding.lean import MIN_COSINE, least_cosine
from inferscale_core.ids import FactId
from inferscale_core.retrieval import SearchDevice
from inferscale_core.retrieval.vectors import FactVectors

K, TOGETHER = 50, 16
SAME_SCORE = 1e-3
"""Similarities that differ by less may change places between float16 and float32."""

LAYER_BYTES = 10_646_784 * 2
"""Of the 6 layers of all-MiniLM-L6-v2 in float16; of its word embeddings a few rows are read."""


def index(vectors: torch.Tensor, device: SearchDevice) -> FactVectors:
    ids = [FactId(f"fact-{number:06}") for number in range(len(vectors))]
    return FactVectors.empty(vectors.shape[1], device).replaced((), ids, vectors)


def check(
    embedder: Embedder, reference: Embedder, searched: FactVectors, questions: Sequence[str]
) -> dict[str, Any]:
    """Raises AssertionError unless vectors are near and the facts found are the same."""
    on_host = FactVectors(searched.ids, searched.rows, SearchDevice.host())
    actual, expected = embedder.embed(questions), reference.embed(questions)
    cosine = least_cosine(actual, expected)
    assert cosine >= MIN_COSINE, f"cosine {cosine} to the float32 vector"
    num_other = 0
    for mine, theirs in zip(torch.from_numpy(actual), torch.from_numpy(expected), strict=True):
        found = searched.nearest(mine, K)
        assert found == on_host.nearest(mine, K), "one vector finds other facts on the device"
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
    embedder: Embedder, vectors: FactVectors, questions: Sequence[str]
) -> dict[str, Any]:
    """Each question alone, by the wall clock."""
    embed, search = [], []
    for question in questions:
        started = time.perf_counter()
        query = torch.from_numpy(embedder.embed([question])[0])
        embedded = time.perf_counter()
        vectors.nearest(query, K)
        embed.append((embedded - started) * 1e3)
        search.append((time.perf_counter() - embedded) * 1e3)
    both = [a + b for a, b in zip(embed, search, strict=True)]
    return {**_quantiles("embed", embed), **_quantiles("search", search), **_quantiles("ms", both)}


def together(embedder: Embedder, vectors: FactVectors, questions: Sequence[str]) -> dict[str, Any]:
    """Sixteen callers at once, each in a thread as in the worker: how long each waits."""
    batching = BatchingEmbedder(embedder)

    def ask(question: str) -> float:
        started = time.perf_counter()
        vectors.nearest(torch.from_numpy(batching.embed([question])[0]), K)
        return (time.perf_counter() - started) * 1e3

    waits: list[float] = []
    with ThreadPoolExecutor(TOGETHER) as pool:
        for group in _groups(questions):
            waits += pool.map(ask, group)
    return _quantiles("ms", waits)


def in_one_call(
    embedder: Embedder, vectors: FactVectors, questions: Sequence[str]
) -> dict[str, Any]:
    """Sixteen questions embedded by one call and searched one after the other."""
    times = []
    for group in _groups(questions):
        started = time.perf_counter()
        for query in torch.from_numpy(embedder.embed(group)):
            vectors.nearest(query, K)
        times.append((time.perf_counter() - started) * 1e3)
    return _quantiles("ms", times)


def _groups(questions: Sequence[str]) -> list[Sequence[str]]:
    return [questions[i : i + TOGETHER] for i in range(0, len(questions), TOGETHER)]


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
    embedder: Embedder,
    reference: Embedder,
    counts: Sequence[int],
    questions: Sequence[str],
    device: torch.device,
) -> list[dict[str, Any]]:
    search = SearchDevice(device, (1 << 30) if device.type == "cuda" else 0)
    rate = read_rate(device)
    rows = torch.from_numpy(reference.embed(corpus.facts(max(counts))))
    figures = []
    for count in counts:
        vectors = index(rows[:count], search)
        checked = check(embedder, reference, vectors, questions[:64])
        floor_ms = (LAYER_BYTES + rows[:count].nbytes) / rate * 1e3
        for kind, run in (
            ("one", one_by_one),
            ("sixteen_threads", together),
            ("sixteen_in_one_call", in_one_call),
        ):
            run(embedder, vectors, questions[: 2 * TOGETHER])  # Warms up.
            figure = {
                "kind": f"retrieval_{kind}",
                "facts": count,
                "k": K,
                "unit": "ms",
                **run(embedder, vectors, questions),
                "floor": floor_ms,
                **checked,
            }
            print(figure, flush=True)
            figures.append(figure)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--embedder", default="packaged", help="a folder, `packaged` or `random`")
    parser.add_argument("--facts", type=int, nargs="+", default=[254, 1000, 10_000])
    parser.add_argument("--questions", type=int, default=320)
    arguments = parser.parse_args()
    is_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if is_gpu else "cpu")
    embedder = corpus.embedder(arguments.embedder, device.type, SCRATCH)
    reference = corpus.embedder(arguments.embedder, "cpu", SCRATCH)
    questions = corpus.questions(arguments.questions)
    figures = measure(embedder, reference, arguments.facts, questions, device)
    about = {"embedder": Path(arguments.embedder).name}
    make = gpu_rows if is_gpu else make_rows
    rows = make("gpu_retrieval", [{**about, **figure} for figure in figures])
    arguments.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
