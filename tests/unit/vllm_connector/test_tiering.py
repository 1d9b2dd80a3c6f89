"""Who waits, who goes without, and what is taken up from disk: the decisions, without a rank."""

from __future__ import annotations

from typing import Any

import pytest

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.kv.directory import ChunkDirectory
from inferscale_core.kv.disk import DiskRecord
from inferscale_core.kv.pages import PageBudget, PagePool
from inferscale_core.kv.tiers import Entry, Tier
from inferscale_core.memory.facts import FactRef
from inferscale_core.vllm_connector.metadata import (
    AdmitRecords,
    MoveRows,
    OpResult,
    RemoveRecords,
    TierOp,
    ZeroHostRows,
)
from inferscale_core.vllm_connector.params import Adopt
from inferscale_core.vllm_connector.tiering import MAX_OFFLOADS, MAX_WAIT_S, Adopted, Tiering

SCOPE = UserScope("acme/robin")
NUM_RANKS = 2


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Engine:
    """Ranks that do at once, or not yet, what they are told."""

    def __init__(self, gpu: int = 8, host: int = 40, disk: int = 0) -> None:
        self.directory = ChunkDirectory(
            PagePool(gpu, 4),
            PagePool(host, 4) if host else None,
            PageBudget(disk, 4) if disk else None,
        )
        self.clock = Clock()
        self.tiering = Tiering(self.directory, NUM_RANKS, self.clock)
        self.told: list[TierOp] = []

    def store(self, name: str, num_tokens: int = 8) -> Entry:
        entry = self.directory.reserve(
            ChunkKey(f"{SCOPE}/{name}"),
            num_tokens,
            origin=0,
            fact=FactRef(FactId(name), 1),
            prefix_keys=(),
        )
        assert entry is not None
        self.directory.publish(entry)
        self.tiering.published(entry)
        return entry

    def step(self) -> list[TierOp]:
        ops = self.tiering.start()
        self.told += ops
        return ops

    def end(self, *ops: TierOp, succeeded: bool = True) -> Any:
        result = OpResult(succeeded)
        return self.tiering.done({op.op_id: [result] * NUM_RANKS for op in ops})

    def settle(self) -> None:
        for _ in range(100):
            if not self.tiering.has_work:
                return
            self.end(*self.step())
        raise AssertionError("never comes to rest")

    def user(self, count: int) -> list[Entry]:
        """More chunks than the arena holds, the first ones on the host only."""
        entries = []
        for number in range(count):
            entries.append(self.store(str(number)))
            self.settle()
        return entries


def restores(ops: list[TierOp]) -> list[MoveRows]:
    return [op for op in ops if isinstance(op, MoveRows) and op.target is Tier.GPU]


def low(entries: list[Entry]) -> list[Entry]:
    return [entry for entry in entries if not entry.is_on_gpu]


def test_a_request_whose_chunk_is_evicted_in_the_step_that_it_asks_in_asks_again() -> None:
    engine = Engine(gpu=16)
    entries = engine.user(9)
    [below] = low(entries)
    only_here = engine.store("only here")
    assert only_here.host is None
    for _ in range(60):  # Used so often that they stay, although the host has them.
        others = [entry for entry in entries if entry.is_on_gpu]
        engine.directory.end_read(engine.directory.read(others))
    engine.tiering.want("waits", [below, only_here])
    captured = 0
    while engine.directory.find(only_here.key) is not None:
        captured += 1
        key, fact = ChunkKey(f"{SCOPE}/captured {captured}"), FactRef(FactId(f"c{captured}"), 1)
        assert engine.directory.reserve(key, 8, origin=0, fact=fact, prefix_keys=()) is not None
    assert restores(engine.step()) == []
    engine.tiering.want("waits", [below])
    assert len(restores(engine.step())) == 1
    engine.directory.check_conservation()


def test_an_operation_has_ended_when_every_rank_has_said_so() -> None:
    engine = Engine()
    entry = engine.store("x")
    [op] = engine.step()
    engine.tiering.done({op.op_id: [OpResult(True)]})
    assert entry.host is not None
    assert not entry.host.is_written
    engine.tiering.done({op.op_id: [OpResult(True)]})
    assert entry.host.is_written


def test_one_rank_that_fails_is_enough_to_give_up_a_copy() -> None:
    engine = Engine()
    entry = engine.store("x")
    [op] = engine.step()
    engine.tiering.done({op.op_id: [OpResult(True), OpResult(False)]})
    assert entry.host is None
    assert entry.is_on_gpu


def test_offloads_on_their_way_are_bounded() -> None:
    engine = Engine(gpu=400, host=400)
    for number in range(3 * MAX_OFFLOADS):
        engine.store(str(number))
    first = engine.step()
    assert len(first) == MAX_OFFLOADS
    assert engine.step() == []
    engine.end(*first[:5])
    assert len(engine.step()) == 5
    assert engine.tiering.has_work


def test_a_request_is_held_until_it_is_released() -> None:
    engine = Engine()
    entries = engine.user(8)
    wanted = low(entries)[:2] + [entry for entry in entries if entry.is_on_gpu][:1]
    engine.tiering.want("r", wanted)
    ops = engine.step()
    assert len(restores(ops)) == 2
    engine.end(*ops)
    assert all(entry.is_on_gpu for entry in wanted)
    engine.tiering.want("r", wanted)
    assert restores(engine.step()) == [], "asked again, nothing is copied twice"
    assert all(entry.gpu and entry.gpu.num_pins == 1 for entry in wanted)
    engine.tiering.release("r")
    assert engine.directory.num_pinned == 0
    assert engine.tiering.num_waiting == 0


def test_two_requests_share_a_copy_that_is_on_its_way() -> None:
    engine = Engine()
    wanted = low(engine.user(8))[:1]
    engine.tiering.want("a", wanted)
    engine.tiering.want("b", wanted)
    ops = engine.step()
    assert len(restores(ops)) == 1
    engine.tiering.release("a")
    engine.end(*ops)
    assert wanted[0].is_on_gpu
    engine.tiering.release("b")
    assert engine.directory.num_pinned == 0


def test_waiting_requests_hold_at_most_half_of_the_arena_together() -> None:
    """8 pages: two chunks of two pages each for one request, and then no more."""
    engine = Engine()
    entries = low(engine.user(10))
    engine.tiering.want("a", entries[:2])
    engine.tiering.want("b", entries[2:4])
    ops = engine.step()
    assert {op.op_id for op in restores(ops)} == {op.op_id for op in restores(ops)[:2]}
    engine.end(*ops)
    engine.tiering.want("b", entries[2:4])
    assert restores(engine.step()) == []
    engine.tiering.release("a")
    engine.tiering.want("b", entries[2:4])
    assert len(restores(engine.step())) == 2
    assert not engine.tiering.has_given_up("b")


def test_a_request_larger_than_the_arena_goes_without_at_once() -> None:
    engine = Engine()
    entries = engine.user(8)
    engine.tiering.want("r", entries)
    assert restores(engine.step()) == []
    assert engine.tiering.has_given_up("r")
    engine.tiering.release("r")
    assert not engine.tiering.has_given_up("r")


def test_a_request_that_waits_too_long_goes_without_and_lets_go() -> None:
    engine = Engine()
    wanted = low(engine.user(8))[:1]
    engine.tiering.want("r", wanted)
    stuck = engine.step()
    engine.clock.now = MAX_WAIT_S
    engine.tiering.want("r", wanted)
    engine.step()
    assert engine.tiering.has_given_up("r")
    engine.end(*stuck)
    engine.tiering.release("r")
    assert engine.directory.num_pinned == 0


def test_what_could_not_be_copied_up_is_gone_and_the_hold_on_it_is_renewed() -> None:
    engine = Engine()
    first, second = low(engine.user(8))[:2]
    engine.tiering.want("r", [first, second])
    ops = engine.step()
    engine.end(restores(ops)[0], succeeded=False)
    engine.end(restores(ops)[1])
    assert engine.directory.find(first.key) is None
    engine.tiering.want("r", [second])
    engine.end(*engine.step())
    engine.tiering.release("r")
    assert engine.directory.num_pinned == 0
    engine.settle()
    engine.directory.check_conservation()


def test_host_rows_are_zeroed_before_they_are_written_again() -> None:
    engine = Engine(gpu=20, host=2)
    engine.store("old")
    engine.settle()
    new = engine.store("new")
    ops = engine.step()
    assert [type(op) for op in ops] == [ZeroHostRows, MoveRows]
    assert isinstance(ops[0], ZeroHostRows)
    assert new.host is not None
    assert set(new.host.rows.tolist()) <= set(ops[0].rows.tolist())


def adopt(engine: Engine, *names: str, version: int = 1) -> Adopted | AdmitRecords:
    keys = tuple(ChunkKey(f"{SCOPE}/{name}") for name in names)
    refused = engine.tiering.adopt("h", Adopt(SCOPE, "sealed", keys, version))
    if refused is not None:
        return refused
    [op] = [op for op in engine.step() if isinstance(op, AdmitRecords)]
    return op


def record(name: str) -> DiskRecord:
    return DiskRecord(ChunkKey(f"{SCOPE}/{name}"), FactRef(FactId(name), 1), 8, 3, ())


def admitted(*names: str) -> OpResult:
    return OpResult(True, admitted=tuple(map(record, names)))


def test_chunks_are_written_to_disk_only_when_the_ranks_have_the_users_key() -> None:
    engine = Engine(disk=40)
    before = engine.store("before")
    engine.settle()
    assert before.disk is None
    op = adopt(engine, "before")
    assert isinstance(op, AdmitRecords)
    [done] = engine.tiering.done({op.op_id: [admitted(), admitted()]}).adopted
    assert (done.num_chunks, done.entries) == (0, ())
    after = engine.store("after")
    engine.settle()
    assert before.disk is not None
    assert after.disk is not None


def test_a_record_that_a_rank_lacks_is_not_taken_up_and_removed_from_the_others() -> None:
    engine = Engine(disk=40)
    op = adopt(engine, "both", "one")
    assert isinstance(op, AdmitRecords)
    [done] = engine.tiering.done({op.op_id: [admitted("both", "one"), admitted("both")]}).adopted
    assert [entry.key[-4:] for entry in done.entries] == ["both"]
    assert done.num_chunks == 1
    assert engine.directory.find(record("one").key) is None
    [removal] = [op for op in engine.step() if isinstance(op, RemoveRecords)]
    assert removal.keys == (record("one").key,)


def test_nothing_is_taken_up_that_was_forgotten_while_the_ranks_compared() -> None:
    engine = Engine(disk=40)
    op = adopt(engine, "x", version=1)
    assert isinstance(op, AdmitRecords)
    engine.directory.forget(SCOPE, [FactId("x")], 2)
    [done] = engine.tiering.done({op.op_id: [admitted("x")] * NUM_RANKS}).adopted
    assert done.num_chunks == 0
    assert engine.directory.find(record("x").key) is None
    assert adopt(engine, "x", version=1) == Adopted("h")


@pytest.mark.parametrize("removed_first", [False, True])
def test_nothing_is_taken_up_that_is_to_be_removed_since_the_ranks_compared(
    removed_first: bool,
) -> None:
    """They have done both when the last of them reports; in which order it says so is chance."""
    engine = Engine(disk=40)
    first = adopt(engine, "x", "y")
    assert isinstance(first, AdmitRecords)
    engine.tiering.done({first.op_id: [admitted("x", "y")] * NUM_RANKS})
    second = adopt(engine, "x", "y")
    assert isinstance(second, AdmitRecords)
    engine.directory.forget(SCOPE, [FactId("x")], 1)
    [removal] = [op for op in engine.step() if isinstance(op, RemoveRecords)]
    assert removal.keys == (record("x").key,)
    results = {
        second.op_id: [admitted("x", "y")] * NUM_RANKS,
        removal.op_id: [OpResult(True)] * NUM_RANKS,
    }
    [done] = engine.tiering.done(
        dict(reversed(results.items())) if removed_first else results
    ).adopted
    assert (done.entries, done.num_chunks) == ((), 1)
    assert engine.directory.find(record("x").key) is None
    assert engine.directory.find(record("y").key) is not None


def test_a_record_that_the_disk_gave_up_is_not_asked_for() -> None:
    engine = Engine(disk=40)
    op = adopt(engine, "x", "y")
    assert isinstance(op, AdmitRecords)
    engine.tiering.done({op.op_id: [admitted("x", "y")] * NUM_RANKS})
    new = engine.store("new")
    engine.end(*engine.step())
    [write] = [op for op in engine.step() if isinstance(op, MoveRows)]
    gave_up = OpResult(True, evicted=(record("x").key,))
    engine.tiering.done({write.op_id: [gave_up, OpResult(True)]})
    assert new.disk is not None
    assert engine.directory.find(record("x").key) is None
    assert engine.directory.find(record("y").key) is not None


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_chunk_on_disk_alone_is_read_into_the_arena(succeeded: bool) -> None:
    engine = Engine(host=0, disk=40)
    op = adopt(engine, "x")
    assert isinstance(op, AdmitRecords)
    engine.tiering.done({op.op_id: [admitted("x")] * NUM_RANKS})
    entry = engine.directory.find(record("x").key)
    assert entry is not None
    engine.tiering.want("r", [entry])
    [read] = restores(engine.step())
    assert (read.source, read.record) == (Tier.DISK, record("x"))
    engine.end(read, succeeded=succeeded)
    assert entry.is_on_gpu is succeeded
    assert (engine.directory.find(entry.key) is entry) is succeeded
    engine.tiering.release("r")
    engine.settle()
    engine.directory.check_conservation()
