"""Encoding at scale: `python -m benchmarks.gpu.encode --model Llama-3.1-8B --out rows.json`.

at_once     100 users encode a fact of 28 tokens each behind the header and 16 or 32 neighbours
            of their own, injected; against the engine's own prefix hits for the same shape,
            and against prefilling all of it
one_user    254 facts of one user in waves, neighbours by the vectors of 16 topics
chats       time to first token of a chat over 50 injected facts, alone and while encode
            requests keep the engine busy
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.engine import Ask, Bench, Chunk, ours, request_name
from benchmarks.gpu.gated import add_gate_argument, gate_passed
from benchmarks.gpu.machine import ResultFile
from benchmarks.gpu.shapes import write_config
from inferscale_core.ids import ChunkKey
from inferscale_core.vllm_connector.config import GPU_BLOCK_SIZE

NEIGHBOURS, NEW_TOKENS = (16, 32), 28
USERS, USER_FACTS, TOPICS = 100, 254, 16


def users(bench: Bench, count: int) -> list[list[Chunk]]:
    """The header and facts of each user's own, as many as are wanted of one at most."""
    each = max(NEIGHBOURS)
    bench.encode(count * each - (len(bench.facts) - 1 if bench.facts else 0))
    header, *facts = bench.facts
    return [[header, *facts[i * each : (i + 1) * each]] for i in range(count)]


def encode_asks(bench: Bench, own: Sequence[Sequence[Chunk]]) -> list[Ask]:
    asks = []
    for prefix in own:
        key = ChunkKey(f"bench/user/new{next(bench.numbers)}")
        asks.append(bench.encoding(key, bench.tokens(NEW_TOKENS), prefix))
    return asks


def plain_asks(bench: Bench, own: Sequence[Sequence[Chunk]], way: str) -> list[Ask]:
    """The same prompts without a connector's help. "floor": under a salt of each user, and behind
    whole blocks, so that no more than NEW_TOKENS are computed."""
    asks = []
    for index, prefix in enumerate(own):
        before = [token for _, part in prefix for token in part]
        salt = bench.salt()
        if way == "floor":
            before, salt = bench.whole_blocks(before, index), f"encode-{index}"
        asks.append(Ask([*before, *bench.tokens(NEW_TOKENS)], None, salt))
    return asks


def at_once(
    bench: Bench, memories: Sequence[Sequence[Chunk]], neighbours: int, rounds: int
) -> dict[str, Any]:
    own = [memory[: 1 + neighbours] for memory in memories]
    memory = sum(len(part) for _, part in own[0])
    bench.ask(plain_asks(bench, own, "floor"))
    seconds: dict[str, list[float]] = {"injected": [], "floor": [], "text": []}
    for index in range(rounds + 1):
        for way, values in seconds.items():
            is_injected = way == "injected"
            asks = encode_asks(bench, own) if is_injected else plain_asks(bench, own, way)
            answers = bench.ask(asks)
            for output in answers.outputs:
                bench.check(way, memory, output)
            if index:
                values.append(answers.seconds)
    check_captured(bench, own)
    rates = {way: len(own) / statistics.median(values) for way, values in seconds.items()}
    prefill_tokens = rates["text"] * (memory + NEW_TOKENS)
    return {
        "kind": "encode_at_once",
        "clients": len(own),
        "neighbours": neighbours,
        "unit": "requests/s",
        **rates,
        "forwarded_tokens_per_s": rates["injected"] * NEW_TOKENS,
        "prefill_tokens_per_s": prefill_tokens,
    }


def check_captured(bench: Bench, own: Sequence[Sequence[Chunk]]) -> None:
    """An encoded chunk can be injected: what was timed did store something."""
    key = ChunkKey(f"bench/user/new{next(bench.numbers)}")
    tokens = bench.tokens(NEW_TOKENS)
    bench.ask([bench.encoding(key, tokens, own[0])])
    again = bench.encoding(ChunkKey(f"{key}-again"), bench.tokens(4), [*own[0], (key, tokens)])
    memory = sum(len(part) for _, part in own[0]) + NEW_TOKENS
    bench.check("injected", memory, bench.ask([again]).outputs[0])


def nearest_earlier(count: int, neighbours: int) -> list[list[int]]:
    """For each fact the earlier ones in its prefix, nearest last, by vectors around topics."""
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(TOPICS, 384))
    vectors = topics[rng.integers(TOPICS, size=count)] + 0.8 * rng.normal(size=(count, 384))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = vectors @ vectors.T
    return [list(np.argsort(scores[i, :i])[-neighbours:]) for i in range(count)]


def waves(prefixes: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Facts whose whole prefix is encoded, until none is left."""
    done: set[int] = set()
    while len(done) < len(prefixes):
        ready = [i for i, own in enumerate(prefixes) if i not in done and done.issuperset(own)]
        yield ready
        done.update(ready)


def one_user(bench: Bench, neighbours: int) -> dict[str, Any]:
    """Every fact of a user, wave by wave, as a first import does it."""
    header = bench.facts[0]
    prefixes = nearest_earlier(USER_FACTS, neighbours)
    facts = [
        (ChunkKey(f"bench/user/one{neighbours}-{index}"), bench.tokens(NEW_TOKENS))
        for index in range(USER_FACTS)
    ]
    sizes = []
    started = time.perf_counter()
    for wave in waves(prefixes):
        bench.ask(
            [bench.encoding(*facts[i], [header, *(facts[p] for p in prefixes[i])]) for i in wave]
        )
        sizes.append(len(wave))
    seconds = time.perf_counter() - started
    return {
        "kind": "encode_one_user",
        "facts": USER_FACTS,
        "neighbours": neighbours,
        "waves": len(sizes),
        "seconds": seconds,
        "ms_per_wave": seconds / len(sizes) * 1e3,
    }


def chats(
    bench: Bench, own: Sequence[Sequence[Chunk]], in_flight: int, pairs: int
) -> dict[str, Any]:
    samples: dict[int, list[float]] = {0: [], in_flight: []}
    encoded = 0
    started = time.perf_counter()
    for index in range(pairs + 2):
        for count, values in samples.items():
            first, done = chat_beside(bench, own, count)
            encoded += done
            if index > 1:
                values.append(first * 1e3)
    alone, beside = (statistics.median(values) for values in samples.values())
    return {
        "kind": "chat_beside_encoding",
        "k": 50,
        "unit": "ms",
        "encode_in_flight": in_flight,
        "alone": alone,
        "beside": beside,
        "slower": beside / alone,
        "encoded_per_s": encoded / (time.perf_counter() - started),
    }


def chat_beside(bench: Bench, own: Sequence[Sequence[Chunk]], in_flight: int) -> tuple[float, int]:
    """Seconds to a chat's first token with that many encode requests in the engine; how many of
    those ended meanwhile."""
    engine = bench.llm.llm_engine
    chooser = random.Random(0)
    running: set[str] = set()

    def top_up() -> None:
        missing = in_flight - len(running)
        if missing > 0:
            running.update(map(bench.add, encode_asks(bench, chooser.choices(own, k=missing))))

    top_up()
    ended = 0
    for _ in range(2):
        ended += _step(engine, running)[1]
        top_up()
    started = time.perf_counter()
    name = bench.add(bench.request("injected", 50))
    while True:
        seen, count = _step(engine, running)
        ended += count
        if name in seen:
            break
        top_up()
    first = time.perf_counter() - started
    while engine.has_unfinished_requests():
        ended += _step(engine, running)[1]
    return first, ended


def _step(engine: Any, running: set[str]) -> tuple[set[str], int]:
    """Names that gave a token in one engine step, and how many of `running` are done."""
    outputs = engine.step()
    seen = {request_name(output) for output in outputs}
    done = {request_name(output) for output in outputs if output.finished} & running
    running -= done
    return seen, len(done)


def measure(
    bench: Bench, own: Sequence[Sequence[Chunk]], rounds: int, pairs: int
) -> Iterator[dict[str, Any]]:
    for neighbours in NEIGHBOURS:
        yield at_once(bench, own, neighbours, rounds)
        yield one_user(bench, neighbours)
    for in_flight in (8, 64):
        yield chats(bench, own, in_flight, pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="Llama-3.1-8B")
    parser.add_argument("--storage", default="cache")
    parser.add_argument("--block-size", type=int, default=GPU_BLOCK_SIZE)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--out", type=Path, required=True)
    add_gate_argument(parser)
    arguments = parser.parse_args()
    model = write_config(arguments.model)
    connector = ours(20 << 30, storage=arguments.storage)
    bench = Bench(model, connector, block_size=arguments.block_size)
    own = users(bench, USERS)
    gate = gate_passed(arguments.gate)
    results = ResultFile(arguments.out, model=arguments.model, storage=arguments.storage, **gate)
    for figure in measure(bench, own, arguments.rounds, arguments.pairs):
        results.add("gpu_encode", figure)


if __name__ == "__main__":
    main()
