"""The key that a user's chunks on disk are sealed with."""

from __future__ import annotations

from dataclasses import dataclass, field

DISK_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class DiskKey:
    """One user's, for one KV epoch. Kept in Postgres; a worker has it in memory only.

    Every update and delete raises the epoch and destroys the key in the same transaction. Its
    representation hides the secret, and it has no `__dict__` for a dump to walk.
    """

    kv_epoch: int
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != DISK_KEY_BYTES:
            raise ValueError(f"a disk key has {DISK_KEY_BYTES} bytes, not {len(self.secret)}")
