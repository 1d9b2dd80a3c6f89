"""Moves chunks between tiers: up for requests that wait for them, down in the background.

A published chunk is copied to the host and to disk when there is nothing better to do, so that its
place in the arena can be given up at once whenever another chunk needs it. A request that names
chunks which are not in the arena waits outside the engine's running batch:

    asked ──want──► wanted ──pages reserved and pinned──► held ──every copy arrived──► admitted
                       │ no pages: stays wanted             │
                       └───── waited too long, too large ───┴──► gave up: what is in the arena only

Pages for all that a request lacks are taken at once or not at all, so requests that wait never hold
what another waiting one needs to go on.

Everything a rank does here is an operation with an id, named in one step and acknowledged in a
later one by every rank. Owned by the scheduler thread.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inferscale_core.ids import ChunkKey, UserScope
from inferscale_core.kv.directory import ChunkDirectory, Transfer
from inferscale_core.kv.disk import DiskRecord
from inferscale_core.kv.tiers import Entry, Place, Tier
from inferscale_core.memory.canonical import scope_of
from inferscale_core.vllm_connector.metadata import (
    AdmitRecords,
    MoveRows,
    OpResult,
    RemoveRecords,
    TierOp,
    ZeroHostRows,
)
from inferscale_core.vllm_connector.params import Adopt

MAX_WAIT_S = 5.0
"""A request that has waited so long for lower tiers is prefilled instead. Restoring 50 chunks takes
5 ms from the host and 100 ms from a slow disk: only a disk that hangs is met here."""

MAX_OFFLOADS = 32
"""Copies to the host on their way at once: 130 MB of a 7B model, 3 ms of the bus."""

MAX_WRITES = 8
"""Copies to disk on their way at once."""

MAX_SEALED_SCOPES = 100_000
"""Users whose key the ranks are known to have, 100 bytes each. Chunks of one that was dropped here
are not written to disk until the worker compares the user again."""

MAX_HELD_RATIO = 0.5
"""Of the arena, pages pinned for waiting requests; one request alone may have more."""


@dataclass(slots=True)
class Hold:
    """What a waiting request will read, pinned in the arena."""

    entries: list[Entry]
    places: list[Place]
    num_pages: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """A user's records were compared. entries: those that were not known before. num_chunks: all
    that the user has on disk now."""

    handle: str
    entries: tuple[Entry, ...] = ()
    num_chunks: int = 0


@dataclass(slots=True)
class Ended:
    """What the ranks' reports bring to an end. places: zeroed or removed now, and waited for."""

    places: list[Place] = field(default_factory=list)
    adopted: list[Adopted] = field(default_factory=list)


class Tiering:
    def __init__(
        self,
        directory: ChunkDirectory,
        num_ranks: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._num_ranks = num_ranks
        self._clock = clock
        self._has_host = Tier.HOST in directory.rooms
        self._has_disk = Tier.DISK in directory.rooms
        self._next_op = 0
        self._results: dict[int, list[OpResult]] = {}
        self._transfers: dict[int, Transfer] = {}
        self._cleanups: dict[int, list[Place]] = {}
        self._removals: dict[int, tuple[ChunkKey, ...]] = {}
        self._adoptions: dict[int, tuple[str, Adopt]] = {}
        self._surplus: list[ChunkKey] = []
        self._sealed_scopes: OrderedDict[UserScope, None] = OrderedDict()
        self._ready: list[TierOp] = []
        self._wanted: dict[str, list[Entry]] = {}
        self._holds: dict[str, Hold] = {}
        self._num_held = 0
        self._asked_at: dict[str, float] = {}
        self._gave_up: set[str] = set()
        self._to_offload: deque[Entry] = deque()
        self._to_write: deque[Entry] = deque()
        self._num_on_the_way = dict.fromkeys(Tier, 0)

    # Requests that wait.

    def want(self, request_id: str, entries: list[Entry]) -> None:
        """The request needs all of these in the arena. May be called in every step."""
        self._wanted[request_id] = entries

    def has_given_up(self, request_id: str) -> bool:
        """Whether the request goes without what is not in the arena."""
        return request_id in self._gave_up

    def release(self, request_id: str) -> None:
        """The request waits no longer: it was admitted, or has ended."""
        self._wanted.pop(request_id, None)
        self._asked_at.pop(request_id, None)
        self._gave_up.discard(request_id)
        self._let_go(request_id)

    # Background.

    def published(self, entry: Entry) -> None:
        """A chunk was written into the arena: keep a copy below."""
        if entry.is_permanent:
            return
        if self._has_host:
            self._to_offload.append(entry)
        else:
            self._write_later(entry)

    def adopt(self, handle: str, command: Adopt) -> Adopted | None:
        """Begin to compare a user's records; None: `done` says when. Otherwise refused."""
        fenced = self._directory.is_fenced(command.scope, command.planned_version)
        if not self._has_disk or fenced:
            return Adopted(handle)
        op_id = self._op_id()
        self._adoptions[op_id] = (handle, command)
        self._ready.append(AdmitRecords(op_id, command.scope, command.sealed_key, command.wanted))
        return None

    @property
    def has_work(self) -> bool:
        """Whether a step is needed even if no request asks for one: something can be started, or
        was started and is not acknowledged."""
        return bool(
            self._transfers
            or self._cleanups
            or self._adoptions
            or self._ready
            or self._surplus
            or self._to_offload
            or self._to_write
            or self._directory.has_host_rows_to_zero
            or (self._has_disk and self._directory.rooms[Tier.DISK].freed)
        )

    @property
    def num_waiting(self) -> int:
        return len(self._asked_at)

    @property
    def open_cleanups(self) -> set[int]:
        """Operations that zero or remove what has been freed and are not acknowledged."""
        return set(self._cleanups)

    # A step.

    def start(self) -> list[TierOp]:
        """What the ranks begin with the coming step."""
        for request_id, entries in self._wanted.items():
            self._hold(request_id, entries)
        self._wanted = {}
        self._write_through()
        moves, self._ready = self._ready, []
        return [*self._clean_up(), *moves]

    def done(self, results: Mapping[int, Sequence[OpResult]]) -> Ended:
        """Ranks report; an operation has ended when every rank says so."""
        ended = Ended()
        for op_id, found in sorted(results.items()):
            known = self._results.setdefault(op_id, [])
            known.extend(found)
            if len(known) == self._num_ranks:
                del self._results[op_id]
                self._end(op_id, known, ended)
        return ended

    def _end(self, op_id: int, results: list[OpResult], ended: Ended) -> None:
        for result in results:
            self._lose_records(result.evicted)
        self._removals.pop(op_id, None)
        if op_id in self._cleanups:
            ended.places += self._cleanups.pop(op_id)
        elif op_id in self._adoptions:
            ended.adopted.append(self._take_up(*self._adoptions.pop(op_id), results))
        else:
            self._arrive(self._transfers.pop(op_id), results)

    def _arrive(self, transfer: Transfer, results: list[OpResult]) -> None:
        self._num_on_the_way[transfer.target.tier] -= 1
        succeeded = all(result.succeeded for result in results)
        self._directory.end_transfer(transfer, succeeded=succeeded)
        if transfer.target.tier is Tier.HOST and succeeded:
            self._write_later(transfer.entry)

    def _lose_records(self, keys: Sequence[ChunkKey]) -> None:
        """A rank's disk gave them up."""
        for key in keys:
            entry = self._directory.find(key)
            if entry is not None and entry.disk is not None and entry.disk.is_written:
                self._directory.lost(entry.disk)

    # The disk.

    def _take_up(self, handle: str, command: Adopt, results: list[OpResult]) -> Adopted:
        """Records are good when every rank has its part. What was forgotten while the ranks
        compared is not taken up: the compare that follows the forget removes it. Nor is what is
        to be removed since: ranks did not know that yet."""
        if not all(result.succeeded for result in results):
            return Adopted(handle)
        admitted = [{record.key: record for record in result.admitted} for result in results]
        going = {key for keys in self._removals.values() for key in keys}
        whole = {
            key: record
            for key, record in admitted[0].items()
            if key not in going and all(key in a for a in admitted)
        }
        self._surplus += {key for found in admitted for key in found if key not in whole}
        for known in self._directory.of_scope(command.scope):
            if known.disk is not None and known.disk.is_written and known.key not in whole:
                self._directory.lost(known.disk)
        if self._directory.is_fenced(command.scope, command.planned_version):
            return Adopted(handle)
        self._seal(command.scope)
        found = [new for record in whole.values() if (new := self._found(record)) is not None]
        for known in self._directory.of_scope(command.scope):
            self._write_later(known)
        return Adopted(handle, tuple(found), len(whole))

    def _found(self, record: DiskRecord) -> Entry | None:
        """The new entry of a record that was not known."""
        known = self._directory.find(record.key)
        if known is not None and _record(known) == record:
            self._directory.found_on_disk(known)
            return None
        if known is not None:
            self._surplus.append(record.key)
            return None
        if self._directory.holds(record.key):
            return None
        entry = self._directory.adopt(
            record.key,
            record.num_tokens,
            origin=record.origin,
            fact=record.fact,
            prefix_keys=record.prefix_keys,
        )
        if entry is None:
            self._surplus.append(record.key)
        return entry

    def _seal(self, scope: UserScope) -> None:
        """The ranks have the user's key now."""
        self._sealed_scopes[scope] = None
        self._sealed_scopes.move_to_end(scope)
        if len(self._sealed_scopes) > MAX_SEALED_SCOPES:
            self._sealed_scopes.popitem(last=False)

    def _write_later(self, entry: Entry) -> None:
        if self._has_disk and scope_of(entry.key) in self._sealed_scopes and entry.disk is None:
            self._to_write.append(entry)

    # Restoring.

    def _hold(self, request_id: str, entries: list[Entry]) -> None:
        hold = self._holds.get(request_id)
        if hold is not None and hold.entries == entries and not self._has_lost(hold):
            self._check_wait(request_id)
            return
        self._let_go(request_id)
        if not self._check_wait(request_id):
            return
        if not all(self._directory.find(entry.key) is entry for entry in entries):
            return  # Some were evicted later in this step: the request is asked again in the next.
        room = self._directory.gpu
        num_pages = sum(room.pages.pages_for(entry.num_tokens) for entry in entries)
        if num_pages > room.pages.num_pages - room.num_permanent:
            self._gave_up.add(request_id)
            return
        limit = MAX_HELD_RATIO * room.pages.num_pages
        if self._holds and self._num_held + num_pages > limit:
            return
        self._reserve(request_id, entries)

    def _reserve(self, request_id: str, entries: list[Entry]) -> None:
        room = self._directory.gpu
        places = [entry.gpu for entry in entries if entry.gpu is not None]
        room.pin(places)
        missing = [entry for entry in entries if entry.gpu is None]
        num_pages = sum(room.pages.pages_for(entry.num_tokens) for entry in missing)
        if num_pages > room.pages.num_free + room.num_evictable:
            room.unpin(places)
            return
        for entry in missing:
            source = entry.fastest
            assert source is not None, "a published chunk is somewhere"
            transfer = self._directory.begin_transfer(entry, source, Tier.GPU)
            assert transfer is not None, "pages were counted"
            room.pin([transfer.target])
            places.append(transfer.target)
            self._move(transfer)
        hold = Hold(entries, places, sum(place.num_pages for place in places))
        self._holds[request_id] = hold
        self._num_held += hold.num_pages

    def _check_wait(self, request_id: str) -> bool:
        now = self._clock()
        if now - self._asked_at.setdefault(request_id, now) < MAX_WAIT_S:
            return True
        self._gave_up.add(request_id)
        self._let_go(request_id)
        return False

    @staticmethod
    def _has_lost(hold: Hold) -> bool:
        """A copy could not be made: its place was given up."""
        return any(place.is_dropped for place in hold.places)

    def _let_go(self, request_id: str) -> None:
        hold = self._holds.pop(request_id, None)
        if hold is not None:
            self._num_held -= hold.num_pages
            self._directory.gpu.unpin(hold.places)

    # Offloading.

    def _write_through(self) -> None:
        while self._to_offload and self._num_on_the_way[Tier.HOST] < MAX_OFFLOADS:
            if not self._copy_down(self._to_offload.popleft(), Tier.HOST):
                break
        while self._to_write and self._num_on_the_way[Tier.DISK] < MAX_WRITES:
            if not self._copy_down(self._to_write.popleft(), Tier.DISK):
                break

    def _copy_down(self, entry: Entry, to: Tier) -> bool:
        """False when there is no room now. What has no room even when nothing is on its way there
        never will, and is not asked for again."""
        queue = self._to_offload if to is Tier.HOST else self._to_write
        source = entry.fastest if self._directory.find(entry.key) is entry else None
        below = entry.host if to is Tier.HOST else entry.disk
        if source is None or below is not None:
            return True
        if to is Tier.DISK and entry.host is not None and entry.host.is_written:
            source = entry.host
        if source.tier is to:
            return True
        transfer = self._directory.begin_transfer(entry, source, to)
        if transfer is not None:
            self._move(transfer)
            return True
        if self._num_on_the_way[to]:
            queue.appendleft(entry)
            return False
        return True

    def _move(self, transfer: Transfer) -> None:
        source, target = transfer.source, transfer.target
        op_id = self._op_id()
        self._transfers[op_id] = transfer
        self._num_on_the_way[target.tier] += 1
        needs_record = Tier.DISK in (source.tier, target.tier)
        self._ready.append(
            MoveRows(
                op_id=op_id,
                source=source.tier,
                target=target.tier,
                source_rows=None if source.tier is Tier.DISK else source.rows,
                target_rows=None if target.tier is Tier.DISK else target.rows,
                record=_record(transfer.entry) if needs_record else None,
            )
        )

    def _clean_up(self) -> Iterator[TierOp]:
        """Zeroing and removing what was freed, before anything is written there again."""
        if self._has_host:
            freed = self._directory.rooms[Tier.HOST].drain_freed()
            if self._directory.has_host_rows_to_zero:
                rows = self._directory.drain_host_to_zero()
                yield ZeroHostRows(self._cleanup(freed), rows)
        if self._has_disk:
            freed = self._directory.rooms[Tier.DISK].drain_freed()
            if freed:
                # A record that was written anew under the same key took the old one's place.
                keys = tuple(p.entry.key for p in freed if not self._is_on_disk(p.entry.key))
                yield self._remove(freed, keys)
            if self._surplus:
                keys = tuple(key for key in self._surplus if not self._is_on_disk(key))
                self._surplus = []
                yield self._remove([], keys)

    def _remove(self, freed: list[Place], keys: tuple[ChunkKey, ...]) -> RemoveRecords:
        op_id = self._cleanup(freed)
        self._removals[op_id] = keys
        return RemoveRecords(op_id, keys)

    def _cleanup(self, freed: list[Place]) -> int:
        op_id = self._op_id()
        self._cleanups[op_id] = [place for place in freed if place.is_reported]
        return op_id

    def _is_on_disk(self, key: ChunkKey) -> bool:
        entry = self._directory.find(key)
        return entry is not None and entry.disk is not None

    def _op_id(self) -> int:
        self._next_op += 1
        return self._next_op


def _record(entry: Entry) -> DiskRecord:
    assert entry.fact is not None, "permanent chunks stay in the arena"
    return DiskRecord(
        key=entry.key,
        fact=entry.fact,
        num_tokens=entry.num_tokens,
        origin=entry.origin,
        prefix_keys=entry.prefix_keys,
    )
