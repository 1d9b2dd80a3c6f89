"""Executes a rank's tier operations beside the forward pass, and says which have ended.

    rank's thread ──submit──► mover ─┬─ GPU ↔ host: copies on a stream of their own
                                     ├─ host memory: zeroing
                                     ├─ reading thread: disk → staging, then up by the mover
                                     └─ writing thread: admit, remove, staging → disk
    rank's thread ◄──poll───────────────── results

One thread takes operations in order, so zeroing comes before what is written there afterwards.
Removing, admitting and writing are in order among themselves. Without CUDA the mover's thread
copies by itself. Nothing here raises into the forward pass: an operation that fails says so.

Source: vLLM 0.26 and 0.32, _custom_ops.swap_blocks_batch (one driver call for many copies).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import UserScope
from inferscale_core.kv.disk import Buffer, ChunkStore
from inferscale_core.kv.storage import Arena
from inferscale_core.kv.tiers import Tier
from inferscale_core.memory.disk_keys import DiskKey
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.vllm_connector.metadata import (
    AdmitRecords,
    MoveRows,
    OpResult,
    RemoveRecords,
    TierOp,
    ZeroHostRows,
)

_log = get_logger(__name__)

Unseal = Callable[[UserScope, str], DiskKey]
"""Opens what `AdmitRecords` carries. See `kv.disk_secret`."""

Event = Any
"""torch.cuda.Event, whose methods have no types."""

_DONE = OpResult(succeeded=True)
_FAILED = OpResult(succeeded=False)


class HostRows:
    """The host tier of one rank: rows as the arena's, in memory that the GPU can reach.

    Raises InvalidInput when the machine does not pin so much.
    """

    def __init__(self, num_rows: int, arena: Arena) -> None:
        self.rows = torch.zeros(num_rows, arena.rows.shape[1], dtype=arena.rows.dtype)
        self._is_pinned = arena.rows.is_cuda
        if self._is_pinned:
            # Torch's own pinned memory comes in powers of two.
            error = _cudart().cudaHostRegister(self.rows.data_ptr(), self.num_bytes, 0)
            if error.value:
                raise InvalidInput("engine.host_bytes", f"{self.num_bytes} cannot be pinned")

    def close(self) -> None:
        """Unpin. Nothing may be copied any more."""
        if self._is_pinned:
            _cudart().cudaHostUnregister(self.rows.data_ptr())
            self._is_pinned = False

    @property
    def num_bytes(self) -> int:
        return self.rows.numel() * self.rows.element_size()


@dataclass(frozen=True, slots=True)
class _Submitted:
    """ready: when the step's own work on these rows has been done; None without CUDA."""

    ops: list[TierOp]
    ready: Event | None


@dataclass(frozen=True, slots=True)
class _Staged:
    """A chunk that has been read from disk and is to be copied up."""

    op: MoveRows
    rows: Tensor


class Mover:
    """Started by its constructor; ends with `close`. `submit` and `poll` are for the rank's thread
    and never wait."""

    def __init__(self, arena: Arena, host: HostRows | None) -> None:
        self._arena = arena
        self._host = host
        self._store: ChunkStore | None = None
        self._unseal: Unseal | None = None
        self._copies = RowCopies(arena, host)
        self._inbox: queue.SimpleQueue[_Submitted | _Staged | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._writes: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._results: dict[int, OpResult] = {}
        self._on_stream: list[tuple[Event, list[int], Any]] = []
        self._num_open = 0
        self._threads = [self._thread("mover", self._run)]

    def use_disk(self, store: ChunkStore, unseal: Unseal) -> None:
        """From now on the mover owns the store. Before that, what concerns the disk fails."""
        assert self._store is None, "a rank has one disk tier"
        self._store, self._unseal = store, unseal
        self._threads.append(self._thread("disk-reads", partial(_work, self._reads)))
        self._threads.append(self._thread("disk-writes", partial(_work, self._writes)))

    def submit(self, ops: list[TierOp]) -> None:
        """Begin, after all that the current stream has been given so far."""
        ready = None
        if self._arena.rows.is_cuda:
            ready = _new_event()
            ready.record()
        self._num_open += len(ops)
        self._inbox.put(_Submitted(ops, ready))

    def poll(self) -> dict[int, OpResult]:
        """Operations that have ended since the last call."""
        if not self._num_open:
            return {}
        with self._lock:
            on_stream, self._on_stream = self._on_stream, []
            for event, op_ids, kept in on_stream:
                if event.query():
                    self._results.update(dict.fromkeys(op_ids, _DONE))
                else:
                    self._on_stream.append((event, op_ids, kept))
            results, self._results = self._results, {}
        self._num_open -= len(results)
        return results

    def close(self) -> None:
        """The last call; what has not begun is left undone."""
        for inbox in (self._inbox, self._reads, self._writes):
            inbox.put(None)
        for thread in self._threads:
            thread.join(timeout=10.0)
        if self._store is not None:
            self._store.close()
        if self._host is not None:
            self._copies.finish()
            self._host.close()

    def _thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        def run_on_device() -> None:
            if self._arena.rows.is_cuda:
                torch.cuda.set_device(self._arena.rows.device)
            run()

        thread = threading.Thread(target=run_on_device, name=f"inferscale-{name}", daemon=True)
        thread.start()
        return thread

    # In the mover's thread.

    def _run(self) -> None:
        while (work := self._inbox.get()) is not None:
            if isinstance(work, _Staged):
                self._attempt([work.op], partial(self._up, work))
                continue
            self._copies.wait_for(work.ready)
            self._begin(work.ops)

    def _begin(self, ops: list[TierOp]) -> None:
        copies = []
        for op in ops:
            if self._store is None and _concerns_disk(op):
                self._end(op.op_id, _FAILED)
                continue
            match op:
                case ZeroHostRows():
                    self._attempt([op], partial(self._zero, op))
                case RemoveRecords():
                    self._writes.put(self._job(op, partial(self._remove, op)))
                case AdmitRecords():
                    self._writes.put(self._job(op, partial(self._admit, op)))
                case MoveRows(source=Tier.DISK):
                    self._reads.put(self._job(op, partial(self._read, op)))
                case MoveRows(target=Tier.DISK):
                    self._attempt([op], partial(self._stage, op))
                case MoveRows():
                    copies.append(op)
        for target in (Tier.GPU, Tier.HOST):
            alike = [op for op in copies if op.target is target]
            if alike:
                self._attempt(alike, partial(self._copy, alike))

    def _job(self, op: TierOp, run: Callable[[], None]) -> Callable[[], None]:
        return partial(self._attempt, [op], run)

    def _copy(self, ops: list[MoveRows]) -> None:
        source, target = ops[0].source, ops[0].target
        self._copies.between(source, target, [(op.source_rows, op.target_rows) for op in ops])
        self._end_on_stream(target, [op.op_id for op in ops])

    def _up(self, staged: _Staged) -> None:
        assert staged.op.target_rows is not None
        self._copies.up(staged.rows, staged.op.target_rows)
        self._end_on_stream(Tier.GPU, [staged.op.op_id], staged.rows)

    def _zero(self, op: ZeroHostRows) -> None:
        assert self._host is not None
        self._host.rows.index_fill_(0, torch.from_numpy(op.rows), 0)
        self._end(op.op_id, _DONE)

    def _stage(self, op: MoveRows) -> None:
        """Copy the rows out, then write them in the writing thread."""
        assert op.source_rows is not None
        rows, arrived = self._copies.down(op.source, op.source_rows)
        self._writes.put(self._job(op, partial(self._write, op, rows, arrived)))

    def _end_on_stream(self, to: Tier, op_ids: list[int], kept: Any = None) -> None:
        """kept: memory that the copies still read."""
        event = self._copies.record(to)
        with self._lock:
            if event is None:
                self._results.update(dict.fromkeys(op_ids, _DONE))
            else:
                self._on_stream.append((event, op_ids, kept))

    # In the threads of the disk.

    def _read(self, op: MoveRows) -> None:
        assert self._store is not None
        assert op.record is not None
        rows = self._copies.staging(op.record.num_tokens)
        if self._store.read(op.record.key, _bytes(rows)):
            self._inbox.put(_Staged(op, rows))
        else:
            self._end(op.op_id, _FAILED)

    def _write(self, op: MoveRows, rows: Tensor, arrived: Event | None) -> None:
        assert self._store is not None
        assert op.record is not None
        if arrived is not None:
            arrived.synchronize()
        stored = self._store.put(op.record, _bytes(rows))
        self._end(op.op_id, OpResult(stored.is_stored, evicted=stored.evicted))

    def _remove(self, op: RemoveRecords) -> None:
        assert self._store is not None
        self._store.remove(op.keys)
        self._end(op.op_id, _DONE)

    def _admit(self, op: AdmitRecords) -> None:
        assert self._store is not None
        assert self._unseal is not None
        key = self._unseal(op.scope, op.sealed_key)
        admitted = self._store.admit(op.scope, key, op.wanted)
        self._end(op.op_id, OpResult(succeeded=True, admitted=admitted))

    def _end(self, op_id: int, result: OpResult) -> None:
        with self._lock:
            self._results[op_id] = result

    def _attempt(self, ops: Sequence[TierOp], run: Callable[[], None]) -> None:
        """The outermost loop of a background job: what fails ends as a failure, never silently."""
        try:
            run()
        except Exception as exc:
            for op in ops:
                _log.error("tiers.operation_failed", exc=exc, kind=type(op).__name__)
                self._end(op.op_id, _FAILED)


class RowCopies:
    """Copies between arena and host. On CUDA each direction has a stream of its own, so that they
    share the bus both ways, and rows that are neighbours on both sides go in one piece."""

    def __init__(self, arena: Arena, host: HostRows | None) -> None:
        self._arena = arena
        self._host = host
        self._streams: dict[Tier, Any] = {}
        if arena.rows.is_cuda:
            self._streams = {to: _new_stream(arena) for to in (Tier.GPU, Tier.HOST)}
        self._copy = open_piece_copier()

    def wait_for(self, ready: Event | None) -> None:
        for stream in self._streams.values():
            stream.wait_event(ready)

    def finish(self) -> None:
        """Wait for all that was issued."""
        for stream in self._streams.values():
            stream.synchronize()

    def record(self, to: Tier) -> Event | None:
        """Reached when all that was issued in this direction is done; None when it is already."""
        if not self._streams:
            return None
        event = _new_event()
        event.record(self._streams[to])
        return event

    def between(
        self,
        source: Tier,
        target: Tier,
        pairs: list[tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]],
    ) -> None:
        """pairs: rows of each chunk in the source and in the target."""
        from_rows = np.concatenate([rows for rows, _ in pairs if rows is not None])
        to_rows = np.concatenate([rows for _, rows in pairs if rows is not None])
        here, there = self._rows_in(source), self._rows_in(target)
        if not self._streams:
            there.index_copy_(
                0, torch.from_numpy(to_rows), here.index_select(0, torch.from_numpy(from_rows))
            )
            return
        with torch.cuda.stream(self._streams[target]):
            self._copy(here, there, pieces(from_rows, to_rows))

    def staging(self, num_tokens: int) -> Tensor:
        """[num_tokens, width], host memory that the GPU can reach, not initialised."""
        like = self._arena.rows
        return torch.empty(num_tokens, like.shape[1], dtype=like.dtype, pin_memory=like.is_cuda)

    def up(self, rows: Tensor, to_rows: NDArray[np.int64]) -> None:
        """From staging to the arena."""
        if not self._streams:
            self._arena.scatter(torch.from_numpy(to_rows), rows)
            return
        with torch.cuda.stream(self._streams[Tier.GPU]):
            self._copy(rows, self._arena.rows, pieces(np.arange(len(to_rows)), to_rows))

    def down(self, source: Tier, from_rows: NDArray[np.int64]) -> tuple[Tensor, Event | None]:
        """A copy of the rows in host memory, whole when the event is reached."""
        if source is Tier.HOST or not self._streams:
            rows = self._rows_in(source).index_select(0, torch.from_numpy(from_rows))
            return rows, None
        staging = self.staging(len(from_rows))
        with torch.cuda.stream(self._streams[Tier.HOST]):
            self._copy(self._arena.rows, staging, pieces(from_rows, np.arange(len(from_rows))))
        return staging, self.record(Tier.HOST)

    def _rows_in(self, tier: Tier) -> Tensor:
        if tier is Tier.GPU:
            return self._arena.rows
        assert self._host is not None
        return self._host.rows


def pieces(from_rows: NDArray[np.int64], to_rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """[num_pieces, 3], int64: first row here, first row there, number of rows, each piece as long
    as both sides are consecutive."""
    is_break = (np.diff(from_rows) != 1) | (np.diff(to_rows) != 1)
    starts = np.concatenate([[0], np.flatnonzero(is_break) + 1])
    lengths = np.diff(np.concatenate([starts, [len(from_rows)]]))
    return np.stack([from_rows[starts], to_rows[starts], lengths], axis=1)


PieceCopier = Callable[[Tensor, Tensor, NDArray[np.int64]], None]
"""Issues one copy per piece on the current stream; one of the tensors is pinned memory, and both
have rows of the same width, one behind the other."""


def open_piece_copier() -> PieceCopier:
    """All pieces in one driver call where vLLM was built with that."""
    import vllm._custom_ops

    assert vllm._custom_ops, "loads the operators"
    batch = getattr(torch.ops._C_cache_ops, "swap_blocks_batch", None)
    return copy_one_by_one if batch is None else partial(copy_batch, batch)


def copy_batch(batch: Any, here: Tensor, there: Tensor, parts: NDArray[np.int64]) -> None:
    row_bytes = here.stride(0) * here.element_size()
    sources = torch.from_numpy(here.data_ptr() + parts[:, 0] * row_bytes)
    targets = torch.from_numpy(there.data_ptr() + parts[:, 1] * row_bytes)
    batch(sources, targets, torch.from_numpy(parts[:, 2] * row_bytes), False)


def copy_one_by_one(here: Tensor, there: Tensor, parts: NDArray[np.int64]) -> None:
    for start, to, count in parts.tolist():
        there[to : to + count].copy_(here[start : start + count], non_blocking=True)


def _cudart() -> Any:
    load: Callable[[], Any] = torch.cuda.cudart
    return load()


def _new_event() -> Event:
    make: Callable[[], Event] = torch.cuda.Event
    return make()


def _new_stream(arena: Arena) -> Any:
    make: Callable[[torch.device], Any] = torch.cuda.Stream
    return make(arena.rows.device)


def _concerns_disk(op: TierOp) -> bool:
    match op:
        case MoveRows():
            return Tier.DISK in (op.source, op.target)
        case ZeroHostRows():
            return False
        case _:
            return True


def _bytes(rows: Tensor) -> Buffer:
    array: Any = rows.view(torch.uint8).numpy()
    return memoryview(array).cast("B")


def _work(inbox: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := inbox.get()) is not None:
        job()
