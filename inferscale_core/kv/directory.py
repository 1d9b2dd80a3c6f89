"""Which chunks exist, in which tiers they are, who reads them, and what each of them saw.

    reserve ──► reserved ──publish──► published ──last copy evicted──────► gone
                   │ release              │ forget ──► every place dropped ──► gone
                   ▼                      │
                  gone                    └─ begin_transfer / end_transfer: copies come and go

A reserved chunk is being written and cannot be found. A published one is found as long as some tier
holds a copy that can be read. Copies of a chunk never differ, so a copy may be given up at any time
while a lower tier has another. Which copy gives way is `kv.eviction`'s; how a place ends,
`kv.tiers`'. A forgotten chunk cannot be found in any tier; its rows are freed when the last reader
or writer ends, and zeroed before they are used again.

The scheduler side owns the one directory of an engine. Worker ranks only execute what it decides,
so tensor-parallel ranks cannot disagree.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter, eq
from sys import intern
from typing import cast

import numpy as np
from numpy.typing import NDArray

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.kv.fences import Fences
from inferscale_core.kv.pages import PagePool, Pages
from inferscale_core.kv.reader_counts import ReaderCounts
from inferscale_core.kv.readings import Reading
from inferscale_core.kv.room import Room
from inferscale_core.kv.tiers import Entry, Place, Tier
from inferscale_core.memory.canonical import behind_header, scope_of
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Span, Spans

__all__ = ["ChunkDirectory", "Entry", "Forgotten", "Moved", "Place", "Tier", "Transfer"]


_NOTHING: Mapping[ChunkKey, Entry] = {}
_num_tokens = attrgetter("num_tokens")


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What one `forget` dropped. keys: the chunks. num_by_tier: copies in each tier. pending: of
    `keys`, with the tiers in which somebody still reads or writes their rows."""

    keys: tuple[ChunkKey, ...] = ()
    num_dependants: int = 0
    num_tokens: int = 0
    num_by_tier: dict[Tier, int] = field(default_factory=dict)
    pending: dict[ChunkKey, tuple[Tier, ...]] = field(default_factory=dict)

    def num_pending(self, tier: Tier) -> int:
        return sum(tier in tiers for tiers in self.pending.values())


@dataclass(frozen=True, slots=True)
class Moved:
    """A chunk's fastest copy is in another tier now; None: no copy is left."""

    key: ChunkKey
    tier: Tier | None


@dataclass(slots=True, eq=False)
class Transfer:
    """A copy on its way from one tier to another. Both places are pinned until it ends."""

    entry: Entry
    source: Place
    target: Place


@dataclass(slots=True)
class DirectoryStats:
    """Counts since the start. hits and misses: spans asked for by requests that were scheduled.
    evictions: of chunks whose last copy gave way."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    published: int = 0
    forgotten: int = 0


class ChunkDirectory:
    """See the module's docstring for the states. Owned by the scheduler thread."""

    def __init__(
        self,
        pool: PagePool,
        host: PagePool | None = None,
        disk: Pages | None = None,
        *,
        tenant_share: float = 1.0,
    ) -> None:
        """pool: the arena's. host and disk: None where there is no such tier."""
        self._pool = pool
        self._host_pool = host
        pages: dict[Tier, Pages | None] = {Tier.GPU: pool, Tier.HOST: host, Tier.DISK: disk}
        self.rooms = {
            tier: Room(tier, room, self._gave_way, tenant_share)
            for tier, room in pages.items()
            if room is not None
        }
        self.gpu = self.rooms[Tier.GPU]
        self._entries: dict[ChunkKey, Entry] = {}
        self._published: dict[ChunkKey, Entry] = {}
        self._by_scope: dict[UserScope, dict[ChunkKey, Entry]] = {}
        """In the order in which they became known."""
        self._readers = ReaderCounts()
        self._fences = Fences()
        self._past_heat: OrderedDict[ChunkKey, tuple[float, int]] = OrderedDict()
        self._moved: list[Moved] = []
        self.generation = 0
        """Grows whenever a chunk begins or ceases to be found, or to be on the GPU."""
        self.num_lost = 0
        """Grows whenever a chunk ceases to be found."""
        self.stats = DirectoryStats()

    # Finding.

    def find(self, key: ChunkKey) -> Entry | None:
        """The chunk `key`, if some tier has a copy of it."""
        return self._published.get(key)

    def finds_all(self, keys: Iterable[ChunkKey]) -> bool:
        """Whether `find` finds each of them."""
        return all(map(self._published.__contains__, keys))

    def are_of(self, scope: UserScope, keys: Sequence[ChunkKey]) -> bool:
        """Whether all keys are known, and this user's, but for a header's before them."""
        return all(map(self._of(scope).__contains__, behind_header(keys)))

    def get(self, key: ChunkKey) -> Entry | None:
        """The chunk `key`, if it is on the GPU."""
        entry = self.find(key)
        return entry if entry is not None and entry.is_on_gpu else None

    def known_run(self, spans: Spans) -> list[Entry]:
        """The longest leading run of spans of which some tier has exactly so many tokens, of one
        user alone."""
        run: list[Entry] = []
        own = behind_header(spans.keys)
        known = self._of(scope_of(own[0])) if own else _NOTHING
        num_headers = len(spans.keys) - len(own)
        for entry, count in zip(map(self._published.get, spans.keys), spans.counts, strict=True):
            if entry is None or entry.num_tokens != count:
                break
            if len(run) >= num_headers and entry.key not in known:
                break
            run.append(entry)
        return run

    def all_in_arena(self, spans: Spans) -> list[Place] | None:
        """Where the spans can be read in the arena; None unless all can, with just their tokens,
        and are one user's.

        What most requests get, so it is found without a loop of ours."""
        found = list(map(self.gpu.readable.get, spans.keys))
        if None in found:
            return None
        own = behind_header(spans.keys)
        if own and not self.are_of(scope_of(own[0]), own):
            return None
        places = cast(list[Place], found)
        return places if all(map(eq, map(_num_tokens, places), spans.counts)) else None

    def resident_run(self, spans: Sequence[Span]) -> list[Entry]:
        """As `known_run`, of what is on the GPU."""
        run = self.known_run(Spans.of(spans))
        return run[: len(leading_on_gpu(run))]

    def holds(self, key: ChunkKey) -> bool:
        """Whether the key is reserved or published."""
        return key in self._entries

    def of_scope(self, scope: UserScope) -> list[Entry]:
        return list(self._by_scope.get(scope, {}).values())

    def is_fenced(
        self, scope: UserScope, planned_version: int, planned_at: float = float("inf")
    ) -> bool:
        """Whether something of the scope was, or may have been, forgotten after this was planned.
        See `kv.fences`."""
        return self._fences.stop(scope, planned_version, planned_at)

    # Writing.

    def reserve(
        self,
        key: ChunkKey,
        num_tokens: int,
        *,
        origin: int,
        fact: FactRef | None,
        prefix_keys: tuple[ChunkKey, ...],
    ) -> Entry | None:
        """Take pages of the arena for a chunk that is about to be written, evicting for room.

        Returns None, and evicts nothing, when pinned and reserved chunks leave too little room.
        End every reservation with `publish` or `release`.
        """
        entry = self._entry(key, num_tokens, origin, fact, prefix_keys)
        if self.gpu.reserve(entry) is None:
            return None
        self._link(entry)
        return entry

    def reserved(self, key: ChunkKey) -> Entry:
        """The entry of a reservation that has not ended."""
        entry = self._entries[key]
        assert not entry.is_published
        return entry

    def publish(self, entry: Entry) -> bool:
        """The chunk is written. False when it was forgotten meanwhile: then its pages are freed."""
        assert entry.gpu is not None
        assert not entry.is_published
        if entry.gpu.is_dropped:
            self.gpu.unpin([entry.gpu])
            return False
        self.gpu.written(entry.gpu)
        self._show(entry)
        self.stats.published += 1
        return True

    def release(self, entry: Entry) -> None:
        """Abandon a reservation."""
        assert entry.gpu is not None
        assert not entry.is_published
        if not entry.gpu.is_dropped:
            self.gpu.drop(entry.gpu)
            self._unlink([entry])
        self.gpu.unpin([entry.gpu])

    def adopt(
        self,
        key: ChunkKey,
        num_tokens: int,
        *,
        origin: int,
        fact: FactRef,
        prefix_keys: tuple[ChunkKey, ...],
    ) -> Entry | None:
        """A chunk that was found on disk. None when the disk tier has no room for it."""
        entry = self._entry(key, num_tokens, origin, fact, prefix_keys)
        room = self.rooms[Tier.DISK]
        place = room.reserve(entry)
        if place is None:
            return None
        self._link(entry)
        room.written(place)
        self._show(entry)
        return entry

    def found_on_disk(self, entry: Entry) -> None:
        """The disk has a copy of a known chunk; kept when the disk tier has room for it."""
        room = self.rooms[Tier.DISK]
        if entry.disk is None and (place := room.reserve(entry)) is not None:
            room.written(place)

    # Reading.

    def read(self, entries: Iterable[Entry]) -> Reading:
        """A request reads the entries, all in the arena: their rows are kept until `end_read`, and
        eviction takes note."""
        return self.gpu.read(_in_arena(entries))

    def end_read(self, reading: Reading) -> None:
        """What was forgotten meanwhile is freed by its last reader."""
        self.gpu.end_reads([reading])

    def pin(self, entries: Iterable[Entry]) -> None:
        """The entries' rows in the arena are kept until `unpin`."""
        self.gpu.pin(_in_arena(entries))

    def unpin(self, entries: Iterable[Entry]) -> None:
        """End one pin of each. What was forgotten meanwhile is freed by the last."""
        self.gpu.unpin(_in_arena(entries))

    # Moving between tiers.

    def begin_transfer(self, entry: Entry, source: Place, to: Tier) -> Transfer | None:
        """Copy a chunk to another tier, evicting there for room. None when there is none."""
        assert source.is_written
        room = self.rooms[to]
        self.rooms[source.tier].pin([source])
        target = room.reserve(entry)
        if target is None:
            self.rooms[source.tier].unpin([source])
            return None
        return Transfer(entry, source, target)

    def end_transfer(self, transfer: Transfer, *, succeeded: bool) -> None:
        """Every rank has copied, or one could not: then the target is given up, and a source that
        could not be read into the arena as well."""
        entry, source, target = transfer.entry, transfer.source, transfer.target
        self.rooms[source.tier].unpin([source])
        if succeeded and not target.is_dropped:
            self._arrived(entry, target)
            return
        room = self.rooms[target.tier]
        if not target.is_dropped:
            room.drop(target)
            entry.detach(target)
        room.unpin([target])
        if not succeeded and target.tier is Tier.GPU:
            self.lost(source)

    def lost(self, place: Place) -> None:
        """A copy turned out not to be there or not to be readable."""
        if place.is_dropped:
            return
        self.rooms[place.tier].drop(place)
        self._gave_way(place)

    # Forgetting.

    def forget(self, scope: UserScope, fact_ids: Iterable[FactId], version: int) -> Forgotten:
        """Drop the chunks of these facts in the scope and all that saw them, through others too.

        In all tiers. Captures planned before `version` are refused from now on. Looks at what every
        chunk of the scope saw (`benchmarks.large_user` has the time for 10,000 of them, nearly all
        of which go): who saw a chunk is not written down, since each capture would have to do so
        for every chunk of its prefix. Other scopes are not looked at: a chunk sees those of its own
        user and the header, which is no fact's.
        """
        self._fences.raise_to(scope, version)
        wanted = set(fact_ids)
        known = self._by_scope.get(scope, {})
        own = {
            key
            for key, entry in known.items()
            if entry.fact is not None and entry.fact.fact_id in wanted
        }
        entries = [known[key] for key in sorted(with_readers(own, known))]
        num_by_tier = dict.fromkeys(self.rooms, 0)
        pending = {}
        for entry in entries:
            waiting = self._drop(entry, num_by_tier)
            if waiting:
                pending[entry.key] = waiting
        self._unlink(entries)
        self.stats.forgotten += len(entries)
        return Forgotten(
            keys=tuple(entry.key for entry in entries),
            num_dependants=sum(entry.key not in own for entry in entries),
            num_tokens=sum(entry.num_tokens for entry in entries),
            num_by_tier=num_by_tier,
            pending=pending,
        )

    # What others must do or be told.

    def drain_to_zero(self) -> NDArray[np.int64]:
        """Arena rows freed since the last call; to be zeroed before any is written again."""
        return self.gpu.rows_of(self._pool.drain_to_zero())

    def drain_host_to_zero(self) -> NDArray[np.int64]:
        """As `drain_to_zero`, of the host tier."""
        assert self._host_pool is not None
        return self.rooms[Tier.HOST].rows_of(self._host_pool.drain_to_zero())

    @property
    def has_rows_to_zero(self) -> bool:
        return self._pool.has_pages_to_zero

    @property
    def has_host_rows_to_zero(self) -> bool:
        return self._host_pool is not None and self._host_pool.has_pages_to_zero

    def drain_moved(self) -> list[Moved]:
        """Chunks whose fastest copy changed since the last call, each change in order."""
        moved, self._moved = self._moved, []
        return moved

    @property
    def num_published(self) -> int:
        return len(self._published)

    @property
    def num_resident(self) -> int:
        """Published chunks on the GPU."""
        return sum(entry.is_on_gpu for entry in self._published.values())

    @property
    def num_pinned(self) -> int:
        """Places with a reader or a writer, in all tiers."""
        return sum(
            room.is_pinned(place) for room in self.rooms.values() for place in room.places.values()
        )

    @property
    def num_reserved(self) -> int:
        return len(self._entries) - len(self._published)

    def check_conservation(self) -> None:
        """No page is lost or held twice, and every index agrees with the entries."""
        for room in self.rooms.values():
            room.check_conservation()
            for place in room.places.values():
                entry = self._entries.get(place.entry.key)
                assert place.is_dropped or entry is place.entry, "a place of no entry"
                assert place.is_dropped or place in place.entry.places, "a place nobody finds"
        for entry in self._entries.values():
            for place in entry.places:
                assert not place.is_dropped, "a dropped place can be found"
            assert not entry.is_published or entry.fastest, "published, but nowhere to be read"
            assert entry.readers is self._readers, "other counts"
            assert entry.is_published == (self._published.get(entry.key) is entry), "published"
        assert self._published.keys() <= self._entries.keys(), "a chunk that is gone can be found"
        self._readers.check(
            chain.from_iterable(entry.prefix_keys for entry in self._entries.values())
        )
        indexed = {}
        for scope, known in self._by_scope.items():
            assert known, "a scope of no chunk"
            assert {scope_of(key) for key in known} == {scope}, "a chunk in another's scope"
            indexed.update(known)
        assert indexed == self._entries, "the scope index disagrees with the entries"

    def _of(self, scope: UserScope) -> Mapping[ChunkKey, Entry]:
        return self._by_scope.get(scope, _NOTHING)

    def _entry(
        self,
        key: ChunkKey,
        num_tokens: int,
        origin: int,
        fact: FactRef | None,
        prefix_keys: tuple[ChunkKey, ...],
    ) -> Entry:
        assert key not in self._entries, "a key is reserved once"
        past = self._past_heat.pop(key, None)
        return Entry(
            key=key,
            tenant=intern(key.partition("/")[0]),
            fact=fact,
            num_tokens=num_tokens,
            prefix_keys=self._as_known(prefix_keys),
            origin=origin,
            readers=self._readers,
            heat=1.0 if past is None else 1.0 + self.gpu.faded(*past),
            used_at=self.gpu.now,
        )

    def _as_known(self, keys: tuple[ChunkKey, ...]) -> tuple[ChunkKey, ...]:
        """The same keys, as the very strings that their entries have. A chunk stands before 32
        others and more: copies of its key would take most of their memory."""
        find = self._entries.get
        return tuple([key if (entry := find(key)) is None else entry.key for key in keys])

    def _arrived(self, entry: Entry, target: Place) -> None:
        fastest = entry.fastest
        self.rooms[target.tier].written(target)
        for place in entry.places:
            if place is not target:
                self.rooms[place.tier].queue.cheapened(place)
        if entry.fastest is not fastest:
            self._tell(entry)

    def _gave_way(self, place: Place) -> None:
        """A place was evicted or lost: the chunk lives on in another tier, or is gone."""
        entry = place.entry
        entry.detach(place)
        if entry.fastest is not None:
            self._tell(entry)
            return
        self.stats.evictions += 1
        self._moved.append(Moved(entry.key, None))
        self._remember(entry)
        for other in entry.places:
            self.rooms[other.tier].drop(other)
        self._unlink([entry])

    def _remember(self, entry: Entry) -> None:
        """How often an evicted chunk was asked for, until as many others have gone as there are:
        one that is encoded again does not start as a stranger."""
        self._past_heat[entry.key] = (entry.heat, entry.used_at)
        while len(self._past_heat) > len(self._entries):
            self._past_heat.popitem(last=False)

    def _tell(self, entry: Entry) -> None:
        assert entry.fastest is not None
        self.generation += 1
        self._moved.append(Moved(entry.key, entry.fastest.tier))

    def _drop(self, entry: Entry, num_by_tier: dict[Tier, int]) -> tuple[Tier, ...]:
        """The tiers in which the chunk's rows wait for a reader, or for a write in flight."""
        waiting = []
        for place in entry.places:
            num_by_tier[place.tier] += 1
            if self.rooms[place.tier].drop(place):
                place.is_reported = True
                waiting.append(place.tier)
        return tuple(waiting)

    def _show(self, entry: Entry) -> None:
        """From now on it can be found."""
        entry.is_published = True
        self._published[entry.key] = entry
        self.generation += 1

    def _link(self, entry: Entry) -> None:
        key = entry.key
        self._entries[key] = entry
        self._by_scope.setdefault(scope_of(key), {})[key] = entry
        self._readers.add(entry.prefix_keys)

    def _unlink(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            key, scope = entry.key, scope_of(entry.key)
            del self._entries[key]
            self._published.pop(key, None)
            known = self._by_scope[scope]
            del known[key]
            if not known:
                del self._by_scope[scope]
        self._readers.remove(chain.from_iterable(entry.prefix_keys for entry in entries))
        self.generation += len(entries)
        self.num_lost += len(entries)


def with_readers(keys: Iterable[ChunkKey], known: Mapping[ChunkKey, Entry]) -> set[ChunkKey]:
    """The keys, and those of all known chunks that saw one of them, through known ones too.

    A reader mostly stands behind what it saw: then one pass finds all, and another that there are
    no more. Where that is not so (chunks come back from disk in any order, and one that was evicted
    and encoded again stands behind its readers) the links are written down and followed."""
    reached = set(keys)
    for _ in range(2):
        num_before = len(reached)
        for key, entry in known.items():
            if not reached.isdisjoint(entry.prefix_keys):
                reached.add(key)
        if len(reached) == num_before:
            return reached
    return _following(reached, known)


def _following(reached: set[ChunkKey], known: Mapping[ChunkKey, Entry]) -> set[ChunkKey]:
    readers: dict[ChunkKey, list[ChunkKey]] = {}
    for key, entry in known.items():
        for seen in entry.prefix_keys:
            readers.setdefault(seen, []).append(key)
    frontier = list(reached)
    while frontier:
        for reader in readers.get(frontier.pop(), ()):
            if reader not in reached:
                reached.add(reader)
                frontier.append(reader)
    return reached


def _in_arena(entries: Iterable[Entry]) -> list[Place]:
    places = [entry.gpu for entry in entries]
    assert None not in places, "in the arena, or on the way"
    return cast(list[Place], places)


def leading_on_gpu(run: Iterable[Entry]) -> list[Place]:
    """The places in the arena of the leading entries that can be read there."""
    places = []
    for entry in run:
        place = entry.gpu
        if place is None or not place.is_written:
            break
        places.append(place)
    return places
