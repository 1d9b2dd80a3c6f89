"""Stores, keys and records for the tests of the disk tier."""

from __future__ import annotations

import random
from pathlib import Path

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.kv.disk import DiskRecord
from inferscale_core.kv.disk_secret import StoreSecret
from inferscale_core.kv.disk_store import DiskStore, open_disk_store
from inferscale_core.memory.disk_keys import DiskKey
from inferscale_core.memory.facts import FactRef

SECRET = StoreSecret.from_token("a token of control and workers")
MIRA = UserScope("tenant/mira")
OSCAR = UserScope("tenant/oscar")
PLENTY = 1 << 30


def a_disk_key(kv_epoch: int = 1, user: str = "mira") -> DiskKey:
    return DiskKey(kv_epoch, random.Random(f"{user} {kv_epoch}").randbytes(32))


def a_key(name: str, scope: UserScope = MIRA) -> ChunkKey:
    return ChunkKey(f"{scope}/{name}")


def a_record(key: ChunkKey, num_tokens: int = 5) -> DiskRecord:
    name = key.rpartition("/")[2]
    seen = (ChunkKey(f"{key}-saw"), ChunkKey("shared/header/h"))
    return DiskRecord(key, FactRef(FactId(f"fact-{name}"), 3), num_tokens, 117, seen)


def rows_of(key: ChunkKey, num_bytes: int = 700) -> bytes:
    return random.Random(key).randbytes(num_bytes)


def open_store(
    folder: Path,
    *,
    secret: StoreSecret = SECRET,
    max_bytes: int = PLENTY,
    layout: str = "140 bytes a token",
) -> DiskStore:
    return open_disk_store(folder, secret, max_bytes=max_bytes, layout=layout, lock_wait_s=0.0)


def put(store: DiskStore, *keys: ChunkKey, num_bytes: int = 700) -> None:
    for key in keys:
        assert store.put(a_record(key), rows_of(key, num_bytes)).is_stored


def read(store: DiskStore, key: ChunkKey, num_bytes: int = 700) -> bytes | None:
    into = bytearray(num_bytes)
    return bytes(into) if store.read(key, into) else None


def files_of(folder: Path) -> list[Path]:
    """Records on disk, in order of their names."""
    return sorted(path for path in folder.glob("*/*") if path.parent.name != "writing")
