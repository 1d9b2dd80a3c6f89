"""How many chunks saw each chunk.

Every chunk that comes or goes passes here with all that it saw, so neither is a loop of ours: both
are counted, and the one is taken from the other when somebody asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from inferscale_core.ids import ChunkKey

MAX_UNSETTLED = 4096
"""Chunks whose readers went, and are not taken off the counts yet: bounds how long that takes at
once, and how many keys are kept that nobody saw."""


class ReaderCounts:
    """Of known chunks, by the key of what they saw, be that known itself or gone. Owned by the
    scheduler thread."""

    def __init__(self) -> None:
        self._came: Counter[ChunkKey] = Counter()
        self._went: Counter[ChunkKey] = Counter()

    def add(self, seen: Iterable[ChunkKey]) -> None:
        """A chunk that saw these is known now."""
        self._came.update(seen)

    def remove(self, seen: Iterable[ChunkKey]) -> None:
        """One that saw these, or several, are not known any more."""
        self._went.update(seen)
        if len(self._went) >= MAX_UNSETTLED:
            self._settle()

    def of(self, key: ChunkKey) -> int:
        return self._came.get(key, 0) - self._went.get(key, 0)

    def check(self, seen: Iterable[ChunkKey]) -> None:
        """seen: what all known chunks saw."""
        self._settle()
        # To a counter, 0 is as good as not there.
        assert dict(self._came) == dict(Counter(seen)), "the number of a chunk's readers"

    def _settle(self) -> None:
        """Keys that nobody saw are not kept."""
        came = self._came
        for key, num_gone in self._went.items():
            left = came[key] - num_gone
            if left:
                came[key] = left
            else:
                del came[key]
        self._went.clear()
