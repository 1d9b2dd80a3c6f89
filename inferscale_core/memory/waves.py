"""Which facts may be encoded now.

A fact may be encoded once the chunks of its prefix are resident. All facts that may form one wave,
so encoding by waves gives exactly what encoding one by one in order of memory version gives.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable

from inferscale_core.ids import ChunkKey
from inferscale_core.memory.canonical import ChunkSpec


def next_wave(specs: Iterable[ChunkSpec], resident: Container[ChunkKey]) -> list[ChunkSpec]:
    """The specs whose chunk is missing and whose prefix is resident, in the order given."""
    return [
        spec
        for spec in specs
        if spec.key not in resident and all(key in resident for key in spec.prefix_keys)
    ]


class Waves:
    """The next wave of one user, kept up while chunks come and go: what each of them changes is
    looked at, and nothing else.

    A chunk is resident or missing. One that is missing, behind a prefix that is resident, may be
    taken by whoever encodes it, and is then withheld until it is given back.
    """

    def __init__(self, specs: Iterable[ChunkSpec], resident: Container[ChunkKey]) -> None:
        """Takes some 10 us for each spec. A prefix holds chunks of the specs alone. resident: at
        some moment; note what has changed since."""
        self._specs = {spec.key: spec for spec in specs}
        self._place = {key: place for place, key in enumerate(self._specs)}
        self._resident = {key for key in self._specs if key in resident}
        self._num_missing: dict[ChunkKey, int] = {}
        self._readers: dict[ChunkKey, list[ChunkKey]] = {}
        self._withheld: set[ChunkKey] = set()
        self._ready: list[tuple[int, ChunkKey]] = []
        for spec in self._specs.values():
            self._num_missing[spec.key] = sum(k not in self._resident for k in spec.prefix_keys)
            for key in spec.prefix_keys:
                self._readers.setdefault(key, []).append(spec.key)
            self._offer(spec.key)

    def spec_of(self, key: ChunkKey) -> ChunkSpec | None:
        """None for a chunk that is none of the user's."""
        return self._specs.get(key)

    def note(self, key: ChunkKey, *, is_resident: bool) -> None:
        """The chunk has come or gone; one that is none of the user's says nothing."""
        if key not in self._specs or is_resident == (key in self._resident):
            return
        (self._resident.add if is_resident else self._resident.discard)(key)
        for reader in self._readers.get(key, ()):
            self._num_missing[reader] += -1 if is_resident else 1
            self._offer(reader)
        self._offer(key)

    def take(self) -> ChunkSpec | None:
        """The earliest fact's chunk that is missing, whose prefix is resident and that nobody has
        taken. None when there is no such chunk now."""
        while self._ready:
            _, key = heapq.heappop(self._ready)
            if self._is_ready(key):
                self._withheld.add(key)
                return self._specs[key]
        return None

    def give_back(self, key: ChunkKey) -> None:
        """Behind `take`: it is encoded, or may be tried again."""
        self._withheld.discard(key)
        self._offer(key)

    def withhold(self, key: ChunkKey) -> None:
        """Nobody gets it before it is given back: it has been taken, or given up for good."""
        self._withheld.add(key)

    def _offer(self, key: ChunkKey) -> None:
        """What is offered twice, or not ready any more when it is its turn, is passed over then."""
        if key in self._specs and self._is_ready(key):
            heapq.heappush(self._ready, (self._place[key], key))

    def _is_ready(self, key: ChunkKey) -> bool:
        return not (key in self._resident or key in self._withheld or self._num_missing[key])
