"""One record as a file.

    | magic 8 | epoch 8 | sealed record key 60 | lengths 16 | sealed description | sealed rows … |
    |◄──────────────────────── head ───────────────────────►|

Each file has a key of its own, drawn when it is written and used for nothing else, so nonces are
plain counters: 0 for the description, 1 and on for the segments of the rows. Only that key is
sealed under the user's: giving a record another epoch rewrites 68 bytes. What seals it covers the
chunk's key, the epoch and the lengths, so a record that was moved, cut or joined does not open, and
every segment is bound to its place. AES-256-GCM throughout.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.kv.disk import DiskRecord
from inferscale_core.memory.disk_keys import DISK_KEY_BYTES, DiskKey
from inferscale_core.memory.facts import FactRef

_MAGIC = b"ISKVrec\x01"
_NONCE_BYTES = 12
_TAG_BYTES = 16
_SEALED_KEY_BYTES = _NONCE_BYTES + DISK_KEY_BYTES + _TAG_BYTES
_SEAL = struct.Struct(f"<Q{_SEALED_KEY_BYTES}s")
_LENGTHS = struct.Struct("<IIQ")
SEAL_OFFSET = len(_MAGIC)
HEAD_BYTES = SEAL_OFFSET + _SEAL.size + _LENGTHS.size
MAX_DESCRIPTION_BYTES = 1 << 20

SEGMENT_BYTES = 1 << 18
"""Plain bytes sealed at once. 256 KiB stay in a core's cache: sealed at 10 GB/s where 4 MiB are at
5 (AES-NI, one core of a cloud machine)."""


class Unreadable(Exception):
    """The record does not open: damaged, moved, cut, or sealed under another key."""


@dataclass(frozen=True, slots=True)
class RecordShape:
    """Lengths of a record: of its description as plain text, and of its rows."""

    description_bytes: int
    payload_bytes: int

    @property
    def payload_offset(self) -> int:
        return HEAD_BYTES + self.description_bytes + _TAG_BYTES

    @property
    def file_bytes(self) -> int:
        num_segments = -(-self.payload_bytes // SEGMENT_BYTES)
        return self.payload_offset + self.payload_bytes + num_segments * _TAG_BYTES

    def pack(self) -> bytes:
        return _LENGTHS.pack(self.description_bytes, SEGMENT_BYTES, self.payload_bytes)


@dataclass(frozen=True, slots=True)
class RecordKey:
    """What opens one record's description and rows. Never written as it is."""

    secret: bytes = field(repr=False)

    @classmethod
    def draw(cls) -> RecordKey:
        return cls(os.urandom(DISK_KEY_BYTES))

    def cipher(self) -> AESGCM:
        return AESGCM(self.secret)


def describe(record: DiskRecord) -> bytes:
    body = {
        "fact": [record.fact.fact_id, record.fact.revision],
        "num_tokens": record.num_tokens,
        "origin": record.origin,
        "prefix_keys": record.prefix_keys,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def seal_for(key: ChunkKey, shape: RecordShape, record_key: RecordKey, disk_key: DiskKey) -> bytes:
    """The bytes at SEAL_OFFSET: the epoch, and the record's key sealed under the user's."""
    nonce = os.urandom(_NONCE_BYTES)
    aad = _seal_aad(key, disk_key.kv_epoch, shape)
    sealed = AESGCM(disk_key.secret).encrypt(nonce, record_key.secret, aad)
    return _SEAL.pack(disk_key.kv_epoch, nonce + sealed)


def write_record(
    fd: int,
    key: ChunkKey,
    description: bytes,
    payload: memoryview,
    record_key: RecordKey,
    disk_key: DiskKey,
) -> None:
    """Write a whole record at the start of an empty file. payload: bytes, contiguous."""
    shape = RecordShape(len(description), len(payload))
    cipher = record_key.cipher()
    head = _MAGIC + seal_for(key, shape, record_key, disk_key) + shape.pack()
    _write_all(fd, head + cipher.encrypt(_nonce(0), description, key.encode()))
    sealed = memoryview(bytearray(SEGMENT_BYTES + _TAG_BYTES))
    for index, segment in _segments(payload):
        size = len(segment) + _TAG_BYTES
        cipher.encrypt_into(_nonce(index), segment, key.encode(), sealed[:size])
        _write_all(fd, sealed[:size])


def open_record(
    fd: int, key: ChunkKey, file_bytes: int, disk_key: DiskKey
) -> tuple[RecordShape, RecordKey, DiskRecord]:
    """Read head and description, and no rows. Raises Unreadable."""
    shape, record_key = _open_head(os.pread(fd, HEAD_BYTES, 0), key, disk_key)
    if shape.file_bytes != file_bytes:
        raise Unreadable("cut or padded")
    sealed = os.pread(fd, shape.description_bytes + _TAG_BYTES, HEAD_BYTES)
    try:
        description = record_key.cipher().decrypt(_nonce(0), sealed, key.encode())
    except InvalidTag as exc:
        raise Unreadable("description") from exc
    return shape, record_key, _record(key, json.loads(description))


def read_payload(
    fd: int, key: ChunkKey, shape: RecordShape, record_key: RecordKey, into: memoryview
) -> None:
    """Decrypt the rows. into: as many writable bytes. Raises Unreadable; `into` is garbage then."""
    cipher = record_key.cipher()
    sealed = memoryview(bytearray(SEGMENT_BYTES + _TAG_BYTES))
    offset = shape.payload_offset
    for index, segment in _segments(into):
        part = sealed[: len(segment) + _TAG_BYTES]
        if os.preadv(fd, [part], offset) != len(part):
            raise Unreadable("cut")
        try:
            cipher.decrypt_into(_nonce(index), part, key.encode(), segment)
        except InvalidTag as exc:
            raise Unreadable("rows") from exc
        offset += len(part)


def _open_head(head: bytes, key: ChunkKey, disk_key: DiskKey) -> tuple[RecordShape, RecordKey]:
    if len(head) != HEAD_BYTES or not head.startswith(_MAGIC):
        raise Unreadable("head")
    epoch, sealed = _SEAL.unpack_from(head, SEAL_OFFSET)
    lengths = _LENGTHS.unpack_from(head, SEAL_OFFSET + _SEAL.size)
    shape = RecordShape(lengths[0], lengths[2])
    if epoch != disk_key.kv_epoch or lengths[1] != SEGMENT_BYTES:
        raise Unreadable("epoch or segment size")
    try:
        nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        secret = AESGCM(disk_key.secret).decrypt(nonce, body, _seal_aad(key, epoch, shape))
    except InvalidTag as exc:
        raise Unreadable("key") from exc
    return shape, RecordKey(secret)


def _record(key: ChunkKey, body: Any) -> DiskRecord:
    """From a description that has been authenticated, so its form is ours."""
    fact_id, revision = body["fact"]
    return DiskRecord(
        key=key,
        fact=FactRef(FactId(fact_id), revision),
        num_tokens=body["num_tokens"],
        origin=body["origin"],
        prefix_keys=tuple(map(ChunkKey, body["prefix_keys"])),
    )


def _segments(rows: memoryview) -> Iterator[tuple[int, memoryview]]:
    """With the number that is each one's nonce."""
    for start in range(0, len(rows), SEGMENT_BYTES):
        yield 1 + start // SEGMENT_BYTES, rows[start : start + SEGMENT_BYTES]


def _nonce(number: int) -> bytes:
    return number.to_bytes(_NONCE_BYTES, "little")


def _seal_aad(key: ChunkKey, kv_epoch: int, shape: RecordShape) -> bytes:
    return b"\0".join((_MAGIC, key.encode(), str(kv_epoch).encode(), shape.pack()))


def _write_all(fd: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
