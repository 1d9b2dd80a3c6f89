"""What the directory is made of: chunks and their places in the tiers.

A place passes through these states (`kv.room`); it is pinned by its writer, by a copy to another
tier, by a request that waits for others, and while a request reads it:

    being written ──written──► readable ──evicted, dropped, unpinned──────────► freed
          │                       └──dropped, pinned──► dropped ──last unpin──► freed
          └──dropped──► dropped ──last unpin──► freed

A dropped place cannot be found. Memory that is freed is zeroed before it is written again; what is
freed on disk is deleted.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from inferscale_core.ids import ChunkKey
from inferscale_core.kv.eviction import RESTORE_COST, encode_cost
from inferscale_core.kv.pieces import pieces_of, rows_of
from inferscale_core.kv.reader_counts import ReaderCounts
from inferscale_core.memory.facts import FactRef


class Tier(StrEnum):
    """From fastest to slowest."""

    GPU = "gpu"
    HOST = "host"
    DISK = "disk"


class Entry(msgspec.Struct, eq=False, gc=False):
    """A chunk, and where it is. origin: the position at which its first token's key was computed;
    the others follow. is_published: it has been written once, so it can be asked for.
    readers: of all chunks, the directory's own."""

    key: ChunkKey
    tenant: str
    fact: FactRef | None
    num_tokens: int
    prefix_keys: tuple[ChunkKey, ...]
    origin: int
    readers: ReaderCounts
    gpu: Place | None = None
    host: Place | None = None
    disk: Place | None = None
    is_published: bool = False
    heat: float = 1.0
    used_at: int = 0

    def __repr__(self) -> str:
        return f"Entry({self.key!r})"

    @property
    def is_permanent(self) -> bool:
        return self.fact is None

    @property
    def num_readers(self) -> int:
        """Chunks that are reserved or published, in any tier, and saw this one, or what it was
        before it was evicted and encoded again."""
        return self.readers.of(self.key)

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


class Place(msgspec.Struct, eq=False, gc=False):
    """A chunk in one tier. pages: its pages there; none on disk. pieces: [num_pieces, 3], int32,
    as bytes, see `kv.pieces`: its rows and origins, in the arena.

    is_permanent: never evicted. num_pins: all but those of readings, which are not counted at each
    place (`kv.readings`). is_reported: somebody was told that its end is pending, and is told of
    the end.
    """

    entry: Entry
    tier: Tier
    holder: int
    num_pages: int
    pages: tuple[int, ...]
    page_tokens: int
    is_permanent: bool
    num_pins: int = 1
    is_written: bool = False
    is_dropped: bool = False
    is_reported: bool = False
    clock: float = 0.0
    num_tokens: int = 0
    pieces: bytes = b""

    def __post_init__(self) -> None:
        entry = self.entry
        self.num_tokens = entry.num_tokens
        if self.tier is Tier.GPU:
            self.pieces = pieces_of(self.pages, self.page_tokens, entry.num_tokens, entry.origin)

    @property
    def rows(self) -> NDArray[np.int64]:
        """[num_tokens], int64: the row of each token; empty on disk."""
        return rows_of(self.pages, self.page_tokens)[: self.num_tokens]

    @property
    def tenant(self) -> str:
        return self.entry.tenant

    @property
    def heat(self) -> float:
        return self.entry.heat

    @property
    def cost(self) -> float:
        entry = self.entry
        cost = encode_cost(entry.num_tokens, entry.num_readers)
        return cost * RESTORE_COST if self.has_lower_copy else cost

    @property
    def has_lower_copy(self) -> bool:
        host, disk = self.entry.host, self.entry.disk
        if self.tier is Tier.GPU and host is not None and host.is_written:
            return True
        return self.tier is not Tier.DISK and disk is not None and disk.is_written
