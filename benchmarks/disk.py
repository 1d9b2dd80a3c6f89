"""The disk tier beside plain files, and what a start costs: `python -m benchmarks.disk`.

Both sides write a temporary file and rename it, and read a file whole into one buffer; they take
turns record by record, so whatever else the machine does slows both. Warm reads come from the page
cache, where a restarted worker finds what it used lately; before a cold one the kernel is asked to
drop the file. Nothing is flushed on either side: a record that a power cut tears is found out.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.kv.disk import DiskRecord
from inferscale_core.kv.disk_secret import StoreSecret
from inferscale_core.kv.disk_store import DiskStore, open_disk_store
from inferscale_core.memory.disk_keys import DiskKey
from inferscale_core.memory.facts import FactRef

NUM_TOKENS = 25
ROW_BYTES = {"Llama-3.1-8B": 128 << 10, "Qwen2.5-1.5B": 28 << 10}
"""Of one token in bfloat16."""

NUM_PREFIX_KEYS = 33
"""Of a chunk of `progressive-32`, and the header: twice as many neighbours as the default has."""

SCOPE = UserScope("benchmark/someone")
SECRET = StoreSecret.from_token("benchmark")
KEYS = (DiskKey(1, bytes(32)), DiskKey(2, bytes(32)))

Row = dict[str, str | int | float]


class PlainFiles:
    """What a store without seals would do."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir()

    def path(self, record: DiskRecord) -> Path:
        return self._root / record.fact.fact_id

    def put(self, record: DiskRecord, payload: memoryview) -> None:
        temporary = self._root / "writing"
        with open(temporary, "wb", buffering=0) as file:
            file.write(payload)
        temporary.replace(self.path(record))

    def read(self, record: DiskRecord, into: memoryview) -> None:
        with open(self.path(record), "rb", buffering=0) as file:
            file.readinto(into)


class SealedFiles:
    """The disk tier, with the files found as the operator would: in its folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.store = self._open()
        self.store.admit(SCOPE, KEYS[0], [])

    def path(self, record: DiskRecord) -> Path:
        return self._root / SECRET.name(SCOPE) / SECRET.name(record.key)

    def put(self, record: DiskRecord, payload: memoryview) -> None:
        assert self.store.put(record, payload).is_stored

    def read(self, record: DiskRecord, into: memoryview) -> None:
        assert self.store.read(record.key, into)

    def restart(self) -> None:
        self.store.close()
        self.store = self._open()

    def _open(self) -> DiskStore:
        return open_disk_store(self._root, SECRET, max_bytes=1 << 40, layout="benchmark")


def measure(root: Path, model: str, num_records: int) -> list[Row]:
    size = NUM_TOKENS * ROW_BYTES[model]
    sealed, plain = SealedFiles(root / "sealed"), PlainFiles(root / "plain")
    sides: tuple[SealedFiles | PlainFiles, ...] = (sealed, plain)
    records = [a_record(number) for number in range(num_records)]
    payload, into = memoryview(os.urandom(size)), memoryview(bytearray(size))

    def transfers(what: str, run: Callable[[SealedFiles | PlainFiles, DiskRecord], None]) -> Row:
        taken: tuple[list[float], list[float]] = ([], [])
        for record in records:
            for side, times in zip(sides, taken, strict=True):
                times.append(timed(partial(run, side, record)))
        ours, theirs = (size / median(times) / 1e9 for times in taken)
        return row(model, what, "GB/s", ours, theirs)

    transfers("warm-up", lambda side, record: side.put(record, payload))
    rows = [
        transfers("write", lambda side, record: side.put(record, payload)),
        transfers("read, warm", lambda side, record: side.read(record, into)),
    ]
    assert into == payload
    for record in records:
        drop_from_cache(sealed.path(record))
        drop_from_cache(plain.path(record))
    rows.append(transfers("read, cold", lambda side, record: side.read(record, into)))
    keys = [record.key for record in records]
    for what, run in (
        ("open the store", sealed.restart),
        ("compare a user", lambda: sealed.store.admit(SCOPE, KEYS[0], keys)),
        ("seal a user anew", lambda: sealed.store.admit(SCOPE, KEYS[1], keys)),
    ):
        rows.append(row(model, what, "us a record", timed(run) / num_records * 1e6))
    assert sealed.store.num_records == num_records
    sealed.store.close()
    return rows


def a_record(number: int) -> DiskRecord:
    def key(name: str) -> ChunkKey:
        return ChunkKey(f"{SCOPE}/{name:0>32}")

    seen = tuple(key(f"{number}-{place}") for place in range(NUM_PREFIX_KEYS))
    return DiskRecord(key(str(number)), FactRef(FactId(f"fact-{number}"), 1), NUM_TOKENS, 800, seen)


def row(model: str, what: str, unit: str, ours: float, plain: float | None = None) -> Row:
    found: Row = {"model": model, "what": what, "unit": unit, "disk_tier": round(ours, 3)}
    if plain is not None:
        found |= {"plain_files": round(plain, 3), "ratio": round(ours / plain, 3)}
    return found


def timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def drop_from_cache(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def main() -> None:
    parser = argparse.ArgumentParser(description="The disk tier beside plain files.")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    parser.add_argument("--records", type=int, default=254, help="facts of the one user")
    parser.add_argument("--json", action="store_true", help="a list of rows instead of a table")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for model in ROW_BYTES:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as root:
            rows += measure(Path(root), model, arguments.records)
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    print("| model | | disk tier | plain files | ratio |\n|---|---|---|---|---|")
    for each in rows:
        plain, ratio = each.get("plain_files", ""), each.get("ratio", "")
        what = f"{each['what']}, {each['unit']}"
        print(f"| {each['model']} | {what} | {each['disk_tier']} | {plain} | {ratio} |")


if __name__ == "__main__":
    main()
