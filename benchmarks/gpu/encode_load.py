"""Encoding for many users at once: `python -m benchmarks.gpu.encode_load --out rows.json`.

As a worker does it: the engine is a process of its own, which vLLM's AsyncLLM hands requests. Each
user has one request in the engine at any time; the next follows when the last is answered.

    injected    a fact of 28 tokens behind the header and its neighbours, injected; captured
    floor       28 tokens behind about as many (whole blocks) that vLLM finds in its own prefix
                cache, under a salt of the user's own; the connector is told nothing

The two take turns. At the end the newest chunk of every user is injected: what was timed did store
something.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.engine import FACT_TOKENS, HEADER_TOKENS, Chunk, spans_of, whole_blocks
from benchmarks.gpu.gated import add_gate_argument, gate_passed
from benchmarks.gpu.machine import ResultFile
from benchmarks.gpu.shapes import write_config
from inferscale_core.ids import ChunkKey, FactId, ModelRevision, UserScope
from inferscale_core.memory.canonical import HEADER_SCOPE
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.recipes import DEFAULT_RECIPE
from inferscale_core.memory.spans import Spans
from inferscale_core.settings import EngineSettings
from inferscale_core.vllm_connector.params import Capture, RequestParams
from services.worker.engine.event_reader import EventReader
from services.worker.engine.host import EngineHost
from services.worker.engine.mirror import DirectoryMirror
from services.worker.engine.model_files import ModelFiles
from services.worker.engine.reports import Reports

NEW_TOKENS = 28


@dataclass(frozen=True)
class Prefix:
    """What stands before a fact while it is encoded."""

    tokens: list[int]
    spans: Spans
    keys: tuple[ChunkKey, ...]

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> Prefix:
        spans = spans_of(chunks)
        return cls([token for _, part in chunks for token in part], spans, tuple(spans.keys))


class Users:
    """What each has in memory, and what is asked of the engine for them."""

    def __init__(
        self, host: EngineHost, count: int, neighbours: int, numbers: Iterator[int]
    ) -> None:
        """numbers: for names that nobody on this engine has yet."""
        self._llm = host._llm
        self._vocab = int(self._llm.model_config.get_vocab_size())
        self._block_size = int(self._llm.vllm_config.cache_config.block_size)
        self._rng = random.Random(0)
        self._numbers = numbers
        self._header = self._chunk(HEADER_SCOPE, HEADER_TOKENS)
        self._own = [
            [self._header, *(self._chunk(_scope(user), FACT_TOKENS) for _ in range(neighbours))]
            for user in range(count)
        ]
        self._newest = [own[-1] for own in self._own]
        # Neither way is to be held up by putting together what is the same in every request.
        self._prefixes = [Prefix.of(own) for own in self._own]
        wanted = whole_blocks(len(self._prefixes[0].tokens), self._block_size)
        self._floors = [self._tokens(wanted) for _ in range(count)]

    async def store(self) -> None:
        """Encode every fact by itself."""
        nothing = Prefix.of([])
        await self._encode(self._header, nothing)
        for column in zip(*(own[1:] for own in self._own), strict=True):
            await asyncio.gather(*(self._encode(chunk, nothing) for chunk in column))

    async def refill(self) -> None:
        """All of every user's memory into the engine's own cache, if it is not there."""
        await asyncio.gather(
            *(self._floor(index, is_full=False) for index in range(len(self._own)))
        )

    async def turn(self, way: str, requests: int) -> float:
        """Requests per second while every user has so many answered, one after the other."""
        one = self._injected if way == "injected" else self._floor

        async def user(index: int) -> None:
            for _ in range(requests):
                await one(index)

        started = time.perf_counter()
        await asyncio.gather(*map(user, range(len(self._own))))
        return len(self._own) * requests / (time.perf_counter() - started)

    async def check_stored(self) -> None:
        """Raises AssertionError unless the newest chunk of every user can be injected."""
        for newest in self._newest:
            prompt = [*newest[1], *self._tokens(4)]
            params = RequestParams(self._name(), spans_of([newest]))
            assert await self._ask(prompt, self._name(), params) == len(newest[1])

    async def _injected(self, index: int) -> None:
        new = self._chunk(_scope(index), NEW_TOKENS)
        await self._encode(new, self._prefixes[index])
        self._newest[index] = new

    async def _floor(self, index: int, *, is_full: bool = True) -> None:
        before = self._floors[index]
        cached = await self._ask([*before, *self._tokens(NEW_TOKENS)], f"floor-{index}", None)
        assert not is_full or cached == len(before), f"{cached} tokens were cached of {len(before)}"

    async def _encode(self, new: Chunk, prefix: Prefix) -> None:
        key, tokens = new
        before = prefix.tokens
        capture = Capture(key, len(before), len(tokens), prefix.keys, FactRef(FactId(key), 1), 0)
        params = RequestParams(self._name(), prefix.spans, capture)
        cached = await self._ask([*before, *tokens], self._name(), params)
        assert cached == len(before), f"{cached} tokens were injected of {len(before)}"

    async def _ask(self, prompt: list[int], salt: str, params: RequestParams | None) -> int:
        """One token. Returns how many tokens of the prompt were not computed."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = SamplingParams(
            temperature=0,
            max_tokens=1,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            extra_args={"kv_transfer_params": params.to_wire()} if params else None,
            skip_clone=True,
        )
        name = params.handle if params else self._name()
        request = {"prompt_token_ids": prompt, "cache_salt": salt}
        async for output in self._llm.generate(request, sampling, name):
            cached = output.num_cached_tokens or 0
        return int(cached)

    def _chunk(self, scope: UserScope, num_tokens: int) -> Chunk:
        return ChunkKey(f"{scope}/{next(self._numbers):032}"), self._tokens(num_tokens)

    def _tokens(self, count: int) -> list[int]:
        return self._rng.choices(range(100, self._vocab), k=count)

    def _name(self) -> str:
        return f"r{next(self._numbers)}"


def _scope(user: int) -> UserScope:
    return UserScope(f"bench/user-{user}")


async def measure(users: Users, count: int, requests: int, turns: int) -> dict[str, Any]:
    rates: dict[str, list[float]] = {"injected": [], "floor": []}
    for index in range(turns + 1):
        for way, seen in rates.items():
            if way == "floor":
                await users.refill()
            rate = await users.turn(way, requests)
            if index:  # The first of each warms up.
                seen.append(rate)
    await users.check_stored()
    shares = [i / f for i, f in zip(rates["injected"], rates["floor"], strict=True)]
    return {
        "kind": "encode_load",
        "clients": count,
        "unit": "requests/s",
        "requests_per_turn": count * requests,
        "turns": turns,
        **{way: statistics.median(seen) for way, seen in rates.items()},
        "share": statistics.median(shares),
        "shares": [round(share, 3) for share in shares],
    }


async def run(arguments: argparse.Namespace) -> None:
    given = Path(arguments.model)
    folder = given if (given / "config.json").exists() else write_config(arguments.model)
    settings = EngineSettings(
        model=str(folder),
        dtype="bfloat16",
        max_model_len=4096,
        max_num_seqs=256,
        block_size=arguments.block_size,
        max_num_batched_tokens=arguments.step_tokens,
        gpu_memory_utilization=0.5,
        arena_bytes=arguments.arena_bytes,
        host_bytes=0,
    )
    model = ModelFiles(folder, folder.name, ModelRevision(f"{folder.name}@random"))
    gate = gate_passed(arguments.gate)
    results = ResultFile(arguments.out, model=folder.name, **gate)
    mirror = DirectoryMirror()
    async with EventReader(mirror, Reports()) as reader:
        host = await EngineHost.start(
            settings, model, reader.endpoint, load_format="dummy", skip_tokenizer_init=True
        )
        try:
            config = host._llm.vllm_config
            about = {
                "block_size": int(config.cache_config.block_size),
                "step_tokens": int(config.scheduler_config.max_num_batched_tokens),
                "async_scheduling": bool(config.scheduler_config.async_scheduling),
            }
            numbers = itertools.count()
            for count, neighbours in itertools.product(arguments.clients, arguments.neighbours):
                users = Users(host, count, neighbours, numbers)
                await users.store()
                gc.collect()
                gc.freeze()
                before = mirror.num_evictions
                figure = await measure(users, count, arguments.requests, arguments.turns)
                seen = {"neighbours": neighbours, "evictions": mirror.num_evictions - before}
                results.add("gpu_encode_load", {**figure, **seen, **about})
        finally:
            host.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="Llama-3.1-8B", help="a known shape, or a folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--clients", type=int, nargs="+", default=[100])
    parser.add_argument(
        "--neighbours", type=int, nargs="+", default=[DEFAULT_RECIPE.num_neighbours]
    )
    parser.add_argument("--requests", type=int, default=10, help="of each user in one turn")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--block-size", type=int)
    parser.add_argument("--step-tokens", type=int, help="that the engine computes in one step")
    parser.add_argument("--arena-bytes", type=int, default=56 << 30)
    add_gate_argument(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    asyncio.run(run(arguments))


if __name__ == "__main__":
    main()
