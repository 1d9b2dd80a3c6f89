"""The users whose memory this worker holds, each at some version, least recently used first out."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Protocol, TypeVar

import numpy as np
import torch

from inferscale_core.errors import InferScaleError, Unavailable
from inferscale_core.ids import ConversationId, FactId, TenantId, TurnId, UserId, UserScope
from inferscale_core.memory.canonical import user_scope
from inferscale_core.memory.disk_keys import DiskKey
from inferscale_core.memory.facts import FactRef
from inferscale_core.prompt import PromptFormat
from inferscale_core.retrieval import (
    ChunkRules,
    FactEntry,
    MemoryDelta,
    SearchDevice,
    TurnEntry,
    UserSnapshot,
)
from inferscale_core.rpc.pb.inferscale.v1 import sync_pb2
from inferscale_core.telemetry import names
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.metrics import CacheMetrics
from inferscale_core.telemetry.tracing import span

_log = get_logger(__name__)

_FLOAT = np.dtype("<f4")

_Id = TypeVar("_Id", FactId, TurnId)
_Change = TypeVar("_Change")


class ChangeSource(Protocol):
    async def list_changes(
        self, tenant_id: TenantId, user_id: UserId, after_version: int
    ) -> list[sync_pb2.ListChangesResponse]: ...


class DiskTier(Protocol):
    async def compare(self, snapshot: UserSnapshot, disk_key: DiskKey) -> None:
        """Have on disk what the user should have, under this key, and nothing else of the user."""


@dataclass(frozen=True, slots=True)
class UserAt:
    """A user, and the state of their memory that must have been reached."""

    tenant_id: TenantId
    user_id: UserId
    memory_version: int = 0

    @property
    def scope(self) -> UserScope:
        return user_scope(self.tenant_id, self.user_id)


@dataclass(slots=True)
class _Slot:
    """The lock is held while changes are fetched. disk_key: the one the disk was compared under.
    next_disk_key: the one it is to be compared under, until that was tried."""

    snapshot: UserSnapshot
    disk_key: DiskKey | None = None
    next_disk_key: DiskKey | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class UserCache:
    """Snapshots of users, brought up to date on demand. Belongs to one event loop.

    keep_turns: false when the recipe looks at no turns; then none are tokenised or kept. disk: None
    when there is no disk tier.
    """

    def __init__(
        self,
        source: ChangeSource,
        prompt_format: PromptFormat,
        new_snapshot: Callable[[UserScope], UserSnapshot],
        max_users: int,
        *,
        keep_turns: bool = True,
        metrics: CacheMetrics | None = None,
        disk: DiskTier | None = None,
    ) -> None:
        self._source = source
        self._format = prompt_format
        self._new_snapshot = new_snapshot
        self._max_users = max_users
        self._keep_turns = keep_turns
        self._metrics = metrics
        self._disk = disk
        self._slots: OrderedDict[UserScope, _Slot] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slots)

    def peek(self, scope: UserScope) -> UserSnapshot | None:
        """What is held of the user now, without counting as a use."""
        slot = self._slots.get(scope)
        return slot.snapshot if slot else None

    def drop(self, scope: UserScope) -> None:
        self._slots.pop(scope, None)

    async def at_least(self, user: UserAt, *, with_disk: bool = True) -> UserSnapshot:
        """The user's memory at `user.memory_version` or later; fetches what is missing.

        Of a user at version 0 nothing is fetched: control could not note this worker as a holder,
        so a later delete would not ask it for what was written since. With a user's first changes,
        and after each delete or update, what the disk has of the user is compared with them;
        without `with_disk` the next call does that. Raises Unavailable when control does not answer
        or has not reached that version.
        """
        while True:
            slot = self._use(user.scope)
            async with slot.lock:
                if self._slots.get(user.scope) is not slot:
                    continue  # Dropped while this call waited: it may be of before a delete.
                is_held = slot.snapshot.memory_version >= user.memory_version
                self._count(is_held)
                if not is_held:
                    with span(names.SYNC, {names.USER_ID: user.user_id}):
                        await self._bring_up(user, slot)
                if with_disk:
                    await self._compare_disk(slot)
                return slot.snapshot

    async def compare_disk(self, user: UserAt) -> None:
        """Have the disk compared if it was not since the user's last delete or update. Raises as
        `at_least`; fetches nothing when there is no disk tier."""
        if self._disk is not None:
            await self.at_least(user)

    async def _bring_up(self, user: UserAt, slot: _Slot) -> None:
        held = slot.snapshot
        pages = await self._source.list_changes(user.tenant_id, user.user_id, held.memory_version)
        if pages[-1].memory_version < user.memory_version:
            raise Unavailable(
                f"control has user {user.user_id!r} at version {pages[-1].memory_version}, "
                f"below the {user.memory_version} that was asked for"
            )
        # Tokenising and searching neighbours take a while, and others are streaming.
        slot.snapshot = await asyncio.to_thread(
            lambda: held.apply(delta_from_pages(pages, self._format, keep_turns=self._keep_turns))
        )
        slot.next_disk_key = disk_key_from_pages(pages)

    async def _compare_disk(self, slot: _Slot) -> None:
        """When it fails, nothing of the user is served from the disk that was not before, and the
        next changes bring another try."""
        disk_key, slot.next_disk_key = slot.next_disk_key, None
        if self._disk is None or disk_key is None or disk_key == slot.disk_key:
            return
        try:
            await self._disk.compare(slot.snapshot, disk_key)
        except InferScaleError as exc:
            _log.warning("disk.not_compared", exc=exc)
            return
        slot.disk_key = disk_key

    def _use(self, scope: UserScope) -> _Slot:
        slot = self._slots.get(scope)
        if slot is None:
            self._make_room()
            slot = self._slots[scope] = _Slot(self._new_snapshot(scope))
        self._slots.move_to_end(scope)
        return slot

    def _make_room(self) -> None:
        """For one more user, drop those not used for longest. One being fetched stays."""
        surplus = len(self._slots) + 1 - self._max_users
        idle = [scope for scope, slot in self._slots.items() if not slot.lock.locked()]
        for scope in idle[: max(0, surplus)]:
            del self._slots[scope]
            if self._metrics:
                self._metrics.evicted()

    def _count(self, is_held: bool) -> None:
        if self._metrics and is_held:
            self._metrics.hit()
        elif self._metrics:
            self._metrics.miss()


def new_snapshot_factory(
    rules: ChunkRules, dimension: int, device: SearchDevice
) -> Callable[[UserScope], UserSnapshot]:
    return lambda scope: UserSnapshot.empty(scope, rules, dimension, device)


def delta_from_pages(
    pages: Iterable[sync_pb2.ListChangesResponse],
    prompt_format: PromptFormat,
    *,
    keep_turns: bool,
) -> MemoryDelta:
    """The pages as one delta. Tokenises every fact and turn: takes about 50 us each.

    Each page is one state of the user, and the next one's may be newer. What a page removes is gone
    though an earlier page has it; what it holds replaces what an earlier one held or removed.
    """
    facts: dict[FactId, sync_pb2.FactChange] = {}
    turns: dict[TurnId, sync_pb2.TurnChange] = {}
    removed_facts: set[FactId] = set()
    removed_turns: set[TurnId] = set()
    memory_version = kv_epoch = 0
    for page in pages:
        gone_facts = {FactId(fact_id) for fact_id in page.removed_fact_ids}
        gone_turns = {TurnId(turn_id) for turn_id in page.removed_turn_ids}
        _follow(facts, removed_facts, gone_facts, {FactId(f.fact_id): f for f in page.facts})
        _follow(turns, removed_turns, gone_turns, {TurnId(t.turn_id): t for t in page.turns})
        memory_version, kv_epoch = page.memory_version, page.kv_epoch
    kept_turns = turns.values() if keep_turns else ()
    return MemoryDelta(
        memory_version=memory_version,
        kv_epoch=kv_epoch,
        facts=tuple(_fact_entry(fact, prompt_format) for fact in facts.values()),
        embeddings=_embeddings(facts.values()),
        removed_facts=frozenset(removed_facts),
        turns=tuple(_turn_entry(turn, prompt_format) for turn in kept_turns),
        removed_turns=frozenset(removed_turns),
    )


def disk_key_from_pages(pages: Iterable[sync_pb2.ListChangesResponse]) -> DiskKey | None:
    """The user's key, which is of the epoch that the pages lead to."""
    keys = [page.disk_key for page in pages if page.HasField("disk_key")]
    return DiskKey(keys[-1].kv_epoch, keys[-1].secret) if keys else None


def _follow(
    held: dict[_Id, _Change], removed: set[_Id], gone: set[_Id], changed: Mapping[_Id, _Change]
) -> None:
    """One page's part: removals first, since what a page holds is there at the end of it."""
    for item_id in gone:
        held.pop(item_id, None)
    held.update(changed)
    removed.update(gone)
    removed.difference_update(changed)


def _fact_entry(fact: sync_pb2.FactChange, prompt_format: PromptFormat) -> FactEntry:
    occurred_at = fact.occurred_at.ToDatetime(tzinfo=UTC) if fact.HasField("occurred_at") else None
    return FactEntry(
        ref=FactRef(FactId(fact.fact_id), fact.revision),
        memory_version=fact.memory_version,
        text=fact.text,
        token_ids=prompt_format.fact_ids(fact.text, occurred_at),
        conversation_id=ConversationId(fact.conversation_id) if fact.conversation_id else None,
        turn_ids=tuple(TurnId(turn_id) for turn_id in fact.turn_ids),
    )


def _turn_entry(turn: sync_pb2.TurnChange, prompt_format: PromptFormat) -> TurnEntry:
    return TurnEntry(
        turn_id=TurnId(turn.turn_id),
        conversation_id=ConversationId(turn.conversation_id),
        position=turn.position,
        token_ids=prompt_format.turn_ids(turn.speaker, turn.text),
    )


def _embeddings(facts: Collection[sync_pb2.FactChange]) -> torch.Tensor | None:
    if not facts:
        return None
    rows = np.stack([np.frombuffer(fact.embedding, dtype=_FLOAT) for fact in facts])
    return torch.from_numpy(rows.astype(np.float32))
