"""Who reads what: a request begins and ends one reading of all the chunks that it is served from.

    begin ──► open ──end──► ended
      └──────► unnoted ──note──► noted     (each use is in the chunks' heat)

Every request passes here with up to hundreds of places before its first token, so beginning and
ending look at none of them. They are looked at when somebody asks which are being read, and when
the uses are noted: some requests later, or before eviction compares what chunks are worth.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from inferscale_core.kv.tiers import Place

MAX_UNNOTED = 32
"""Readings. Noting so many of 50 places takes about 0.2 ms; steps that serve nobody note what there
is, so that it comes to this only when every step admits requests."""


class Reading(msgspec.Struct, eq=False, gc=False):
    """now: uses of the tier up to and with this one. clock: of eviction, when it began."""

    places: list[Place]
    now: int
    clock: float


class Readings:
    """Of one tier. Owned by the scheduler thread."""

    def __init__(self) -> None:
        self._open: set[Reading] = set()
        self._unnoted: list[Reading] = []
        self._places: set[Place] | None = None
        self._num_pages: int | None = None

    def begin(self, places: list[Place], now: int, clock: float) -> Reading:
        reading = Reading(places, now, clock)
        self._open.add(reading)
        self._unnoted.append(reading)
        self._places = self._num_pages = None
        return reading

    def end(self, readings: Iterable[Reading]) -> None:
        """Once for each reading."""
        for reading in readings:
            self._open.remove(reading)
        self._places = self._num_pages = None

    @property
    def places(self) -> set[Place]:
        """All that are being read. To be looked at only."""
        if self._places is None:
            self._places = set().union(*(reading.places for reading in self._open))
        return self._places

    @property
    def num_pages(self) -> int:
        """Of `places`."""
        if self._num_pages is None:
            self._num_pages = sum(place.num_pages for place in self.places)
        return self._num_pages

    @property
    def num_unnoted(self) -> int:
        return len(self._unnoted)

    def note(self, fading: float) -> None:
        """fading: of heat, for each use of the tier since the chunk's last."""
        for reading in self._unnoted:
            now, clock = reading.now, reading.clock
            for place in reading.places:
                place.clock = clock
                entry = place.entry
                entry.heat = 1.0 + entry.heat / (1.0 + fading * (now - entry.used_at))
                entry.used_at = now
        self._unnoted.clear()

    def check(self) -> None:
        """What was worked out is still so, and no place is kept in mind once it was dropped."""
        places = {place for reading in self._open for place in reading.places}
        assert self.places == places, "other places are being read"
        assert self.num_pages == sum(place.num_pages for place in places), "pages being read"
        named = (place for reading in self._unnoted for place in reading.places)
        assert not any(place.is_dropped for place in named), "a use of a dropped place is not noted"
