"""What the directory is made of: chunks, their places in the tiers, and the room of a tier.

A place passes through these states; the writer of a place and each of its readers pin it:

    being written ──written──► readable ──evicted, dropped, unpinned──────────► freed
          │                       └──dropped, pinned──► dropped ──last unpin──► freed
          └──dropped──► dropped ──last unpin──► freed

A dropped place cannot be found. Memory that is freed is zeroed before it is written again; what is
freed on disk is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from inferscale_core.ids import ChunkKey
from inferscale_core.kv.eviction import HALF_LIFE, RESTORE_COST, EvictionQueue, encode_cost
from inferscale_core.kv.pages import Pages
from inferscale_core.memory.facts import FactRef

_NO_ROWS = np.empty(0, dtype=np.int64)


class Tier(StrEnum):
    """From fastest to slowest."""

    GPU = "gpu"
    HOST = "host"
    DISK = "disk"


@dataclass(slots=True, eq=False)
class Entry:
    """A chunk, and where it is. origins: [num_tokens], int64: the position at which each token's
    key was computed. is_published: it has been written once, so it can be asked for. readers: the
    chunks that saw this one, shared with the directory."""

    key: ChunkKey
    tenant: str
    fact: FactRef | None
    num_tokens: int
    prefix_keys: tuple[ChunkKey, ...]
    origins: NDArray[np.int64]
    gpu: Place | None = None
    host: Place | None = None
    disk: Place | None = None
    is_published: bool = False
    readers: set[ChunkKey] = field(default_factory=set)
    heat: float = 1.0
    used_at: int = 0

    @property
    def is_permanent(self) -> bool:
        return self.fact is None

    @property
    def is_on_gpu(self) -> bool:
        return self.gpu is not None and self.gpu.is_written

    @property
    def slots(self) -> NDArray[np.int64]:
        """[num_tokens], int64: the arena row of each token."""
        assert self.gpu is not None, "not in the arena"
        return self.gpu.rows

    @property
    def places(self) -> list[Place]:
        """Fastest tier first, those being written included."""
        return [place for place in (self.gpu, self.host, self.disk) if place is not None]

    @property
    def fastest(self) -> Place | None:
        """The first place that can be read."""
        for place in self.places:
            if place.is_written:
                return place
        return None

    def attach(self, place: Place) -> None:
        setattr(self, place.tier, place)

    def detach(self, place: Place) -> None:
        if getattr(self, place.tier) is place:
            setattr(self, place.tier, None)


@dataclass(slots=True, eq=False)
class Place:
    """A chunk in one tier. rows: [num_tokens], int64: its rows there; empty on disk.

    is_permanent: never evicted. is_reported: somebody was told that its end is pending, and is told
    of the end.
    """

    entry: Entry
    tier: Tier
    holder: int
    num_pages: int
    rows: NDArray[np.int64]
    is_permanent: bool
    num_pins: int = 1
    is_written: bool = False
    is_dropped: bool = False
    is_reported: bool = False
    is_queued: bool = False
    clock: float = 0.0
    num_tokens: int = field(init=False)
    lines: bytes = field(init=False)
    """[num_tokens, 2], int64: each token's row and origin. Bytes of many chunks are joined several
    times as fast as arrays. Empty on disk."""

    def __post_init__(self) -> None:
        self.num_tokens = self.entry.num_tokens
        lines = np.empty((len(self.rows), 2), dtype=np.int64)
        if len(self.rows):
            lines[:, 0] = self.rows
            lines[:, 1] = self.entry.origins
        self.lines = lines.tobytes()

    @property
    def tenant(self) -> str:
        return self.entry.tenant

    @property
    def heat(self) -> float:
        return self.entry.heat

    @property
    def cost(self) -> float:
        entry = self.entry
        cost = encode_cost(entry.num_tokens, len(entry.readers))
        return cost * RESTORE_COST if self.has_lower_copy else cost

    @property
    def has_lower_copy(self) -> bool:
        host, disk = self.entry.host, self.entry.disk
        if self.tier is Tier.GPU and host is not None and host.is_written:
            return True
        return self.tier is not Tier.DISK and disk is not None and disk.is_written


@dataclass(slots=True)
class Room:
    """The pages of one tier and the places in it.

    on_evict: told of each place that gives way, already freed. readable: the places that can be
    read, by the chunk's key. num_evictable: pages of places that can be read, are not pinned and
    not permanent. num_pinned, num_permanent: pages of such places.
    """

    tier: Tier
    pages: Pages
    on_evict: Callable[[Place], None]
    tenant_share: float = 1.0
    queue: EvictionQueue[Place] = field(init=False)
    places: dict[int, Place] = field(default_factory=dict)
    readable: dict[ChunkKey, Place] = field(default_factory=dict)
    freed: list[Place] = field(default_factory=list)
    num_evictable: int = 0
    num_pinned: int = 0
    num_permanent: int = 0
    num_evictions: int = 0
    _next_holder: int = 0
    now: int = 0
    _offsets: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.queue = EvictionQueue(self.pages.num_pages, self.tenant_share)
        self._offsets = np.arange(self.pages.page_tokens, dtype=np.int64)

    def reserve(self, entry: Entry) -> Place | None:
        """A place that is being written; others give way for it. None, and nobody has given way,
        when what is pinned leaves too little room. End it with `written` or `drop` and `unpin`."""
        num_pages = self.pages.pages_for(entry.num_tokens)
        if num_pages > self.pages.num_free + self.num_evictable:
            return None
        while num_pages > self.pages.num_free:
            victim = self.queue.victim(entry.tenant, num_pages)
            assert victim is not None, "evictable pages were counted"
            self._evict(victim)
        self._next_holder += 1
        pages = self.pages.take(self._next_holder, entry.num_tokens)
        assert pages is not None, "room was made"
        rows = self.rows_of(pages)[: entry.num_tokens]
        place = Place(entry, self.tier, self._next_holder, num_pages, rows, entry.is_permanent)
        self.places[place.holder] = place
        self.num_pinned += num_pages
        self.num_permanent += num_pages * place.is_permanent
        self.queue.took(entry.tenant, num_pages)
        entry.attach(place)
        return place

    def written(self, place: Place) -> None:
        """The writer is done: the place can be read."""
        assert not place.is_written
        assert not place.is_dropped
        place.is_written = True
        self.readable[place.entry.key] = place
        if not place.is_permanent:
            self.queue.add(place)
        self.unpin([place])

    def pin(self, places: Iterable[Place]) -> None:
        for place in places:
            if place.num_pins == 0:
                self.num_pinned += place.num_pages
                if not place.is_permanent:
                    self.num_evictable -= place.num_pages
            place.num_pins += 1

    def unpin(self, places: Iterable[Place]) -> None:
        """End one reader of each, or the writer of a dropped place."""
        num_unpinned = num_evictable = 0
        for place in places:
            place.num_pins = num_pins = place.num_pins - 1
            if num_pins:
                assert num_pins > 0
                continue
            num_unpinned += place.num_pages
            if place.is_dropped:
                self._free(place)
            elif not place.is_permanent:
                num_evictable += place.num_pages
                if not place.is_queued:
                    self.queue.unpinned(place)
        self.num_pinned -= num_unpinned
        self.num_evictable += num_evictable

    def read(self, places: Iterable[Place]) -> None:
        """A request reads the chunks: pinned until `unpin`, and eviction takes note of the use.

        One pass, since every request does this with every chunk that it is served from.
        """
        now, clock, fading = self.now, self.queue.clock, self._fading
        num_pinned = num_evictable = 0
        for place in places:
            if place.num_pins == 0:
                num_pinned += place.num_pages
                if not place.is_permanent:
                    num_evictable += place.num_pages
            place.num_pins += 1
            place.clock = clock
            entry = place.entry
            now += 1
            entry.heat = 1.0 + entry.heat / (1.0 + fading * (now - entry.used_at))
            entry.used_at = now
        self.now = now
        self.num_pinned += num_pinned
        self.num_evictable -= num_evictable

    def faded(self, heat: float, used_at: int) -> float:
        """What is left of it now."""
        return heat / (1.0 + self._fading * (self.now - used_at))

    def drop(self, place: Place) -> bool:
        """The place cannot be found any more. Whether its end must wait for a pin."""
        assert not place.is_dropped
        place.is_dropped = True
        if place.is_written:
            del self.readable[place.entry.key]
        self.queue.remove(place)
        if place.num_pins:
            return True
        if not place.is_permanent:
            self.num_evictable -= place.num_pages
        self._free(place)
        return False

    def rows_of(self, pages: Sequence[int]) -> NDArray[np.int64]:
        if not pages:
            return _NO_ROWS
        first = np.asarray(pages, dtype=np.int64)[:, None] * self.pages.page_tokens
        return (first + self._offsets).reshape(-1)

    def drain_freed(self) -> list[Place]:
        """Places freed since the last call."""
        freed, self.freed = self.freed, []
        return freed

    @property
    def num_used(self) -> int:
        return self.pages.num_pages - self.pages.num_free

    def check_conservation(self) -> None:
        """No page is lost or held twice, and every count agrees with the places."""
        self.pages.check_conservation()
        held = sum(place.num_pages for place in self.places.values())
        assert held == self.num_used, "pages held by no place"
        evictable = [
            place
            for place in self.places.values()
            if place.num_pins == 0 and not place.is_permanent
        ]
        for place in self.places.values():
            assert place.num_pins >= 0
            assert place.num_pins or place.is_written, "nobody writes it and nobody can read it"
            assert place.num_pins or not place.is_dropped, "a dropped place was not freed"
        assert self.num_evictable == sum(p.num_pages for p in evictable), "evictable pages"
        pinned = sum(place.num_pages for place in self.places.values() if place.num_pins)
        assert self.num_pinned == pinned, "pinned pages"
        permanent = sum(p.num_pages for p in self.places.values() if p.is_permanent)
        assert self.num_permanent == permanent, "permanent pages"
        readable = {
            p.entry.key: p for p in self.places.values() if p.is_written and not p.is_dropped
        }
        assert self.readable == readable, "a place that can be read is not found, or another is"
        self.queue.check({place.holder for place in evictable}, set(self.places))

    @property
    def _fading(self) -> float:
        return 1.0 / (HALF_LIFE * max(1, len(self.places)))

    def _evict(self, place: Place) -> None:
        assert place.num_pins == 0
        self.drop(place)
        self.num_evictions += 1
        self.on_evict(place)

    def _free(self, place: Place) -> None:
        del self.places[place.holder]
        self.pages.give_back(place.holder)
        self.num_permanent -= place.num_pages * place.is_permanent
        self.queue.took(place.tenant, -place.num_pages)
        self.freed.append(place)
        # They name each other, and the garbage collector looks at neither (`idle_heap`).
        place.entry.detach(place)
