"""A rank's mover with real threads, rows and records: what arrives is what left."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.kv.disk import DiskRecord
from inferscale_core.kv.disk_secret import StoreSecret
from inferscale_core.kv.disk_store import open_disk_store
from inferscale_core.kv.rows import LayerShape, row_layout
from inferscale_core.kv.storage import Arena
from inferscale_core.kv.tiers import Tier
from inferscale_core.memory.disk_keys import DiskKey
from inferscale_core.memory.facts import FactRef
from inferscale_core.vllm_connector.metadata import (
    AdmitRecords,
    MoveRows,
    OpResult,
    RemoveRecords,
    TierOp,
    ZeroHostRows,
)
from inferscale_core.vllm_connector.mover import (
    HostRows,
    Mover,
    copy_batch,
    copy_one_by_one,
    pieces,
)

SCOPE, SECRET, KEY = UserScope("acme/robin"), StoreSecret.from_token("token"), DiskKey(1, bytes(32))
NUM_ROWS = 64


class Rank:
    def __init__(self) -> None:
        layout = row_layout([LayerShape(2, 8), LayerShape(1, 4)], torch.bfloat16)
        self.arena = Arena(NUM_ROWS, layout, torch.device("cpu"))
        self.arena.rows.copy_(torch.randn(NUM_ROWS, layout.width))
        self.host = HostRows(NUM_ROWS, self.arena)
        self.mover = Mover(self.arena, self.host)

    def use_disk(self, folder: Path) -> None:
        store = open_disk_store(folder, SECRET, max_bytes=1 << 20, layout="test")
        self.mover.use_disk(store, SECRET.unseal)

    def run(self, *ops: TierOp) -> dict[int, OpResult]:
        self.mover.submit(list(ops))
        return self.wait({op.op_id for op in ops})

    def wait(self, op_ids: set[int]) -> dict[int, OpResult]:
        results: dict[int, OpResult] = {}
        until = time.monotonic() + 20
        while results.keys() != op_ids:
            assert time.monotonic() < until
            results.update(self.mover.poll())
            time.sleep(0.001)
        return results


@pytest.fixture
def rank() -> Iterator[Rank]:
    rank = Rank()
    yield rank
    rank.mover.close()


def rows(*numbers: int) -> Any:
    return np.asarray(numbers, dtype=np.int64)


def record(name: str, num_tokens: int) -> DiskRecord:
    key = ChunkKey(f"{SCOPE}/{name}")
    return DiskRecord(key, FactRef(FactId(name), 1), num_tokens, 7, ())


def admit(op_id: int, *names: str) -> AdmitRecords:
    wanted = tuple(ChunkKey(f"{SCOPE}/{name}") for name in names)
    return AdmitRecords(op_id, SCOPE, SECRET.seal(SCOPE, KEY), wanted)


def test_rows_go_to_the_host_and_come_back_somewhere_else(rank: Rank) -> None:
    before = rank.arena.rows.clone()
    rank.run(
        MoveRows(1, Tier.GPU, Tier.HOST, rows(3, 4, 5, 20), rows(40, 41, 9, 8)),
        MoveRows(2, Tier.GPU, Tier.HOST, rows(60), rows(0)),
    )
    assert torch.equal(rank.host.rows[[40, 41, 9, 8, 0]], before[[3, 4, 5, 20, 60]])
    rank.run(MoveRows(3, Tier.HOST, Tier.GPU, rows(40, 41, 9, 8), rows(30, 10, 11, 12)))
    assert torch.equal(rank.arena.rows[[30, 10, 11, 12]], before[[3, 4, 5, 20]])
    untouched = [row for row in range(NUM_ROWS) if row not in (30, 10, 11, 12)]
    assert torch.equal(rank.arena.rows[untouched], before[untouched])


def test_zeroing_comes_before_what_is_written_there_afterwards(rank: Rank) -> None:
    rank.host.rows.fill_(5)
    rank.run(
        ZeroHostRows(1, np.arange(NUM_ROWS)),
        MoveRows(2, Tier.GPU, Tier.HOST, rows(1), rows(2)),
    )
    assert torch.equal(rank.host.rows[2], rank.arena.rows[1])
    assert not rank.host.rows[3:].any()


@pytest.mark.parametrize("source", [Tier.GPU, Tier.HOST])
def test_rows_go_to_disk_from_either_memory_and_come_back(
    rank: Rank, source: Tier, tmp_path: Path
) -> None:
    rank.use_disk(tmp_path)
    assert rank.run(admit(1))[1] == OpResult(succeeded=True)
    rank.host.rows.copy_(rank.arena.rows.flip(0))
    memory = rank.arena.rows if source is Tier.GPU else rank.host.rows
    expected = memory[[8, 9, 3]].clone()
    x = record("x", 3)
    results = rank.run(MoveRows(2, source, Tier.DISK, rows(8, 9, 3), None, x))
    assert results[2] == OpResult(succeeded=True)
    results = rank.run(MoveRows(3, Tier.DISK, Tier.GPU, None, rows(50, 51, 2), x))
    assert results[3].succeeded
    assert torch.equal(rank.arena.rows[[50, 51, 2]], expected)
    rank.run(RemoveRecords(4, (x.key,)))
    gone = rank.run(MoveRows(5, Tier.DISK, Tier.GPU, None, rows(50, 51, 2), x))
    assert not gone[5].succeeded


def test_what_a_rank_admits_is_reported(rank: Rank, tmp_path: Path) -> None:
    rank.use_disk(tmp_path)
    rank.run(admit(1))
    for op_id, name in enumerate("xyz", 2):
        rank.run(MoveRows(op_id, Tier.GPU, Tier.DISK, rows(1, 2), None, record(name, 2)))
    [result] = rank.run(admit(9, "x", "z", "unknown")).values()
    assert {found.key[-1] for found in result.admitted} == {"x", "z"}
    assert result.admitted[0].origin == 7


def test_what_concerns_a_disk_that_is_not_open_fails(rank: Rank) -> None:
    x = record("x", 1)
    ops = [
        MoveRows(1, Tier.GPU, Tier.DISK, rows(1), None, x),
        MoveRows(2, Tier.DISK, Tier.GPU, None, rows(1), x),
        RemoveRecords(3, (x.key,)),
        admit(4),
    ]
    assert not any(result.succeeded for result in rank.run(*ops).values())


def test_an_operation_that_fails_says_so_and_others_go_on(rank: Rank) -> None:
    results = rank.run(
        ZeroHostRows(1, rows(NUM_ROWS + 5)), MoveRows(2, Tier.GPU, Tier.HOST, rows(1), rows(2))
    )
    assert [results[op_id].succeeded for op_id in (1, 2)] == [False, True]


def test_submitting_does_not_wait_for_a_slow_disk(rank: Rank, tmp_path: Path) -> None:
    rank.use_disk(tmp_path)
    rank.run(admit(1))
    store: Any = rank.mover._store
    put, may_go_on = store.put, threading.Event()

    def slow(*arguments: Any) -> Any:
        may_go_on.wait(20)
        return put(*arguments)

    store.put = slow
    rank.mover.submit([MoveRows(2, Tier.GPU, Tier.DISK, rows(1), None, record("x", 1))])
    others = rank.run(MoveRows(3, Tier.GPU, Tier.HOST, rows(1), rows(2)))
    assert others.keys() == {3}, "copies in memory do not stand behind the disk"
    may_go_on.set()
    assert rank.wait({2})[2].succeeded


def test_pieces_are_copied_alike_one_by_one_and_in_one_call() -> None:
    here = torch.randn(30, 12, dtype=torch.float32)
    from_rows, to_rows = rows(3, 4, 5, 20, 21, 0), rows(9, 10, 11, 1, 2, 7)
    parts = pieces(from_rows, to_rows)
    assert len(parts) == 3

    def memmove(sources: Any, targets: Any, sizes: Any, any_order: bool) -> None:
        assert not any_order
        for source, target, size in zip(sources, targets, sizes, strict=True):
            ctypes.memmove(int(target), int(source), int(size))

    expected = torch.zeros(15, 12)
    expected[to_rows] = here[from_rows]
    for copy in (copy_one_by_one, partial(copy_batch, memmove)):
        there = torch.zeros(15, 12)
        copy(here, there, parts)
        assert torch.equal(there, expected)


@given(
    starts=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 6))),
)
def test_pieces_cover_every_row_once_in_order(starts: list[tuple[int, int, int]]) -> None:
    here = [first + n for first, _, count in starts for n in range(count)]
    there = [first + n for _, first, count in starts for n in range(count)]
    if not here:
        return
    found = pieces(np.asarray(here), np.asarray(there))
    pairs = [(a + n, b + n) for a, b, count in found.tolist() for n in range(count)]
    assert pairs == list(zip(here, there, strict=True))
    assert len(found) <= len(starts)
