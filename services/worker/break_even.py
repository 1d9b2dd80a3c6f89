"""How much memory a prompt must have for injection to be faster than prefilling it.

A forward pass reads all weights whatever it computes, so on a GPU some tokens more cost no time
until computing them takes longer than that reading. Where this ends depends on the model and the
card, so a worker measures it when it starts, with its own engine.

    ms  text ──────────╮ ╱           A prompt whose memory is shorter than where the lines cross is
        injected ─────────────       served as text, with the same tokens in the same order, while
                     n ▲ tokens      the worker answers no other chat.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from inferscale_core.errors import EngineError
from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Spans
from inferscale_core.telemetry import metrics
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.params import Capture, Forget, RequestParams
from services.worker.engine.protocol import ONE_TOKEN, Engine, EngineRequest, run_to_end
from services.worker.engine.reports import Reports
from services.worker.header import CAPTURE_OUTCOMES, CAPTURE_WAIT_S
from services.worker.salts import CacheSalts

_log = get_logger(__name__)

MEASURE_SCOPE = UserScope("shared/break-even")
"""No user's. Its chunks are forgotten when the measurement ends."""

LENGTHS = (64, 128, 256, 512, 1024)
"""Tokens of memory that are tried. On one H200 and a model of 8B the lines cross below 512."""

CHUNK_TOKENS, TAIL_TOKENS = 32, 32
"""A fact and a question of usual length."""

MAX_ROUNDS = 7
BUDGET_S = 1.5
"""After the first two rounds no other begins when this has passed. One takes 0.1 s on an H200."""

SERVED_WAIT_S = 1.0
ARENA_SHARE = 4
"""The measurement takes at most one part in this many of the arena."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Medians of the time to the first token of a prompt with `num_tokens` tokens of memory."""

    num_tokens: int
    text_ms: float
    injected_ms: float

    @property
    def saved_ms(self) -> float:
        return self.text_ms - self.injected_ms


def break_even(samples: Sequence[Sample]) -> int:
    """Tokens of memory from which on injection saves time; 0 when it does at every length.

    samples: by length. Between the last length at which it saves nothing and the next one, time is
    taken to be linear; beyond the longest, injection is taken to pay.
    """
    losing = [place for place, sample in enumerate(samples) if sample.saved_ms <= 0]
    if not losing:
        return 0
    last = samples[losing[-1]]
    if last is samples[-1]:
        return last.num_tokens + 1
    following = samples[losing[-1] + 1]
    share = -last.saved_ms / (following.saved_ms - last.saved_ms)
    return last.num_tokens + 1 + int(share * (following.num_tokens - last.num_tokens))


class BreakEven:
    """min_tokens: of memory, for a plan to inject it. Belongs to one event loop; other threads may
    read it."""

    def __init__(
        self, engine: Engine, reports: Reports, filler: tuple[int, ...], min_tokens: int = 0
    ) -> None:
        """filler: any tokens of the model."""
        self._engine = engine
        self._reports = reports
        self._filler = filler
        self.min_tokens = min_tokens
        metrics.min_injected_tokens(lambda: self.min_tokens)

    async def measure(self) -> tuple[Sample, ...]:
        """Find `min_tokens` for this engine, while it has nothing else to do.

        Leaves nothing behind in the engine. Without samples, as when the engine is too small or
        cannot store a chunk, `min_tokens` stays as it is.
        """
        lengths = self._lengths()
        if not lengths:
            return ()
        started = time.perf_counter()
        try:
            await asyncio.gather(*map(self._store, range(lengths[-1] // CHUNK_TOKENS)))
            samples = await self._sample(lengths, started)
        except EngineError as exc:
            _log.warning("break_even.not_measured", exc=exc)
            return ()
        finally:
            await self._forget(lengths[-1] // CHUNK_TOKENS)
        self.min_tokens = break_even(samples)
        _log.info(
            "break_even.measured",
            min_injected_tokens=self.min_tokens,
            seconds=round(time.perf_counter() - started, 2),
            samples=" ".join(
                f"{s.num_tokens}:{s.text_ms:.2f}/{s.injected_ms:.2f}ms" for s in samples
            ),
        )
        return samples

    def _lengths(self) -> list[int]:
        """Those that the context and the arena have room for."""
        arena = self._engine.arena
        pages = arena.num_pages // ARENA_SHARE
        room = pages // arena.pages_for(CHUNK_TOKENS) * CHUNK_TOKENS
        longest = min(room, self._engine.max_model_len - TAIL_TOKENS - 1)
        return [length for length in LENGTHS if length <= longest]

    async def _sample(self, lengths: Sequence[int], started: float) -> tuple[Sample, ...]:
        """Rounds over all lengths, text and injected in turn; the first one only warms up."""
        times: dict[tuple[int, bool], list[float]] = {
            (length, inject): [] for length in lengths for inject in (False, True)
        }
        for number in range(1 + MAX_ROUNDS):
            if number > 1 and time.perf_counter() - started > BUDGET_S:
                break
            for (length, inject), seen in times.items():
                duration_ms = await self._first_token_ms(length, inject=inject)
                if number > 0:
                    seen.append(duration_ms)
        medians = {key: statistics.median(seen) for key, seen in times.items()}
        return tuple(Sample(n, medians[n, False], medians[n, True]) for n in lengths)

    async def _first_token_ms(self, length: int, *, inject: bool) -> float:
        """Raises EngineError when the memory was not served as it was to be."""
        keys = [_key(number) for number in range(length // CHUNK_TOKENS)]
        spans = Spans(keys, [CHUNK_TOKENS] * len(keys)) if inject else Spans.of(())
        params = RequestParams(uuid.uuid4().hex, spans=spans)
        with self._reports.follow(params.handle) as report:
            started = time.perf_counter()
            await run_to_end(self._engine, self._request(length + TAIL_TOKENS, params))
            duration_ms = (time.perf_counter() - started) * 1e3
            if inject:
                served = await report.first_of({EventKind.SERVED}, SERVED_WAIT_S)
                if served is None or served.fields["injected_tokens"] != length:
                    raise EngineError("the engine did not inject what was just stored")
        return duration_ms

    async def _store(self, number: int) -> None:
        fact = FactRef(_fact_id(number), 1)
        capture = Capture(_key(number), 0, CHUNK_TOKENS, (), fact, planned_version=0)
        params = RequestParams(uuid.uuid4().hex, capture=capture)
        with self._reports.follow(params.handle) as report:
            await run_to_end(self._engine, self._request(CHUNK_TOKENS, params))
            event = await report.first_of(CAPTURE_OUTCOMES, CAPTURE_WAIT_S)
        if event is None or event.kind is not EventKind.CAPTURED:
            reason = event.fields.get("reason") if event else "no answer"
            raise EngineError(f"a chunk for the break-even could not be stored: {reason}")

    async def _forget(self, count: int) -> None:
        command = Forget(MEASURE_SCOPE, tuple(map(_fact_id, range(count))), version=0)
        params = RequestParams(uuid.uuid4().hex, forget=command)
        await run_to_end(self._engine, self._request(1, params))

    def _request(self, num_tokens: int, params: RequestParams) -> EngineRequest:
        tokens = tuple(itertools.islice(itertools.cycle(self._filler), num_tokens))
        return EngineRequest(tokens, params, CacheSalts.once(), ONE_TOKEN)


def _fact_id(number: int) -> FactId:
    return FactId(f"break-even-{number}")


def _key(number: int) -> ChunkKey:
    return ChunkKey(f"{MEASURE_SCOPE}/{number}")
