"""Keeps the pauses of Python's garbage collector short, at moments when nobody waits.

A full collection looks at every object that it knows of: 0.1 to 0.3 s in a worker that holds a
user with 10,000 facts, and nothing else runs meanwhile. Specs and facts form no cycles, so they are
freed without it; chunks and their places (`kv.tiers`) it is not told of, and they let go of each
other.
"""

from __future__ import annotations

import gc

MIN_COLLECTIONS = 3
"""Of the middle generation, each after some 7,000 new objects that have stayed."""

_MIDDLE = 1


class IdleHeap:
    """Belongs to the thread that does the process's work."""

    def __init__(self) -> None:
        self._seen = _num_collections()

    def maybe(self) -> None:
        """Nobody waits. What has come since the last time is looked at once more and then left
        alone, at some 0.4 us for each object; does nothing while that is little."""
        if _num_collections() - self._seen >= MIN_COLLECTIONS:
            self.settle()

    def settle(self) -> None:
        gc.collect()
        gc.freeze()
        self._seen = _num_collections()


def _num_collections() -> int:
    return int(gc.get_stats()[_MIDDLE]["collections"])
