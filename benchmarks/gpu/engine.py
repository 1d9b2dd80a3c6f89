"""An engine with true shape and random weights, and requests: injected, prefilled or prefix hits.

Our connector (or another, or none) is loaded; CUDA graphs, torch.compile, chunked prefill and
prefix caching are on, as vLLM starts by itself. Blocks are of the size that our worker chooses, and
a step computes 2,048 tokens at most.

    injected   header and facts from chunks, the tail prefilled; a salt that is used once
    text       the same prompt, all of it prefilled; a salt that is used once
    floor      the memory lies in vLLM's own prefix cache, under a salt of the client's own
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Spans
from inferscale_core.vllm_connector.config import GPU_BLOCK_SIZE
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.params import Capture, RequestParams

FACT_TOKENS, HEADER_TOKENS, TAIL_TOKENS = 30, 36, 64
"""The header and 50 facts are twelve blocks of our worker's size: what the floor has of them in its
cache is then neither shorter nor longer."""

WAYS = ("injected", "text", "floor")
OURS = "inferscale_core.vllm_connector"

Chunk = tuple[ChunkKey, list[int]]
"""Its key and the tokens it holds."""


@dataclass(frozen=True)
class Ask:
    """One request: prompt, what it asks of the connector, cache salt, tokens to generate."""

    prompt: list[int]
    params: RequestParams | None
    salt: str
    max_tokens: int = 1


@dataclass
class Answers:
    """outputs: in the order asked. first_s: seconds to each request's first token; seconds: to the
    last one's end."""

    outputs: list[Any]
    first_s: list[float]
    seconds: float


@dataclass(frozen=True)
class Connector:
    """What the engine loads: a class of a module, its settings, and a worker extension."""

    name: str
    module: str
    extra: dict[str, Any]
    extension: str = ""


def ours(arena_bytes: int, **extra: Any) -> Connector:
    return Connector(
        "InferScaleConnector",
        f"{OURS}.connector",
        {"arena_bytes": arena_bytes, **extra},
        f"{OURS}.extension.WorkerExtension",
    )


class Bench:
    """Owns the engine of this process. `facts[0]` is the header."""

    def __init__(
        self,
        model: Path,
        connector: Connector | None,
        *,
        memory_share: float = 0.7,
        block_size: int = GPU_BLOCK_SIZE,
        max_num_batched_tokens: int = 2048,
        **settings: Any,
    ) -> None:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        from vllm import LLM
        from vllm.config import KVTransferConfig

        if connector is not None:
            settings["kv_transfer_config"] = KVTransferConfig(
                kv_connector=connector.name,
                kv_connector_module_path=connector.module,
                kv_role="kv_both",
                kv_connector_extra_config=connector.extra,
            )
            if connector.extension:
                settings["worker_extension_cls"] = connector.extension
        self.llm = LLM(
            str(model),
            load_format="dummy",
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=8192,
            max_num_seqs=256,
            max_num_batched_tokens=max_num_batched_tokens,
            gpu_memory_utilization=memory_share,
            block_size=block_size,
            **settings,
        )
        if connector is not None and connector.extension:
            print(self.llm.collective_rpc("inferscale_start"), flush=True)
        self.block_size = self.llm.llm_engine.vllm_config.cache_config.block_size
        self.rng = random.Random(0)
        self.numbers = itertools.count()
        self.vocab = self.llm.model_config.get_vocab_size()
        self.facts: list[Chunk] = []

    def engine_settings(self) -> dict[str, Any]:
        """What the engine runs with, for the rows."""
        config = self.llm.llm_engine.vllm_config
        return {
            "block_size": self.block_size,
            "async_scheduling": bool(config.scheduler_config.async_scheduling),
            "chunked_prefill": bool(config.scheduler_config.enable_chunked_prefill),
            "prefix_caching": bool(config.cache_config.enable_prefix_caching),
            "compilation": config.compilation_config.mode.name,
            "cuda_graphs": config.compilation_config.cudagraph_mode.name,
        }

    def take_launch_ms(self) -> list[float]:
        """Of each injection since the last call: what its launch took a rank, on the host's clock,
        from the step's metadata to the last kernel handed over. Only of our connector."""
        connector = self.llm.llm_engine.engine_core.engine_core.scheduler.connector
        events = connector.scheduler_side.sink.events
        seen = [e.fields["inject_ms"] for e in events if e.kind is EventKind.COMPOSED]
        events.clear()
        return seen

    def tokens(self, count: int) -> list[int]:
        return self.rng.choices(range(100, self.vocab), k=count)

    def salt(self) -> str:
        """One that no other request has."""
        return f"s{next(self.numbers)}"

    def add(self, ask: Ask) -> str:
        """Hand a request to the engine; returns the start of the id its outputs carry."""
        from vllm import SamplingParams

        request_id = f"r{next(self.numbers)}"
        sampling = SamplingParams(
            temperature=0,
            max_tokens=ask.max_tokens,
            min_tokens=ask.max_tokens,
            ignore_eos=True,
            detokenize=False,
            skip_clone=True,  # As our service does.
            extra_args={"kv_transfer_params": ask.params.to_wire()} if ask.params else None,
        )
        prompt = {"prompt_token_ids": ask.prompt, "cache_salt": ask.salt}
        self.llm.llm_engine.add_request(request_id, prompt, sampling)
        return request_id

    def ask(self, asks: Sequence[Ask]) -> Answers:
        """Add all at once and step until all are answered."""
        engine = self.llm.llm_engine
        started = time.perf_counter()
        first: dict[str, float] = {}
        done: dict[str, Any] = {}
        ids = [self.add(ask) for ask in asks]
        while engine.has_unfinished_requests():
            for output in engine.step():
                name = request_name(output)
                first.setdefault(name, time.perf_counter() - started)
                if output.finished:
                    done[name] = output
        seconds = time.perf_counter() - started
        return Answers([done[i] for i in ids], [first[i] for i in ids], seconds)

    def encode(self, count: int, *, at_once: int = 100) -> None:
        """Add `count` facts, and the header before the first, each encoded by itself."""
        lengths = [] if self.facts else [HEADER_TOKENS]
        lengths += [FACT_TOKENS] * count
        new = [
            (ChunkKey(f"bench/user/{index}"), self.tokens(length))
            for index, length in enumerate(lengths, start=len(self.facts))
        ]
        for start in range(0, len(new), at_once):
            part = new[start : start + at_once]
            self.ask([self.encoding(key, tokens) for key, tokens in part])
        self.facts += new
        gc.collect()
        gc.freeze()  # As the engine's process does with all that it holds when it starts.

    def encoding(self, key: ChunkKey, tokens: list[int], prefix: Sequence[Chunk] = ()) -> Ask:
        """The request that encodes `tokens` behind the chunks of `prefix` and captures them."""
        before = [token for _, part in prefix for token in part]
        spans = spans_of(prefix)
        seen = tuple(spans.keys)
        capture = Capture(key, len(before), len(tokens), seen, FactRef(FactId(key), 1), 0)
        return Ask([*before, *tokens], RequestParams(key, spans, capture), self.salt())

    def request(self, way: str, k: int, client: int = 0, max_tokens: int = 1) -> Ask:
        """One request over the header and k facts.

        Every client of "floor" has facts and a salt of its own, as every user has: clients that
        shared blocks would also share reads of them while decoding. Its memory is of whole blocks,
        as many as come nearest, so that the engine computes no more than for the others.
        """
        header, *facts = self.facts
        chooser = random.Random(client) if way == "floor" else self.rng
        chosen = [header, *chooser.sample(facts, k)]
        memory = [token for _, part in chosen for token in part]
        if way == "floor":
            memory = self.whole_blocks(memory, client)
        prompt = memory + self.tokens(TAIL_TOKENS)
        if way == "injected":
            params = RequestParams(f"h{next(self.numbers)}", spans_of(chosen))
            return Ask(prompt, params, self.salt(), max_tokens)
        salt = f"floor-{client}" if way == "floor" else self.salt()
        return Ask(prompt, None, salt, max_tokens)

    def whole_blocks(self, tokens: list[int], seed: int) -> list[int]:
        """About as many, in as many whole blocks as the engine's prefix cache can hold."""
        wanted = whole_blocks(len(tokens), self.block_size)
        more = random.Random(seed).choices(range(100, self.vocab), k=self.block_size)
        return [*tokens, *more][:wanted]

    def once(self, way: str, k: int) -> float:
        """Milliseconds to the first token of one request, which was served as `way` says."""
        answers = self.ask([self.request(way, k)])
        self.check(way, HEADER_TOKENS + k * FACT_TOKENS, answers.outputs[0])
        return answers.first_s[0] * 1e3

    def check(self, way: str, num_tokens: int, output: Any) -> None:
        """Raises AssertionError unless just the `num_tokens` of memory were not computed."""
        aligned = whole_blocks(num_tokens, self.block_size)
        wanted = {"injected": num_tokens, "floor": aligned, "text": 0}[way]
        cached = output.num_cached_tokens or 0
        assert cached == wanted, f"{way}: {cached} tokens were not computed instead of {wanted}"


def whole_blocks(num_tokens: int, block_size: int) -> int:
    """Tokens of the whole blocks, one at least, that hold about `num_tokens`."""
    return max(1, round(num_tokens / block_size)) * block_size


def spans_of(chunks: Sequence[Chunk]) -> Spans:
    return Spans([key for key, _ in chunks], [len(tokens) for _, tokens in chunks])


def request_name(output: Any) -> str:
    """The engine may add a random suffix to a request's id."""
    return str(output.request_id.partition("-")[0])
