"""The disk tier of one rank: chunks that outlive the process, sealed, and useless without control.

A record on disk passes through these states; only an admitted one can be read:

    put ─────────────────────────────► admitted ──remove, evict, unreadable──► gone
                                          │ process ends             ▲
                                          ▼                          │ next start: admit
                                       unknown ──admit: not wanted, other epoch, damaged──► gone
                                          └──────evicted─────────────────────────────────► gone

`open_disk_store` finds records but admits none. `admit` is the comparison with control: it names
what a user's facts should have now and the user's current `DiskKey`, and from its return on exactly
the records that are wanted and could be opened are there, all sealed under that key. The same call
follows every delete and update of a running worker: what survives is sealed anew, which rewrites 60
bytes of a record, not its payload.

Who calls what, in a worker of n ranks:

    worker service    users.disk_key(scope)          with ListChanges, when a disk tier is set
        │             sealed = secret.seal(scope, key)   the engine logs requests when it dies
        ▼
    scheduler side    passes `sealed` and the wanted chunk keys on to the ranks; a record is in the
        │             directory once every rank has named it in `admitted`, and is removed from
        ▼             all ranks as soon as one of them evicts or cannot read it
    every rank        store.admit(scope, secret.unseal(scope, sealed), wanted)
                      store.put / read / remove

A store belongs to one process, and any of its threads may call it. `put` and `read` work without
the store's lock while they move payload; one core reads about 4 GB/s from the page cache and
writes 1 to 2 (benchmarks/disk.py), mostly without the interpreter's lock. Never call either on the
thread that runs the forward pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from inferscale_core.ids import ChunkKey, UserScope
from inferscale_core.memory.disk_keys import DiskKey
from inferscale_core.memory.facts import FactRef

Buffer = bytes | bytearray | memoryview
"""Of a tensor: `memoryview(tensor.view(torch.uint8).numpy())`, contiguous."""


@dataclass(frozen=True, slots=True)
class DiskRecord:
    """What is known of a stored chunk beside its rows. All of it is encrypted on disk.

    origin: the position at which the key of its first token was computed; the others follow.
    """

    key: ChunkKey
    fact: FactRef
    num_tokens: int
    origin: int
    prefix_keys: tuple[ChunkKey, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """is_stored: false when the user's key is not known, the chunk alone is larger than the tier,
    or the disk refused; nothing of it is left then. evicted: admitted records that made room."""

    is_stored: bool
    evicted: tuple[ChunkKey, ...] = ()


@dataclass(slots=True)
class DiskStats:
    """Since the store was opened. damaged: records that could not be opened with the right key."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    written: int = 0
    rejected: int = 0
    damaged: int = 0


class ChunkStore(Protocol):
    """One rank's records. See the module's docstring for the states and who calls."""

    @property
    def num_bytes(self) -> int:
        """On disk now, unknown records included. Never above the bound, also while writing."""

    @property
    def num_records(self) -> int: ...

    @property
    def stats(self) -> DiskStats: ...

    def admit(
        self, scope: UserScope, disk_key: DiskKey, wanted: Collection[ChunkKey]
    ) -> tuple[DiskRecord, ...]:
        """Compare the scope with what its user's facts should have now.

        From the return on the scope has exactly the records returned: those of `wanted` that are
        here and whole, sealed under `disk_key`. Every other file of the scope is removed, and an
        older key of it is forgotten. A `disk_key` of an older epoch than one seen before changes
        nothing and gives what is admitted. Takes about 100 us a record; reads no payload.
        """

    def put(self, record: DiskRecord, payload: Buffer) -> Stored:
        """Store a chunk: its rows as bytes, opaque, contiguous, of any length above 0.

        `payload` must not change until the return. The scope's key must have come with `admit`.
        Evicts the records that were used longest ago. A record under the same key is replaced. A
        process that ends in here leaves no record.
        """

    def read(self, key: ChunkKey, into: Buffer) -> bool:
        """Decrypt a record's rows into a writable buffer of exactly their length.

        False when it is not admitted, or was removed meanwhile, or does not open: then it is gone
        and `into` holds nothing of worth. Raises ValueError for a buffer of another length.
        """

    def remove(self, keys: Iterable[ChunkKey]) -> int:
        """Remove records, whatever their state; returns how many there were. A read that has begun
        may still succeed."""

    def close(self) -> None:
        """Let go of the folder and forget every key. The records stay."""
