"""A real vLLM engine in the test's own process, with the connector loaded, and ways to ask it.

In-process, so that a test can look into the scheduler, and so that one start serves many tests.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.recipes import Storage
from inferscale_core.memory.spans import Span
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.params import Capture, Forget, RequestParams

BLOCK = int(os.environ.get("INFERSCALE_TEST_BLOCK_SIZE", "32"))
SCOPE = UserScope("tenant/user")
_CONNECTOR = "inferscale_core.vllm_connector"


@dataclass(frozen=True)
class Answer:
    """token_ids: greedy. logprobs: their top 20 each. cached: prompt tokens not computed."""

    token_ids: list[int]
    logprobs: list[dict[int, float]]
    cached: int
    finish_reason: str | None = "length"


class TinyEngine:
    def __init__(self, model: Path, dtype: str, **overrides: Any) -> None:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
        os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
        warnings.simplefilter("ignore")
        from vllm import LLM
        from vllm.config import KVTransferConfig

        arena_bytes = overrides.pop("arena_bytes", 64 << 20)
        storage = overrides.pop("storage", Storage.CACHE)
        extra = {"arena_bytes": arena_bytes, "storage": storage, **overrides.pop("tiers", {})}
        settings: dict[str, Any] = {
            "max_model_len": 5120,
            "block_size": BLOCK,
            "max_num_seqs": 16,
            "max_num_batched_tokens": 5120,
            "enforce_eager": os.environ.get("INFERSCALE_TEST_EAGER", "1") == "1",
            # Said in bytes, an engine on a GPU does not mind others that start beside it.
            "kv_cache_memory_bytes": 1 << 30,
            "gpu_memory_utilization": 0.05,
            "skip_tokenizer_init": True,
        } | overrides
        self.dtype = dtype
        self.llm = LLM(
            str(model),
            dtype=dtype,
            worker_extension_cls=f"{_CONNECTOR}.extension.WorkerExtension",
            kv_transfer_config=KVTransferConfig(
                kv_connector="InferScaleConnector",
                kv_connector_module_path=f"{_CONNECTOR}.connector",
                kv_role="kv_both",
                kv_connector_extra_config=extra,
            ),
            **settings,
        )
        self._numbers = itertools.count(1)
        try:
            self.started = self.llm.collective_rpc("inferscale_start")
        except Exception:
            self.close()  # A refused engine must not stand in the way of the next one.
            raise
        self.steps: list[Any] = []
        self._record_steps()

    @property
    def engine(self) -> Any:
        return self.llm.llm_engine

    @property
    def scheduler(self) -> Any:
        return self.engine.engine_core.engine_core.scheduler

    @property
    def side(self) -> Any:
        return self.scheduler.connector.scheduler_side

    @property
    def worker_side(self) -> Any:
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        return get_kv_transfer_group().worker_side

    def close(self) -> None:
        from vllm.distributed import cleanup_dist_env_and_memory

        self.engine.engine_core.shutdown()
        del self.llm
        gc.unfreeze()
        gc.collect()
        cleanup_dist_env_and_memory()

    # Asking.

    def handle(self) -> str:
        return f"h{next(self._numbers)}"

    def sampling(self, params: RequestParams | None, max_tokens: int, logprobs: int = 20) -> Any:
        from vllm import SamplingParams

        return SamplingParams(
            temperature=0,
            max_tokens=max_tokens,
            ignore_eos=True,
            detokenize=False,
            logprobs=logprobs,
            extra_args={"kv_transfer_params": params.to_wire()} if params else None,
        )

    def ask(
        self,
        prompt: Sequence[int],
        params: RequestParams | None = None,
        *,
        max_tokens: int = 4,
        salt: str | None = None,
    ) -> Answer:
        return self.ask_all([(prompt, params)], max_tokens=max_tokens, salts=[salt])[0]

    def ask_all(
        self,
        asks: Sequence[tuple[Sequence[int], RequestParams | None]],
        *,
        max_tokens: int = 4,
        salts: Sequence[str | None] | None = None,
    ) -> list[Answer]:
        """All at once, so that they share steps. A salt of None is used once."""
        salts = salts or [None] * len(asks)
        outputs = self.llm.generate(
            [
                {"prompt_token_ids": list(prompt), "cache_salt": salt or self.handle()}
                for (prompt, _), salt in zip(asks, salts, strict=True)
            ],
            [self.sampling(params, max_tokens) for _, params in asks],
            use_tqdm=False,
        )
        return [_answer(output) for output in outputs]

    def encode(
        self,
        prefix: Sequence[tuple[ChunkKey, Sequence[int]]],
        key: ChunkKey,
        tokens: Sequence[int],
        *,
        inject: bool = True,
        fact_id: str | None = None,
        version: int = 0,
    ) -> None:
        """Store `tokens` behind `prefix` as the chunk `key`: one ordinary request."""
        prompt = [token for _, part in prefix for token in part] + list(tokens)
        spans = tuple(Span(k, len(part)) for k, part in prefix) if inject else ()
        capture = Capture(
            key,
            len(prompt) - len(tokens),
            len(tokens),
            tuple(k for k, _ in prefix),
            FactRef(FactId(fact_id or key), 1),
            version,
        )
        self.ask(prompt, RequestParams(self.handle(), spans, capture), max_tokens=1)

    def encode_jointly(
        self, chunks: Sequence[Sequence[int]], scope: str = SCOPE
    ) -> list[tuple[ChunkKey, Sequence[int]]]:
        """Each chunk behind all before it: what joint prefill computes."""
        stored: list[tuple[ChunkKey, Sequence[int]]] = []
        for tokens in chunks:
            key = ChunkKey(f"{scope}/{self.handle()}")
            self.encode(stored, key, tokens)
            stored.append((key, tokens))
        return stored

    def capture_only(self, key: ChunkKey, start: int, num_tokens: int) -> RequestParams:
        """Capture behind text that is prefilled and named by no key."""
        fact = FactRef(FactId(key), 1)
        return RequestParams(self.handle(), (), Capture(key, start, num_tokens, (), fact, 0))

    def injected(self, chunks: Sequence[tuple[ChunkKey, Sequence[int]]]) -> RequestParams:
        return RequestParams(self.handle(), tuple(Span(key, len(part)) for key, part in chunks))

    def forget(self, fact_ids: Sequence[str], *, scope: str = SCOPE, version: int = 1) -> None:
        command = Forget(UserScope(scope), tuple(map(FactId, fact_ids)), version)
        self.ask([3, 4], RequestParams(self.handle(), forget=command), max_tokens=1)

    def events(self, kind: EventKind) -> list[dict[str, Any]]:
        return [event.fields for event in self.side.sink.events if event.kind is kind]

    # Looking inside.

    @contextlib.contextmanager
    def tokens_per_step(self, limit: int) -> Iterator[None]:
        """Prefill in slices of `limit` tokens."""
        before = self.scheduler.max_num_scheduled_tokens
        self.scheduler.max_num_scheduled_tokens = limit
        try:
            yield
        finally:
            self.scheduler.max_num_scheduled_tokens = before

    @contextlib.contextmanager
    def slices(self, lengths: Iterable[int]) -> Iterator[None]:
        """Prefill one request in slices of these lengths, and what is left of it in another."""
        scheduler = self.scheduler
        schedule, before, left = (
            scheduler.schedule,
            scheduler.max_num_scheduled_tokens,
            iter(lengths),
        )

        def limited(*args: Any, **kwargs: Any) -> Any:
            length = next(left, None)
            scheduler.max_num_scheduled_tokens = length or before
            step = schedule(*args, **kwargs)
            assert length in (None, step.total_num_scheduled_tokens), "a step of another length"
            return step

        scheduler.schedule = limited
        try:
            yield
        finally:
            scheduler.schedule = schedule
            scheduler.max_num_scheduled_tokens = before
        assert next(left, None) is None, "the prompt was to be longer"

    def settle(self) -> None:
        """Step the idle engine for as long as the connector asks for it."""
        until = time.monotonic() + 30
        while self.scheduler.has_requests():
            assert time.monotonic() < until, "the connector never comes to rest"
            self.engine.step()

    def assert_idle(self) -> None:
        """Nothing of any request is left in the connector, and no page is lost."""
        self.settle()
        assert self.side.num_requests == 0
        assert self.side.num_steps_in_flight == 0
        assert self.side.directory.num_pinned == 0
        assert self.side.directory.num_reserved == 0
        self.side.directory.check_conservation()

    def _record_steps(self) -> None:
        build = self.side.build_step

        def recording(output: Any) -> Any:
            step = build(output)
            self.steps.append(step)
            return step

        self.side.build_step = recording


def random_tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(3, 512) for _ in range(count)]


def logprob_differences(expected: Answer, actual: Answer) -> list[float]:
    """Absolute differences over the expected top 20, up to the first token that differs.

    Of a token that the other answer does not list only so much is known that it is below what that
    one lists: the difference is at least what lies between.
    """
    differences = []
    for step, (wanted, seen) in enumerate(zip(expected.logprobs, actual.logprobs, strict=True)):
        differences += [
            abs(value - seen[token]) if token in seen else max(0.0, value - min(seen.values()))
            for token, value in wanted.items()
        ]
        if expected.token_ids[step] != actual.token_ids[step]:
            break
    return differences


def top_gap(answer: Answer, step: int = 0) -> float:
    """Log-probability of the best token less that of the second."""
    best = sorted(answer.logprobs[step].values(), reverse=True)
    return best[0] - best[1]


def _answer(output: Any) -> Answer:
    completion = output.outputs[0]
    return Answer(
        token_ids=list(completion.token_ids),
        logprobs=[
            {token: entry.logprob for token, entry in step.items() if entry.rank <= 20}
            for step in completion.logprobs
        ],
        cached=output.num_cached_tokens or 0,
        finish_reason=completion.finish_reason,
    )
