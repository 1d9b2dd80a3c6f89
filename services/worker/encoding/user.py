"""Bringing the chunks of one user up to their facts, wave by wave.

A fact is sent to the engine as soon as the chunks of its prefix are resident. What is resident may
change at any moment: chunks are evicted, the user's facts move on. So after every answer the run
looks again, and what an answer is worth is decided by the facts as they are then.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Container, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from weakref import WeakValueDictionary

from inferscale_core.ids import ChunkKey, TurnId, UserScope
from inferscale_core.memory.canonical import ChunkSpec
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.waves import Waves
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

FACTS_AT_ONCE = 500
"""Looked at before others get their turn: some 0.5 ms."""

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
    """waves: what may be encoded of the snapshot. changed: chunks that came or went and were not
    looked at since. running: chunks in the engine, or on the way there. failed: chunks given up,
    with the reason. reported: chunks, and facts without one, of which a result was given.
    planned_at: when the snapshot was known to be the user's newest.

    After each answer only what has changed is looked at, so that a user of many facts takes no more
    of the event loop for each chunk than one of few.
    """

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
        self._waves = Waves((), ())
        self._changed: deque[ChunkKey] = deque()
        self._running: dict[asyncio.Task[Outcome], ChunkSpec] = {}
        self._ended: asyncio.Queue[asyncio.Task[Outcome]] = asyncio.Queue()
        self._attempts: Counter[ChunkKey] = Counter()
        self._last_outcome: dict[ChunkKey, Outcome] = {}
        self._failed: dict[ChunkKey, str] = {}
        self._reported: set[ChunkKey | FactRef] = set()
        self._num_waves = 0

    async def results(self) -> AsyncGenerator[EncodeResult, None]:
        with self._mirror.watch(self._snapshot.scope) as self._changed:
            try:
                is_new = True
                while True:
                    if is_new:
                        await self._take_up()
                        async for result in self._all_settled():
                            yield result
                    for result in self._newly_stored():
                        yield result
                    await self._header.ensure()
                    for result in self._start_ready():
                        yield result
                    if not self._running:
                        break
                    for result in await self._answer():
                        yield result
                    is_new = self._move_on()
                async for result in self._left_over():
                    yield result
            finally:
                for task in self._running:
                    task.cancel()
                await asyncio.gather(*self._running, return_exceptions=True)

    def _move_on(self) -> bool:
        """Whether there is another snapshot than before: the user's facts as they are now."""
        now, held = time.monotonic(), self._users.peek(self._snapshot.scope)
        if held is None:
            return False
        self._planned_at = now
        is_newer = held.memory_version > self._snapshot.memory_version
        if is_newer:
            self._snapshot = held
        return is_newer

    async def _take_up(self) -> None:
        """Work out the waves of the snapshot. Others are streaming meanwhile."""
        self._changed.clear()
        resident = self._mirror.keys_of(self._snapshot.scope)
        self._waves, beyond = await asyncio.to_thread(_plan, self._snapshot, resident, self._arena)
        self._failed.update(dict.fromkeys(beyond, Outcome.ARENA_FULL.value))
        for key in (*self._failed, *(spec.key for spec in self._running.values())):
            self._waves.withhold(key)

    async def _all_settled(self) -> AsyncGenerator[EncodeResult, None]:
        """Results not given yet: of chunks that are resident or given up, of facts without one."""
        for number, fact in enumerate(self._snapshot.facts.values()):
            if number % FACTS_AT_ONCE == 0:
                await asyncio.sleep(0)
            spec = self._snapshot.spec_of(fact.fact_id)
            if spec is None:
                if self._is_first(fact.ref):
                    yield self._counted(self._too_long(fact))
            elif spec.key in self._mirror:
                if self._is_first(spec.key):
                    yield self._counted(self._stored(spec))
            elif spec.key in self._failed and self._is_first(spec.key):
                yield self._counted(self._without_chunk(spec, self._failed[spec.key]))

    def _newly_stored(self) -> Iterator[EncodeResult]:
        while self._changed:
            key = self._changed.popleft()
            is_resident, spec = key in self._mirror, self._waves.spec_of(key)
            self._waves.note(key, is_resident=is_resident)
            if is_resident and spec is not None and self._is_first(key):
                yield self._counted(self._stored(spec))

    def _start_ready(self) -> Iterator[EncodeResult]:
        """No more than keep the engine busy, the earliest facts first. Results of those that are
        given up."""
        while len(self._running) < self._encoder.max_started:
            spec = self._waves.take()
            if spec is None:
                return
            if self._attempts[spec.key] == MAX_ATTEMPTS:
                last = self._last_outcome.get(spec.key, Outcome.INTERRUPTED)
                # Stored three times and evicted each time is a full arena too.
                yield from self._give_up(spec, Outcome.ARENA_FULL if last is Outcome.DONE else last)
                continue
            self._attempts[spec.key] += 1
            task = asyncio.create_task(self._encoder.encode(self._snapshot, spec, self._planned_at))
            task.add_done_callback(self._ended.put_nowait)
            self._running[task] = spec

    async def _answer(self) -> list[EncodeResult]:
        """Wait for at least one chunk. Raises what ends the run, such as a dead engine."""
        self._num_waves += 1
        attributes = {names.WAVE: self._num_waves, names.CHUNK_COUNT: len(self._running)}
        with span(names.ENCODE_WAVE, attributes):
            done = [await self._ended.get()]
        while not self._ended.empty():
            done.append(self._ended.get_nowait())
        results: list[EncodeResult] = []
        for task in done:
            spec = self._running.pop(task)
            self._last_outcome[spec.key] = outcome = task.result()
            self._waves.give_back(spec.key)
            if outcome in (Outcome.REFUSED, Outcome.OUTSIDE_WINDOW):
                results += self._give_up(spec, outcome)
        return results

    def _give_up(self, spec: ChunkSpec, outcome: Outcome) -> Iterator[EncodeResult]:
        self._failed[spec.key] = outcome.value
        self._waves.withhold(spec.key)
        is_wanted = self._waves.spec_of(spec.key) is not None
        if is_wanted and spec.key not in self._mirror and self._is_first(spec.key):
            yield self._counted(self._without_chunk(spec, outcome.value))

    async def _left_over(self) -> AsyncGenerator[EncodeResult, None]:
        """What can never be encoded: given up, or behind something that is."""
        for number, spec in enumerate(self._snapshot.specs.values()):
            if number % FACTS_AT_ONCE == 0:
                await asyncio.sleep(0)
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


def _plan(
    snapshot: UserSnapshot, resident: Container[ChunkKey], arena: ArenaSize
) -> tuple[Waves, list[ChunkKey]]:
    """The user's waves, and the chunks that there is no room for: facts are kept from the earliest
    on, up to what the largest tier holds."""
    room = arena.largest_tier - arena.pages_for(snapshot.rules.header_tokens)
    beyond: list[ChunkKey] = []
    for fact_id, spec in snapshot.specs.items():
        room -= arena.pages_for(len(snapshot.facts[fact_id].token_ids))
        if room < 0:
            beyond.append(spec.key)
    return Waves(snapshot.specs.values(), resident), beyond
