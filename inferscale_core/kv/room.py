"""The room of one tier: its pages, the places in it, and who gives way.

Transitions of a place are drawn in `kv.tiers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from inferscale_core.ids import ChunkKey
from inferscale_core.kv.eviction import HALF_LIFE, EvictionQueue
from inferscale_core.kv.pages import Pages
from inferscale_core.kv.pieces import rows_of
from inferscale_core.kv.readings import MAX_UNNOTED, Reading, Readings
from inferscale_core.kv.tiers import Entry, Place, Tier

_holder = attrgetter("holder")
"""Tells places apart, and which was taken first."""

_NO_ROWS = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class Room:
    """The pages of one tier and the places in it.

    on_evict: told of each place that gives way, already freed. readable: the places that can be
    read, by the chunk's key. num_permanent: pages of such places.
    """

    tier: Tier
    pages: Pages
    on_evict: Callable[[Place], None]
    tenant_share: float = 1.0
    queue: EvictionQueue[Place] = field(init=False)
    places: dict[int, Place] = field(default_factory=dict)
    readable: dict[ChunkKey, Place] = field(default_factory=dict)
    freed: list[Place] = field(default_factory=list)
    num_permanent: int = 0
    num_evictions: int = 0
    now: int = 0
    _readings: Readings = field(default_factory=Readings)
    _leaving: set[Place] = field(default_factory=set)
    """Dropped, and kept only by readings: the last of them frees it."""
    _num_idle: int = 0
    """Pages of places that are neither dropped nor permanent and have no `num_pins`."""
    _num_with_pins: int = 0
    _next_holder: int = 0

    def __post_init__(self) -> None:
        self.queue = EvictionQueue(self.pages.num_pages, self.tenant_share)

    def reserve(self, entry: Entry) -> Place | None:
        """A place that is being written; others give way for it. None, and nobody has given way,
        when what is pinned leaves too little room. End it with `written` or `drop` and `unpin`."""
        num_pages = self.pages.pages_for(entry.num_tokens)
        if not self._make_room(entry.tenant, num_pages):
            return None
        self._next_holder += 1
        pages = self.pages.take(self._next_holder, entry.num_tokens)
        assert pages is not None, "room was made"
        place = Place(
            entry,
            self.tier,
            self._next_holder,
            num_pages,
            pages,
            self.pages.page_tokens,
            entry.is_permanent,
        )
        self.places[place.holder] = place
        self._num_with_pins += num_pages
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
                self._num_with_pins += place.num_pages
                self._num_idle -= self._idle_pages(place)
                self._leaving.discard(place)
            place.num_pins += 1

    def unpin(self, places: Iterable[Place]) -> None:
        """End one pin of each, or the writer of a dropped place."""
        for place in places:
            place.num_pins -= 1
            assert place.num_pins >= 0
            if place.num_pins:
                continue
            self._num_with_pins -= place.num_pages
            self._num_idle += self._idle_pages(place)
            if place.is_dropped:
                self._leave(place)
            elif place in self.queue.skipped:
                self.queue.unpinned(place)

    def read(self, places: list[Place]) -> Reading:
        """A request reads the chunks: they are pinned until `end_reads`, and eviction takes note of
        the use. The list must not change."""
        self.now += len(places)
        return self._readings.begin(places, self.now, self.queue.clock)

    def end_reads(self, readings: Sequence[Reading]) -> None:
        """What was dropped meanwhile is freed by its last reader. Those of a step end together:
        who else reads what they read is then worked out once."""
        if not readings:
            return
        self._readings.end(readings)
        if self._readings.num_unnoted >= MAX_UNNOTED:
            self.note_uses()
        if self._leaving or self.queue.skipped:
            self._settle()

    def note_uses(self) -> None:
        """Make up for what `read` left undone, which was not to hold up a request. Cheap when
        there is nothing; due before anybody looks at a chunk's heat."""
        if self._readings.num_unnoted:
            self._readings.note(self._fading)

    def is_pinned(self, place: Place) -> bool:
        return place.num_pins > 0 or place in self._readings.places

    @property
    def num_evictable(self) -> int:
        """Pages of places that can be read, are not pinned and not permanent."""
        return self._num_idle - sum(
            self._idle_pages(place) for place in self._readings.places if not place.num_pins
        )

    @property
    def num_pinned(self) -> int:
        """Pages of such places."""
        read = (place.num_pages for place in self._readings.places if not place.num_pins)
        return self._num_with_pins + sum(read)

    def faded(self, heat: float, used_at: int) -> float:
        """What is left of it now."""
        return heat / (1.0 + self._fading * (self.now - used_at))

    def drop(self, place: Place) -> bool:
        """The place cannot be found any more. Whether its end must wait for a pin."""
        assert not place.is_dropped
        self.note_uses()  # It is named there, and what is gone is to be named nowhere.
        if not place.num_pins:
            self._num_idle -= self._idle_pages(place)
        place.is_dropped = True
        if place.is_written:
            del self.readable[place.entry.key]
        self.queue.remove(place)
        return place.num_pins > 0 or not self._leave(place)

    def rows_of(self, pages: Sequence[int]) -> NDArray[np.int64]:
        return rows_of(pages, self.pages.page_tokens) if pages else _NO_ROWS

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
        self._readings.check()
        assert self._readings.places <= set(self.places.values()), "a freed place is being read"
        pinned = {place for place in self.places.values() if self.is_pinned(place)}
        evictable = [
            place
            for place in self.places.values()
            if place not in pinned and not place.is_permanent
        ]
        for place in self.places.values():
            assert place.num_pins >= 0
            assert place in pinned or place.is_written, "nobody writes it and nobody can read it"
            assert place in pinned or not place.is_dropped, "a dropped place was not freed"
            is_leaving = place.is_dropped and not place.num_pins
            assert is_leaving == (place in self._leaving), "its last reader will not free it"
        assert self._leaving <= pinned, "a place that was freed is to be freed again"
        assert self.num_evictable == sum(p.num_pages for p in evictable), "evictable pages"
        assert self.num_pinned == sum(place.num_pages for place in pinned), "pinned pages"
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

    def _make_room(self, tenant: str, num_pages: int) -> bool:
        """Evict until so many pages are free. False, and nobody has given way, if it cannot be."""
        if num_pages <= self.pages.num_free:
            return True
        surely_evictable = self._num_idle - self._readings.num_pages
        num_missing = num_pages - self.pages.num_free
        # `num_evictable` takes longer to count.
        if num_missing > surely_evictable and num_missing > self.num_evictable:
            return False
        self.note_uses()
        while num_pages > self.pages.num_free:
            victim = self.queue.victim(tenant, num_pages, self.is_pinned)
            assert victim is not None, "evictable pages were counted"
            self._evict(victim)
        return True

    def _evict(self, place: Place) -> None:
        assert not self.is_pinned(place)
        self.drop(place)
        self.num_evictions += 1
        self.on_evict(place)

    @staticmethod
    def _idle_pages(place: Place) -> int:
        """Its share of `_num_idle` while it has no `num_pins`."""
        return 0 if place.is_permanent or place.is_dropped else place.num_pages

    def _settle(self) -> None:
        """Readings have ended: see to the places that nobody reads any more."""
        still_read = self._readings.places
        for place in sorted(self._leaving - still_read, key=_holder):
            self._leave(place)
        for place in sorted(self.queue.skipped - still_read, key=_holder):
            if not place.num_pins:
                self.queue.unpinned(place)

    def _leave(self, place: Place) -> bool:
        """Free a dropped place that nobody has pinned, now or when its last reader ends. Whether
        it is freed."""
        if place in self._readings.places:
            self._leaving.add(place)
            return False
        self._leaving.discard(place)
        self._free(place)
        return True

    def _free(self, place: Place) -> None:
        del self.places[place.holder]
        self.pages.give_back(place.holder)
        self.num_permanent -= place.num_pages * place.is_permanent
        self.queue.took(place.tenant, -place.num_pages)
        self.freed.append(place)
        # They name each other, and the garbage collector looks at neither (`idle_heap`).
        place.entry.detach(place)
