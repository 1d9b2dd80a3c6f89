"""From a question's text to the first token, and the break-even of injection.

`python -m benchmarks.gpu.query --model Llama-3.1-8B --out rows.json`

The parts of the worker over its own engine process (embedder, snapshot, planner, salts, AsyncLLM,
our connector): true shape, random weights, CUDA graphs and prefix caching on. One user of 254
facts, encoded by the default recipe.

    query_to_token   a chat (embed, retrieve, plan, inject) against the floor: the same tokens of
                     memory straight to the engine, which has them in its own prefix cache, and a
                     tail of the same length. In turn, each chat with a question of its own.
    break_even       what the worker measures when it starts
    retrieval_beside_decoding
                     embed and retrieve while the engine, a process of its own on the same GPU,
                     generates for others
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import corpus
from benchmarks.gpu.gated import add_gate_argument, gate_passed
from benchmarks.gpu.machine import ResultFile
from benchmarks.gpu.shapes import SCRATCH, write_config
from inferscale_core.embedding import DeviceEmbedder
from inferscale_core.ids import ModelRevision, TenantId, UserId
from inferscale_core.memory.recipes import DEFAULT_RECIPE
from inferscale_core.prompt import ChatMessage, PromptFormat
from inferscale_core.rpc.pb.inferscale.v1 import sync_pb2
from inferscale_core.settings import EngineSettings, WorkerSettings
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.params import RequestParams
from services.worker.app import WorkerParts, build_parts
from services.worker.break_even import Sample
from services.worker.engine.event_reader import EventReader
from services.worker.engine.host import EngineHost
from services.worker.engine.mirror import DirectoryMirror
from services.worker.engine.model_files import ModelFiles
from services.worker.engine.protocol import ONE_TOKEN, EngineRequest, SamplingOptions
from services.worker.engine.reports import Reports
from services.worker.generate import GenerateCommand, Served
from services.worker.planner import ChatPlan
from services.worker.users import UserAt

NUM_FACTS = 254
"""Of one user of LoCoMo."""

SERVED_WAIT_S = 5.0
LOAD_S = 2.0
"""For all answers to have been begun."""

USER = UserAt(TenantId("bench"), UserId("user"), NUM_FACTS)


class FactSource:
    """A control that has one user's facts."""

    def __init__(self, texts: Sequence[str], embedder: DeviceEmbedder) -> None:
        vectors = embedder.embed(texts)
        self._facts = [
            sync_pb2.FactChange(
                fact_id=f"fact-{number:06}",
                revision=1,
                memory_version=number + 1,
                text=text,
                embedding=vector.astype("<f4").tobytes(),
            )
            for number, (text, vector) in enumerate(zip(texts, vectors, strict=True))
        ]

    async def list_changes(
        self, tenant_id: TenantId, user_id: UserId, after_version: int
    ) -> list[sync_pb2.ListChangesResponse]:
        facts = [fact for fact in self._facts if fact.memory_version > after_version]
        page = sync_pb2.ListChangesResponse(memory_version=len(self._facts), facts=facts, last=True)
        return [page]


@dataclass
class Bench:
    """A worker whose user has all chunks resident, as far as the recipe allows."""

    parts: WorkerParts
    host: EngineHost
    reports: Reports
    block_size: int
    samples: Sequence[Sample]

    async def chat_ms(self, question: str, k: int) -> tuple[float, float, Served]:
        """To the engine's first token, to the word of how it was served, and that word."""
        command = GenerateCommand(
            USER, (ChatMessage("user", question),), k, SamplingOptions(max_tokens=1), timed=True
        )
        started = time.perf_counter()
        async with contextlib.aclosing(self.parts.generate(command)) as events:
            async for event in events:
                if isinstance(event, Served):
                    told_ms = (time.perf_counter() - started) * 1e3
                    served = event
        return served.timings.first_token_ms, told_ms, served

    async def plan(self, question: str, k: int) -> ChatPlan:
        snapshot = await self.parts.users.at_least(USER)
        planner = self.parts.generate._planner
        return await asyncio.to_thread(
            planner.plan,
            snapshot,
            (ChatMessage("user", question),),
            k,
            inject=True,
            min_injected_tokens=0,
            context_tokens=self.host.max_model_len,
        )

    async def floor_ms(self, chat: ChatPlan, rng: random.Random) -> float:
        """The plan's memory out of the engine's prefix cache, with another tail behind it."""
        memory = chat.plan.header_tokens + sum(len(f.token_ids) for f in chat.plan.facts)
        tail = list(chat.plan.token_ids[memory:])
        salt = uuid.uuid4().hex
        await self._ask((*chat.plan.token_ids[:memory], *rng.sample(tail, len(tail))), salt)
        again = (*chat.plan.token_ids[:memory], *rng.sample(tail, len(tail)))
        duration_ms, native = await self._ask(again, salt)
        least = memory // self.block_size * self.block_size
        assert least <= native < len(again), f"{native} tokens were cached of {memory}"
        return duration_ms

    async def _ask(self, tokens: tuple[int, ...], salt: str) -> tuple[float, int]:
        """Milliseconds to the first token, and tokens found in the engine's own cache."""
        params = RequestParams(uuid.uuid4().hex)
        with self.reports.follow(params.handle) as report:
            started = time.perf_counter()
            request = EngineRequest(tokens, params, salt, ONE_TOKEN)
            async with contextlib.aclosing(self.host.stream(request)) as outputs:
                async for _ in outputs:
                    duration_ms = (time.perf_counter() - started) * 1e3
            served = await report.first_of({EventKind.SERVED}, SERVED_WAIT_S)
        assert served is not None, "the engine said nothing of the request"
        return duration_ms, served.fields["native_tokens"]


@contextlib.asynccontextmanager
async def worker(
    settings: EngineSettings, folder: Path, embedder: DeviceEmbedder, device: torch.device
) -> AsyncIterator[Bench]:
    """As `services.worker.app` starts one, without control, weights and a tokenizer's files."""
    mirror, reports = DirectoryMirror(), Reports()
    model = ModelFiles(folder, folder.name, ModelRevision(f"{folder.name}@random"))
    recipe = DEFAULT_RECIPE
    async with EventReader(mirror, reports) as reader:
        host = await EngineHost.start(
            settings, model, reader.endpoint, load_format="dummy", skip_tokenizer_init=True
        )
        try:
            parts = build_parts(
                WorkerSettings(),
                host,
                model,
                recipe,
                PromptFormat(corpus.chat_tokenizer(), recipe),
                embedder,
                FactSource(corpus.facts(NUM_FACTS), embedder),
                mirror,
                reports,
                device=device,
            )
            await parts.header.ensure()
            samples = await parts.break_even.measure()
            started = time.perf_counter()
            results = [result async for result in parts.encode(USER)]
            failed = [result.reason for result in results if result.reason]
            print(f"{len(results)} facts in {time.perf_counter() - started:.1f} s", flush=True)
            assert not failed, failed
            block_size = host._llm.vllm_config.cache_config.block_size
            yield Bench(parts, host, reports, block_size, samples)
        finally:
            host.stop()


async def query_to_token(bench: Bench, k: int, questions: Sequence[str]) -> dict[str, Any]:
    """Chat and floor in turn, one pair for each question; the first three warm up."""
    rng = random.Random(k)
    chats: list[tuple[float, float, Served]] = []
    floors: list[float] = []
    for number, question in enumerate(questions):
        plan = await bench.plan(question, k)
        if number % 2:
            chats.append(await bench.chat_ms(question, k))
        floors.append(await bench.floor_ms(plan, rng))
        if not number % 2:
            chats.append(await bench.chat_ms(question, k))
        _check(bench, plan, chats[-1][2])
    chats, floors = chats[3:], floors[3:]
    more = sorted(first - floor for (first, _, _), floor in zip(chats, floors, strict=True))
    times = [served.timings for _, _, served in chats]
    steps = ("embed_ms", "retrieve_ms", "plan_ms", "queue_ms", "inject_ms", "prefill_ms")
    injected = chats[0][2].tokens.injected_tokens
    return {
        "kind": "query_to_token",
        "k": k,
        "unit": "ms",
        "pairs": len(more),
        "served": "injected" if injected else "text",
        "query": statistics.median(first for first, _, _ in chats),
        "query_until_served": statistics.median(told for _, told, _ in chats),
        "floor": statistics.median(floors),
        "query_minus_floor": statistics.median(more),
        "query_minus_floor_quartiles": [more[len(more) // 4], more[3 * len(more) // 4]],
        **{step: statistics.median(getattr(time, step) for time in times) for step in steps},
    }


def _check(bench: Bench, chat: ChatPlan, served: Served) -> None:
    """Raises AssertionError unless all memory was injected, or none below the break-even."""
    memory = chat.plan.header_tokens + sum(len(f.token_ids) for f in chat.plan.facts)
    wanted = memory if memory >= bench.parts.break_even.min_tokens else 0
    tokens = served.tokens
    assert (tokens.injected_tokens, tokens.native_tokens) == (wanted, 0), tokens


async def beside_decoding(
    bench: Bench, clients: int, k: int, questions: Sequence[str]
) -> dict[str, Any]:
    """What embedding and retrieving take in the worker while `clients` answers are generated."""
    chat = await bench.plan(questions[0], k)
    long = SamplingOptions(max_tokens=4000, min_tokens=4000)

    async def generate() -> None:
        params = RequestParams(uuid.uuid4().hex)
        request = EngineRequest(chat.plan.token_ids, params, "decoding", long)
        async for _ in bench.host.stream(request):
            pass

    decoding = [asyncio.create_task(generate()) for _ in range(clients)]
    try:
        await asyncio.sleep(LOAD_S)
        plans = [await bench.plan(question, k) for question in questions]
        assert not any(task.done() for task in decoding), "the answers were too short"
    finally:
        for task in decoding:
            task.cancel()
        await asyncio.gather(*decoding, return_exceptions=True)
    times = [plan.times for plan in plans]
    both = [time.embed_ms + time.retrieve_ms for time in times]
    return {
        "kind": "retrieval_beside_decoding",
        "clients": clients,
        "facts": NUM_FACTS,
        "k": k,
        "unit": "ms",
        "ms": statistics.median(both),
        "ms_p95": statistics.quantiles(both, n=20)[-1],
        "embed": statistics.median(time.embed_ms for time in times),
        "search": statistics.median(time.retrieve_ms for time in times),
    }


def break_even_rows(bench: Bench) -> list[dict[str, Any]]:
    return [
        {
            "kind": "break_even",
            "tokens": sample.num_tokens,
            "unit": "ms",
            "text": sample.text_ms,
            "injected": sample.injected_ms,
            "min_injected_tokens": bench.parts.break_even.min_tokens,
        }
        for sample in bench.samples
    ]


async def run(arguments: argparse.Namespace) -> None:
    is_gpu = torch.cuda.is_available()
    given = Path(arguments.model)
    folder = given if (given / "config.json").exists() else write_config(arguments.model)
    settings = EngineSettings(
        model=str(folder),
        dtype="bfloat16",
        max_model_len=8192,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        gpu_memory_utilization=0.7,
        kv_cache_bytes=None if is_gpu else 1 << 28,
        arena_bytes=arguments.arena_bytes,
    )
    device = torch.device("cuda" if is_gpu else "cpu")
    embedder = corpus.embedder(arguments.embedder, device.type, SCRATCH)
    gate = gate_passed(arguments.gate)
    embedder_name = Path(arguments.embedder).name
    results = ResultFile(arguments.out, model=folder.name, embedder=embedder_name, **gate)
    async with worker(settings, folder, embedder, device) as bench:
        for figure in break_even_rows(bench):
            results.add("gpu_break_even", figure)
        for k in arguments.ks:
            questions = corpus.questions(arguments.pairs + 3, seed=k)
            results.add("gpu_query", await query_to_token(bench, k, questions))
        for clients in arguments.clients:
            questions = corpus.questions(arguments.pairs, seed=clients)
            figure = await beside_decoding(bench, clients, 20, questions)
            results.add("gpu_retrieval_beside_decoding", figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a known shape, or a folder with a config")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--embedder", default="packaged", help="a folder, `packaged` or `random`")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--ks", type=int, nargs="+", default=[5, 10, 20, 50, 130])
    parser.add_argument("--clients", type=int, nargs="*", default=[0, 10, 50])
    parser.add_argument("--arena-bytes", type=int, default=4 << 30)
    add_gate_argument(parser)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
