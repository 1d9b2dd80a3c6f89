"""Bringing the chunks of one user up to their facts, wave by wave.

A fact is sent to the engine as soon as the chunks of its prefix are resident. What is resident may
change at any moment: chunks are evicted, the user's facts move on. So after every answer the run
looks again, and what an answer is worth is decided by the facts as they are then.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from weakref import WeakValueDictionary

from inferscale_core.ids import ChunkKey, TurnId, UserScope
from inferscale_core.memory.canonical import ChunkSpec
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.waves import next_wave
from inferscale_core.retrieval import FactEntry, UserSnapshot
from inferscale_core.telemetry import metrics, names
from inferscale_core.telemetry.tracing import span
from services.worker.encoding.chunk import ChunkEncoder, Outcome
from services.worker.engine.mirror import DirectoryMirror
from services.worker.engine.protocol import ArenaSize
from services.worker.forget import Forget
from services.worker.header import HeaderChunk
from services.worker.users import UserAt, UserCache

MAX_ATTEMPTS = 3
"""Engine requests for one chunk in one run. A second one means that the chunk or its prefix was
evicted or fenced meanwhile; when three do not suffice, the arena is too small for what goes on."""

TOO_LONG = "too_long"
PREFIX_MISSING = "prefix_missing"


@dataclass(frozen=True, slots=True)
class EncodeResult:
    """reason: why the fact has no chunk, a code and for some figures; None when it has one.
    saw_as_text: the facts of its prefix stood there as text."""

    fact: FactRef
    reason: str | None
    num_tokens: int
    chunk_digest: str = ""
    prefix_facts: tuple[FactRef, ...] = ()
    prefix_turn_ids: tuple[TurnId, ...] = ()
    saw_as_text: bool = False
    already_resident: bool = False


class EncodeUser:
    """Runs of one user go one after the other, those of different users side by side."""

    def __init__(
        self,
        users: UserCache,
        encoder: ChunkEncoder,
        header: HeaderChunk,
        forget: Forget,
        mirror: DirectoryMirror,
        arena: ArenaSize,
    ) -> None:
        self._users = users
        self._encoder = encoder
        self._header = header
        self._forget = forget
        self._mirror = mirror
        self._arena = arena
        self._locks: WeakValueDictionary[UserScope, asyncio.Lock] = WeakValueDictionary()

    async def __call__(self, user: UserAt) -> AsyncGenerator[EncodeResult, None]:
        """One result for each live fact as it is settled; those already resident at once.

        When the user's facts move on meanwhile, the new ones are encoded too, and results of what
        was replaced are not given.
        """
        lock = self._locks.setdefault(user.scope, asyncio.Lock())
        async with lock:
            planned_at = time.monotonic()
            snapshot = await self._users.at_least(user)
            await self._forget.stale_chunks(snapshot)
            run = _Run(
                snapshot,
                planned_at,
                self._users,
                self._encoder,
                self._header,
                self._mirror,
                self._arena,
            )
            async with aclosing(run.results()) as results:
                async for result in results:
                    yield result


class _Run:
    """running: chunks in the engine. failed: chunks given up, with the reason. reported: chunks,
    and facts without one, of which a result was given. planned_at: when the snapshot was known to
    be the user's newest."""

    def __init__(
        self,
        snapshot: UserSnapshot,
        planned_at: float,
        users: UserCache,
        encoder: ChunkEncoder,
        header: HeaderChunk,
        mirror: DirectoryMirror,
        arena: ArenaSize,
    ) -> None:
        self._snapshot = snapshot
        self._planned_at = planned_at
        self._users = users
        self._encoder = encoder
        self._header = header
        self._mirror = mirror
        self._arena = arena
        self._running: dict[asyncio.Task[Outcome], ChunkSpec] = {}
        self._attempts: Counter[ChunkKey] = Counter()
        self._last_outcome: dict[ChunkKey, Outcome] = {}
        self._failed: dict[ChunkKey, str] = {}
        self._reported: set[ChunkKey | FactRef] = set()
        self._num_waves = 0

    async def results(self) -> AsyncGenerator[EncodeResult, None]:
        self._give_up_beyond_arena()
        try:
            while True:
                self._move_on()
                for result in self._settled():
                    yield result
                await self._header.ensure()
                self._start_ready()
                if not self._running:
                    break
                await self._answer()
            for result in self._left_over():
                yield result
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    def _move_on(self) -> None:
        """Take up the user's facts as they are now."""
        now, held = time.monotonic(), self._users.peek(self._snapshot.scope)
        if held is None:
            return
        self._planned_at = now
        if held.memory_version > self._snapshot.memory_version:
            self._snapshot = held
            self._give_up_beyond_arena()

    def _give_up_beyond_arena(self) -> None:
        """Facts are kept from the earliest on, up to what the largest tier holds."""
        room = self._arena.largest_tier - self._arena.pages_for(self._snapshot.rules.header_tokens)
        for spec in self._snapshot.specs.values():
            room -= self._arena.pages_for(self._num_tokens(spec))
            if room < 0:
                self._failed[spec.key] = Outcome.ARENA_FULL.value

    def _settled(self) -> Iterator[EncodeResult]:
        """Results not given yet: of chunks that are resident or given up, of facts without one."""
        for fact in self._snapshot.facts.values():
            spec = self._snapshot.spec_of(fact.fact_id)
            if spec is None:
                if self._is_first(fact.ref):
                    yield self._counted(self._too_long(fact))
            elif spec.key in self._mirror:
                if self._is_first(spec.key):
                    yield self._counted(self._stored(spec))
            elif spec.key in self._failed and self._is_first(spec.key):
                yield self._counted(self._without_chunk(spec, self._failed[spec.key]))

    def _start_ready(self) -> None:
        busy = {spec.key for spec in self._running.values()}
        for spec in next_wave(self._snapshot.specs.values(), self._mirror):
            if spec.key in busy or spec.key in self._failed:
                continue
            if self._attempts[spec.key] == MAX_ATTEMPTS:
                last = self._last_outcome.get(spec.key, Outcome.INTERRUPTED)
                # Stored three times and evicted each time is a full arena too.
                self._failed[spec.key] = (
                    Outcome.ARENA_FULL if last is Outcome.DONE else last
                ).value
                continue
            self._attempts[spec.key] += 1
            task = asyncio.create_task(self._encoder.encode(self._snapshot, spec, self._planned_at))
            self._running[task] = spec

    async def _answer(self) -> None:
        """Wait for at least one chunk. Raises what ends the run, such as a dead engine."""
        self._num_waves += 1
        attributes = {names.WAVE: self._num_waves, names.CHUNK_COUNT: len(self._running)}
        with span(names.ENCODE_WAVE, attributes):
            done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            spec = self._running.pop(task)
            self._last_outcome[spec.key] = outcome = task.result()
            if outcome in (Outcome.REFUSED, Outcome.OUTSIDE_WINDOW):
                self._failed[spec.key] = outcome.value

    def _left_over(self) -> Iterator[EncodeResult]:
        """What can never be encoded: given up, or behind something that is."""
        for spec in self._snapshot.specs.values():
            if spec.key not in self._mirror and self._is_first(spec.key):
                reason = self._failed.get(spec.key, PREFIX_MISSING)
                yield self._counted(self._without_chunk(spec, reason))

    def _is_first(self, key: ChunkKey | FactRef) -> bool:
        if key in self._reported:
            return False
        self._reported.add(key)
        return True

    def _stored(self, spec: ChunkSpec) -> EncodeResult:
        return EncodeResult(
            fact=spec.fact,
            reason=None,
            num_tokens=self._num_tokens(spec),
            chunk_digest=spec.key.rpartition("/")[2],
            prefix_facts=spec.prefix_facts,
            prefix_turn_ids=spec.turn_ids,
            saw_as_text=spec.reads_text,
            already_resident=self._attempts[spec.key] == 0,
        )

    def _too_long(self, fact: FactEntry) -> EncodeResult:
        num_tokens, limit = len(fact.token_ids), self._snapshot.rules.max_fact_tokens
        reason = f"{TOO_LONG}: {num_tokens} tokens; at most {limit} fit"
        return EncodeResult(fact.ref, reason, num_tokens)

    def _without_chunk(self, spec: ChunkSpec, reason: str) -> EncodeResult:
        return EncodeResult(spec.fact, reason, self._num_tokens(spec))

    def _num_tokens(self, spec: ChunkSpec) -> int:
        return len(self._snapshot.facts[spec.fact.fact_id].token_ids)

    @staticmethod
    def _counted(result: EncodeResult) -> EncodeResult:
        stored = "resident" if result.already_resident else "done"
        metrics.chunk_encoded("failed" if result.reason else stored)
        return result
