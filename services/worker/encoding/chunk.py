"""One chunk through the engine: its prefix injected, the fact prefilled, its KV captured."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum

from inferscale_core.errors import EngineError, InvalidInput
from inferscale_core.ids import ChunkKey
from inferscale_core.kv.tiers import Tier
from inferscale_core.memory.canonical import ChunkSpec
from inferscale_core.memory.spans import Spans
from inferscale_core.retrieval import ChunkRules, UserSnapshot
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.vllm_connector.events import Event, EventKind
from inferscale_core.vllm_connector.params import Capture, RequestParams
from services.worker.engine.mirror import DirectoryMirror, MirroredChunk
from services.worker.engine.protocol import ONE_TOKEN, Engine, EngineRequest, run_to_end
from services.worker.engine.reports import Reports
from services.worker.header import CAPTURE_OUTCOMES, CAPTURE_WAIT_S
from services.worker.salts import CacheSalts

_log = get_logger(__name__)

RETRY_S = 0.05
"""Before the caller looks again at what was in the way."""


class Outcome(Enum):
    """INTERRUPTED: the prefix or the user's facts moved. OUTSIDE_WINDOW: the engine has given up
    blocks of the fact, whose layers look back too short a way. Values are reasons of a failure."""

    DONE = "done"
    INTERRUPTED = "interrupted"
    ARENA_FULL = "arena_full"
    OUTSIDE_WINDOW = "outside_window"
    REFUSED = "engine"


class ChunkEncoder:
    """Sends single chunks to the engine, a bounded number at once over all users."""

    def __init__(
        self,
        engine: Engine,
        reports: Reports,
        mirror: DirectoryMirror,
        rules: ChunkRules,
        header_ids: tuple[int, ...],
        max_in_engine: int,
    ) -> None:
        self._engine = engine
        self._reports = reports
        self._mirror = mirror
        self._rules = rules
        self._header_ids = header_ids
        self.max_started = 2 * max_in_engine
        """Of one user: as many again wait, so that the engine is never short of them."""
        self._slots = asyncio.Semaphore(max_in_engine)
        self._waiting_since: dict[ChunkKey, float] = {}

    async def encode(self, snapshot: UserSnapshot, spec: ChunkSpec, planned_at: float) -> Outcome:
        """Store the chunk of one fact, whose prefix should be resident.

        planned_at: as `Capture`'s.
        """
        request = self._request(snapshot, spec, planned_at)
        async with self._slot(spec.key):
            outcome = await self._run(request, spec)
        if outcome in (Outcome.INTERRUPTED, Outcome.ARENA_FULL):
            await asyncio.sleep(RETRY_S)
        return outcome

    def num_waiting(self) -> int:
        """Chunks that wait for their turn in the engine."""
        return len(self._waiting_since)

    def oldest_wait_s(self) -> float:
        since = min(list(self._waiting_since.values()), default=None)
        return 0.0 if since is None else time.monotonic() - since

    @asynccontextmanager
    async def _slot(self, key: ChunkKey) -> AsyncIterator[None]:
        self._waiting_since[key] = time.monotonic()
        try:
            await self._slots.acquire()
        finally:
            del self._waiting_since[key]
        try:
            yield
        finally:
            self._slots.release()

    async def _run(self, request: EngineRequest, spec: ChunkSpec) -> Outcome:
        with self._reports.follow(request.params.handle) as report:
            try:
                await run_to_end(self._engine, request)
            except (EngineError, InvalidInput) as exc:
                _log.warning("encode.failed", exc=exc, fact_id=spec.fact.fact_id)
                return Outcome.REFUSED
            event = await report.first_of(CAPTURE_OUTCOMES, CAPTURE_WAIT_S)
            return self._judge(request, spec, event, report.get(EventKind.SERVED))

    def _judge(
        self, request: EngineRequest, spec: ChunkSpec, event: Event | None, served: Event | None
    ) -> Outcome:
        if event is None:
            return Outcome.INTERRUPTED
        if event.kind is EventKind.CAPTURED:
            return Outcome.DONE
        reason = event.fields["reason"]
        if event.kind is EventKind.REJECTED:
            _log.error("encode.rejected", fact_id=spec.fact.fact_id, reason=reason)
            return Outcome.REFUSED
        if reason == "another_user":
            _log.error("encode.of_another_user", fact_id=spec.fact.fact_id)
            return Outcome.REFUSED
        if reason == "arena_full":
            return Outcome.ARENA_FULL
        if reason == "outside_window":
            return Outcome.OUTSIDE_WINDOW
        if reason == "duplicate":
            self._mirror.add(_mirrored(request))
            return Outcome.DONE
        if reason == "missing_prefix":
            self._correct_mirror(request, served)
        return Outcome.INTERRUPTED

    def _correct_mirror(self, request: EngineRequest, served: Event | None) -> None:
        """The engine did not have all spans: it certainly lacks the first it did not inject."""
        if served is None:
            return
        supplied = served.fields["native_tokens"] + served.fields["injected_tokens"]
        for missing in request.params.spans:
            supplied -= missing.num_tokens
            if supplied < 0:
                self._mirror.discard(missing.key)
                return

    def _request(self, snapshot: UserSnapshot, spec: ChunkSpec, planned_at: float) -> EngineRequest:
        fact_ids = snapshot.facts[spec.fact.fact_id].token_ids
        prefix_ids, spans = self._prefix(snapshot, spec)
        capture = Capture(
            key=spec.key,
            start=len(prefix_ids),
            num_tokens=len(fact_ids),
            prefix_keys=spec.prefix_keys,
            fact=spec.fact,
            planned_version=snapshot.memory_version,
            planned_at=planned_at,
        )
        return EngineRequest(
            token_ids=(*prefix_ids, *fact_ids),
            params=RequestParams(handle=uuid.uuid4().hex, spans=spans, capture=capture),
            cache_salt=CacheSalts.once(),
            sampling=ONE_TOKEN,
        )

    def _prefix(self, snapshot: UserSnapshot, spec: ChunkSpec) -> tuple[tuple[int, ...], Spans]:
        """Tokens before the fact. The header is injected, and so are earlier facts whose chunks the
        spec names; others are prefilled as text, and so are turns."""
        ids: list[int] = []
        keys: list[ChunkKey] = []
        counts: list[int] = []
        if self._rules.has_header:
            ids.extend(self._header_ids)
            keys.append(self._rules.header_key)
            counts.append(len(self._header_ids))
        earlier = [snapshot.facts[ref.fact_id].token_ids for ref in spec.prefix_facts]
        if spec.prefix_keys:
            keys.extend(spec.prefix_keys)
            counts.extend(map(len, earlier))
        for token_ids in earlier:
            ids.extend(token_ids)
        for turn in snapshot.prefix_turns(spec):
            ids.extend(turn.token_ids)
        return tuple(ids), Spans(keys, counts)


def _mirrored(request: EngineRequest) -> MirroredChunk:
    capture = request.params.capture
    assert capture is not None
    return MirroredChunk(capture.key, capture.num_tokens, capture.fact, Tier.GPU)
