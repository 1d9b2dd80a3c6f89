"""The disk tier as a folder with a file for each record."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from inferscale_core.ids import ChunkKey, UserScope
from inferscale_core.kv.disk import Buffer, DiskRecord, DiskStats, Stored
from inferscale_core.kv.disk_folder import StoreFolder
from inferscale_core.kv.disk_format import (
    SEAL_OFFSET,
    RecordKey,
    RecordShape,
    Unreadable,
    describe,
    open_record,
    read_payload,
    seal_for,
    write_record,
)
from inferscale_core.kv.disk_secret import StoreSecret
from inferscale_core.memory.canonical import scope_of
from inferscale_core.memory.disk_keys import DiskKey
from inferscale_core.telemetry.logs import get_logger

_log = get_logger(__name__)

LOCK_WAIT_S = 30.0
"""A killed worker's engine notices within seconds; longer means that two workers share a folder."""


@dataclass(slots=True)
class _Opened:
    """What reading an admitted record takes beside its file."""

    key: ChunkKey
    shape: RecordShape
    record_key: RecordKey


@dataclass(slots=True)
class _File:
    """opened: None until the record is admitted."""

    user: str
    num_bytes: int
    opened: _Opened | None = None


@dataclass(slots=True, eq=False)
class _Write:
    """One `put` in progress. Its bytes are counted; it ends without a record once cancelled."""

    key: ChunkKey
    num_bytes: int
    disk_key: DiskKey
    record_key: RecordKey = field(default_factory=RecordKey.draw)
    is_cancelled: bool = False


class DiskStore:
    """A `ChunkStore` (see there). The lock guards what is in memory and which files exist; rows are
    written and read without it."""

    def __init__(self, folder: StoreFolder, secret: StoreSecret, max_bytes: int) -> None:
        self._folder = folder
        self._secret = secret
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._names_by_user: dict[str, set[str]] = {}
        self._disk_keys: dict[UserScope, DiskKey] = {}
        self._writes: set[_Write] = set()
        self._num_bytes = 0
        self._num_temporary = 0
        self._stats = DiskStats()
        for found in sorted(folder.scan(), key=lambda file: file.used_ns):
            self._insert(found.name, _File(found.user, found.num_bytes))
        self._make_room(0)

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    @property
    def num_records(self) -> int:
        return len(self._files)

    @property
    def stats(self) -> DiskStats:
        return self._stats

    def admit(
        self, scope: UserScope, disk_key: DiskKey, wanted: Collection[ChunkKey]
    ) -> tuple[DiskRecord, ...]:
        key_by_name = {self._secret.name(key): key for key in wanted if scope_of(key) == scope}
        with self._lock:
            held = self._disk_keys.get(scope)
            if held is not None and held.kv_epoch > disk_key.kv_epoch:
                return tuple(self._described(scope, held))
            self._cancel(write for write in self._writes if scope_of(write.key) == scope)
            old = held or disk_key
            admitted = []
            for name in list(self._names_by_user.get(self._secret.name(scope), ())):
                key = key_by_name.get(name)
                record = self._open(name, key, old, disk_key) if key is not None else None
                if record is None:
                    self._delete(name)
                else:
                    admitted.append(record)
            self._disk_keys[scope] = disk_key
            return tuple(admitted)

    def put(self, record: DiskRecord, payload: Buffer) -> Stored:
        rows = memoryview(payload).cast("B")
        description = describe(record)
        shape = RecordShape(len(description), len(rows))
        scope = scope_of(record.key)
        with self._lock:
            disk_key = self._disk_keys.get(scope)
            room = self._make_room(shape.file_bytes) if disk_key is not None else None
            if disk_key is None or room is None:
                self._stats.rejected += 1
                return Stored(is_stored=False)
            write = _Write(record.key, shape.file_bytes, disk_key)
            self._writes.add(write)
            self._num_bytes += write.num_bytes
            self._num_temporary += 1
            user, name = self._secret.name(scope), self._secret.name(record.key)
            temporary = self._folder.temporary(name, self._num_temporary)
        try:
            _write_file(temporary, write, description, rows)
        except OSError as exc:
            _log.warning("disk.write_failed", exc=exc)
            write.is_cancelled = True
        with self._lock:
            is_stored = self._end(write, temporary, user, name, shape)
        return Stored(is_stored, room)

    def read(self, key: ChunkKey, into: Buffer) -> bool:
        rows = memoryview(into).cast("B")
        name = self._secret.name(key)
        with self._lock:
            file = self._files.get(name)
            if file is None or file.opened is None:
                self._stats.misses += 1
                return False
            opened = file.opened
            if opened.shape.payload_bytes != len(rows):
                raise ValueError(f"{opened.shape.payload_bytes} bytes do not fit {len(rows)}")
            self._files.move_to_end(name)
            path = self._folder.path(file.user, name)
        try:
            with _open_file(path) as fd:
                read_payload(fd, key, opened.shape, opened.record_key, rows)
                os.utime(fd)
        except (OSError, Unreadable) as exc:
            self._lost(name, opened, exc)
            return False
        with self._lock:
            self._stats.hits += 1
        return True

    def remove(self, keys: Iterable[ChunkKey]) -> int:
        wanted = set(keys)
        with self._lock:
            self._cancel(write for write in self._writes if write.key in wanted)
            names = [name for key in wanted if (name := self._secret.name(key)) in self._files]
            for name in names:
                self._delete(name)
            return len(names)

    def close(self) -> None:
        with self._lock:
            self._cancel(self._writes)
            self._disk_keys.clear()
            self._files.clear()
            self._names_by_user.clear()
            self._folder.close()

    def check_conservation(self) -> None:
        """Every file is indexed once, under its user, and its bytes are counted."""
        with self._lock:
            held = sum(file.num_bytes for file in self._files.values())
            writing = sum(write.num_bytes for write in self._writes)
            assert held + writing == self._num_bytes, "bytes of no file"
            assert self._num_bytes <= max(self._max_bytes, 0), "above the bound"
            indexed = {name for names in self._names_by_user.values() for name in names}
            assert indexed == set(self._files), "the index of users disagrees with the files"
            for name, file in self._files.items():
                assert name in self._names_by_user[file.user]
                status = self._folder.path(file.user, name).stat()
                assert status.st_size == file.num_bytes, "a file is not as long as counted"

    def _open(self, name: str, key: ChunkKey, old: DiskKey, disk_key: DiskKey) -> DiskRecord | None:
        """The record, sealed under `disk_key` from now on; None when it does not open."""
        file = self._files[name]
        try:
            with _open_file(self._folder.path(file.user, name)) as fd:
                shape, record_key, record = open_record(fd, key, file.num_bytes, old)
                if old != disk_key:
                    status = os.fstat(fd)
                    os.pwrite(fd, seal_for(key, shape, record_key, disk_key), SEAL_OFFSET)
                    os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
        except (OSError, Unreadable):
            return None
        file.opened = _Opened(key, shape, record_key)
        return record

    def _described(self, scope: UserScope, disk_key: DiskKey) -> Iterator[DiskRecord]:
        for name in list(self._names_by_user.get(self._secret.name(scope), ())):
            opened = self._files[name].opened
            if opened is None:
                continue
            record = self._open(name, opened.key, disk_key, disk_key)
            if record is None:
                self._delete(name)
            else:
                yield record

    def _end(
        self, write: _Write, temporary: Path, user: str, name: str, shape: RecordShape
    ) -> bool:
        """Give the written file its name, unless the write was cancelled meanwhile."""
        self._writes.discard(write)
        self._num_bytes -= write.num_bytes
        if not write.is_cancelled:
            try:
                self._folder.place(temporary, user, name)
            except OSError as exc:
                _log.warning("disk.write_failed", exc=exc)
                write.is_cancelled = True
        if write.is_cancelled:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            self._stats.rejected += 1
            return False
        if name in self._files:
            self._forget(name)
        opened = _Opened(write.key, shape, write.record_key)
        self._insert(name, _File(user, write.num_bytes, opened))
        self._stats.written += 1
        return True

    def _lost(self, name: str, opened: _Opened, exc: Exception) -> None:
        """A read failed: the file goes, unless it is another one by now."""
        with self._lock:
            self._stats.misses += 1
            file = self._files.get(name)
            if file is None or file.opened is not opened:
                return
            self._stats.damaged += 1
            self._delete(name)
        _log.warning("disk.unreadable", exc=exc)

    def _make_room(self, num_bytes: int) -> tuple[ChunkKey, ...] | None:
        """Admitted records that were evicted; None, and nothing evicted, when there is no room."""
        surplus = self._num_bytes + num_bytes - self._max_bytes
        victims: list[str] = []
        for name, file in self._files.items():
            if surplus <= 0:
                break
            victims.append(name)
            surplus -= file.num_bytes
        if surplus > 0:
            return None
        opened = [self._files[name].opened for name in victims]
        for name in victims:
            self._delete(name)
        self._stats.evictions += len(victims)
        return tuple(record.key for record in opened if record is not None)

    def _cancel(self, writes: Iterable[_Write]) -> None:
        for write in writes:
            write.is_cancelled = True

    def _insert(self, name: str, file: _File) -> None:
        self._files[name] = file
        self._names_by_user.setdefault(file.user, set()).add(name)
        self._num_bytes += file.num_bytes

    def _delete(self, name: str) -> None:
        user = self._files[name].user
        try:
            self._folder.path(user, name).unlink(missing_ok=True)
        except OSError as exc:
            # Nobody can read it through this store any more, nor after a start before `admit`.
            _log.warning("disk.remove_failed", exc=exc)
        self._forget(name)
        if user not in self._names_by_user:
            self._folder.drop_if_empty(user)

    def _forget(self, name: str) -> None:
        file = self._files.pop(name)
        self._num_bytes -= file.num_bytes
        names = self._names_by_user[file.user]
        names.discard(name)
        if not names:
            del self._names_by_user[file.user]


def open_disk_store(
    folder: Path,
    secret: StoreSecret,
    *,
    max_bytes: int,
    layout: str,
    lock_wait_s: float = LOCK_WAIT_S,
) -> DiskStore:
    """Take the folder (see `disk_folder.rank_folder`) and find what is there; 10 to 20 us a file.

    layout: what a row holds, in any words; records of another layout are removed. Raises
    Unavailable when another process has the folder.
    """
    started = time.monotonic()
    taken = StoreFolder(folder, secret, layout, lock_wait_s=lock_wait_s)
    store = DiskStore(taken, secret, max_bytes)
    _log.info(
        "disk.opened",
        records=store.num_records,
        bytes=store.num_bytes,
        took_ms=round((time.monotonic() - started) * 1e3, 1),
    )
    return store


def _write_file(path: Path, write: _Write, description: bytes, rows: memoryview) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_record(fd, write.key, description, rows, write.record_key, write.disk_key)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _open_file(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
