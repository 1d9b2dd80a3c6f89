"""Dropping facts, and every chunk that saw one of them, from all that this worker holds."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from inferscale_core.errors import InferScaleError, Unavailable
from inferscale_core.ids import FactId, TurnId, UserScope
from inferscale_core.kv.tiers import Tier
from inferscale_core.retrieval import UserSnapshot
from inferscale_core.telemetry import names
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.tracing import span
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.params import Forget as ForgetParams
from inferscale_core.vllm_connector.params import RequestParams
from services.worker.engine.mirror import DirectoryMirror
from services.worker.engine.protocol import ONE_TOKEN, Engine, EngineRequest, run_to_end
from services.worker.engine.reports import Reports
from services.worker.open_chats import OpenChats
from services.worker.salts import CacheSalts
from services.worker.shadow.checks import ShadowChecks
from services.worker.users import UserAt, UserCache

_log = get_logger(__name__)

ACKNOWLEDGE_WAIT_S = 30.0
"""Longer than any step of the engine; callers set a deadline of their own."""


@dataclass(frozen=True, slots=True)
class Purged:
    """user_cache: facts removed from it. chunks: dropped, `dependants` of them of other facts.
    copies: of these chunks, by tier. pending: of this and earlier calls, copies that are zeroed or
    removed when their reader or writer ends."""

    user_cache: int = 0
    chunks: int = 0
    dependants: int = 0
    copies: Mapping[Tier, int] = field(default_factory=dict)
    pending: Mapping[Tier, int] = field(default_factory=dict)


class Forget:
    """From the return on, nothing on this worker is served from what was forgotten: encode requests
    planned before are refused, and chats that had seen what is deleted are out of the engine."""

    def __init__(
        self,
        users: UserCache,
        engine: Engine,
        reports: Reports,
        mirror: DirectoryMirror,
        control_prompt: tuple[int, ...],
        shadow: ShadowChecks,
        open_chats: OpenChats,
    ) -> None:
        """control_prompt: any tokens; the engine takes commands with a request."""
        self._users = users
        self._engine = engine
        self._reports = reports
        self._mirror = mirror
        self._control_prompt = control_prompt
        self._shadow = shadow
        self._open_chats = open_chats

    async def __call__(
        self,
        user: UserAt,
        fact_ids: Iterable[FactId],
        dependant_ids: Iterable[FactId],
        turn_ids: Iterable[TurnId],
    ) -> Purged:
        """Forget facts and turns that were removed at `user.memory_version`.

        dependant_ids: facts that control knows to have seen them; others that this worker knows of
        are found as well. Raises Unavailable when the engine does not acknowledge.
        """
        gone, turns = frozenset(fact_ids), frozenset(turn_ids)
        await self._shadow.forget(user.scope)
        held = self._users.peek(user.scope)
        # In a thread: some 0.1 s for 10,000 facts.
        readers = await asyncio.to_thread(held.readers_of, gone, turns) if held else set()
        newest = await self._newest(user, held)
        num_removed = _num_removed(gone, held, newest)
        deleted = gone - newest.facts.keys() if newest else gone
        await self._open_chats.withdraw(user.scope, deleted, turns)
        if newest is not None:
            # A chat may have brought the copy beyond the removal, whose readers it then no longer
            # names; but what saw something that is gone is not what the facts should have now.
            readers |= self._stale(newest)
        version = max(user.memory_version, newest.memory_version if newest else 0)
        purged = await self._drop(user.scope, gone, readers | set(dependant_ids), version)
        await self._compare_disk(user)
        return replace(purged, user_cache=num_removed)

    async def stale_chunks(self, snapshot: UserSnapshot) -> None:
        """Drop the user's chunks of old revisions, and those that saw one."""
        stale = self._stale(snapshot)
        if stale:
            purged = await self._drop(snapshot.scope, stale, set(), snapshot.memory_version)
            _log.info("forget.stale", facts=len(stale), chunks=purged.chunks)

    def _stale(self, snapshot: UserSnapshot) -> set[FactId]:
        """Facts of the user with a chunk that is none of those that the snapshot wants."""
        wanted = {spec.key for spec in snapshot.specs.values()}
        return {
            chunk.fact.fact_id
            for chunk in self._mirror.of_scope(snapshot.scope)
            if chunk.key not in wanted and chunk.fact is not None
        }

    async def _newest(self, user: UserAt, held: UserSnapshot | None) -> UserSnapshot | None:
        """The user's copy, beyond the removal. None when there is none and nobody needs one;
        without control, the copy is dropped."""
        if held is None and not self._open_chats.has_any(user.scope):
            return None
        try:
            return await self._users.at_least(user, with_disk=False)
        except InferScaleError as exc:
            _log.warning("forget.user_dropped", exc=exc)
            self._users.drop(user.scope)
            return None

    async def _compare_disk(self, user: UserAt) -> None:
        """After the forget, which counts what it drops on disk. What is left there and nobody
        asked for since the start goes with it; and the rest is sealed under the new key."""
        try:
            await self._users.compare_disk(user)
        except InferScaleError as exc:
            # The old key is destroyed all the same: nothing of before can be read after a start.
            _log.warning("forget.disk_not_compared", exc=exc)

    async def _drop(
        self, scope: UserScope, facts: Iterable[FactId], readers: set[FactId], version: int
    ) -> Purged:
        named = {*facts}
        own = sum(
            chunk.fact is not None and chunk.fact.fact_id in named
            for chunk in self._mirror.of_scope(scope)
        )
        command = ForgetParams(scope, tuple(sorted(named | readers)), version)
        request = EngineRequest(
            token_ids=self._control_prompt,
            params=RequestParams(handle=uuid.uuid4().hex, forget=command),
            cache_salt=CacheSalts.once(),
            sampling=ONE_TOKEN,
        )
        with (
            span(names.FORGET, {names.FACT_COUNT: len(command.fact_ids)}),
            self._reports.follow(request.params.handle) as report,
        ):
            await run_to_end(self._engine, request)
            event = await report.first_of({EventKind.FORGOTTEN}, ACKNOWLEDGE_WAIT_S)
        if event is None:
            raise Unavailable("the engine has not acknowledged that it forgot")
        num_chunks = event.fields["num_chunks"]
        return Purged(
            chunks=num_chunks,
            dependants=max(0, num_chunks - own),
            copies={Tier(name): n for name, n in event.fields["num_by_tier"].items() if n},
            pending=self._mirror.unzeroed(scope),
        )


def _num_removed(
    gone: frozenset[FactId], held: UserSnapshot | None, newest: UserSnapshot | None
) -> int:
    """Of the facts that the copy had before, those that it has no more."""
    before = gone & held.facts.keys() if held else frozenset()
    return len(before - newest.facts.keys() if newest else before)
