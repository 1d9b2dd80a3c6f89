"""The directory as a state machine: no page is lost, and nobody reads a wrong one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.kv.directory import ChunkDirectory, ChunkState
from inferscale_core.kv.pages import PagePool
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.plans import Span

SCOPES = ("tenant/a", "tenant/b")


def directory_of(num_pages: int = 12, page_tokens: int = 4) -> ChunkDirectory:
    return ChunkDirectory(PagePool(num_pages, page_tokens))


def store(directory: ChunkDirectory, name: str, num_tokens: int = 4, sees: tuple[str, ...] = ()):
    key = ChunkKey(f"tenant/a/{name}")
    prefix = tuple(ChunkKey(f"tenant/a/{other}") for other in sees)
    entry = directory.reserve(
        key, num_tokens, origin=0, fact=FactRef(FactId(name), 1), prefix_keys=prefix
    )
    assert entry is not None
    assert directory.publish(key)
    return entry


def test_a_reserved_chunk_cannot_be_found_until_it_is_published() -> None:
    directory = directory_of()
    key = ChunkKey("tenant/a/x")
    directory.reserve(key, 5, origin=0, fact=FactRef(FactId("x"), 1), prefix_keys=())
    assert directory.get(key) is None
    assert directory.holds(key)
    directory.publish(key)
    assert directory.get(key) is not None


def test_the_resident_run_ends_at_the_first_missing_span() -> None:
    directory = directory_of()
    for name in "abd":
        store(directory, name)
    spans = [Span(ChunkKey(f"tenant/a/{name}"), 4) for name in "abcd"]
    assert [entry.key[-1] for entry in directory.resident_run(spans)] == ["a", "b"]


def test_a_span_with_another_length_ends_the_run() -> None:
    directory = directory_of()
    store(directory, "a")
    assert directory.resident_run([Span(ChunkKey("tenant/a/a"), 3)]) == []


def test_room_is_made_from_the_least_recently_used_and_nothing_is_evicted_in_vain() -> None:
    directory = directory_of(num_pages=3)
    for name in "abc":
        store(directory, name)
    a = directory.get(ChunkKey("tenant/a/a"))
    assert a is not None
    directory.pin([a])
    directory.unpin([a])
    store(directory, "d")
    assert directory.drain_evicted() == ["tenant/a/b"]
    directory.pin([a])
    too_big = directory.reserve(
        ChunkKey("tenant/a/e"), 12, origin=0, fact=FactRef(FactId("e"), 1), prefix_keys=()
    )
    assert too_big is None
    assert directory.drain_evicted() == []
    assert directory.num_resident == 3


def test_the_header_is_never_evicted() -> None:
    directory = directory_of(num_pages=2)
    header = ChunkKey("shared/header/x")
    directory.reserve(header, 4, origin=0, fact=None, prefix_keys=())
    directory.publish(header)
    store(directory, "a")
    store(directory, "b")
    assert directory.get(header) is not None
    assert directory.get(ChunkKey("tenant/a/a")) is None


def test_forget_follows_what_saw_what_through_others() -> None:
    directory = directory_of()
    store(directory, "a")
    store(directory, "b", sees=("a",))
    store(directory, "c", sees=("b",))
    store(directory, "other")
    forgotten = directory.forget(UserScope("tenant/a"), [FactId("a")], 1)
    assert [key[-1] for key in forgotten.keys] == ["a", "b", "c"]
    assert forgotten.num_dependants == 2
    assert directory.num_resident == 1


def test_a_forgotten_chunk_is_freed_when_its_last_reader_ends() -> None:
    directory = directory_of()
    entry = store(directory, "a")
    directory.pin([entry])
    directory.pin([entry])
    forgotten = directory.forget(UserScope("tenant/a"), [FactId("a")], 1)
    assert forgotten.pending == (entry.key,)
    assert directory.get(entry.key) is None
    assert directory.unpin([entry]) == []
    assert len(directory.drain_to_zero()) == 0
    assert directory.unpin([entry]) == [entry.key]
    np.testing.assert_array_equal(np.sort(directory.drain_to_zero()), np.sort(entry.slots))


def test_a_chunk_forgotten_twice_while_it_is_written_is_counted_once() -> None:
    directory = directory_of()
    for name in "abc":
        directory.reserve(
            ChunkKey(f"tenant/a/{name}"),
            4,
            origin=0,
            fact=FactRef(FactId(name), 1),
            prefix_keys=() if name == "a" else (ChunkKey("tenant/a/a"),),
        )
    first = directory.forget(UserScope("tenant/a"), [FactId("b")], 5)
    assert first.keys == first.pending == ("tenant/a/b",)
    second = directory.forget(UserScope("tenant/a"), [FactId("a"), FactId("b")], 6)
    assert second.keys == second.pending == ("tenant/a/a", "tenant/a/c")
    assert (second.num_dependants, second.num_tokens) == (1, 8)
    assert directory.stats.forgotten == 3


def test_the_same_key_can_be_stored_again_while_the_forgotten_one_is_still_read() -> None:
    directory = directory_of()
    old = store(directory, "a")
    directory.pin([old])
    directory.forget(UserScope("tenant/a"), [FactId("a")], 1)
    new = store(directory, "a")
    assert not set(old.slots) & set(new.slots)
    directory.unpin([old])
    assert directory.get(new.key) is new
    directory.check_conservation()


def test_a_forget_of_one_user_leaves_another_users_fact_of_the_same_id() -> None:
    directory = directory_of()
    store(directory, "a")
    key = ChunkKey("tenant/b/a")
    directory.reserve(key, 4, origin=0, fact=FactRef(FactId("a"), 1), prefix_keys=())
    directory.publish(key)
    directory.forget(UserScope("tenant/a"), [FactId("a")], 1)
    assert directory.get(key) is not None


@pytest.mark.parametrize(("planned", "is_fenced"), [(3, True), (4, True), (5, False), (6, False)])
def test_captures_planned_before_the_newest_forget_are_fenced(
    planned: int, is_fenced: bool
) -> None:
    directory = directory_of()
    directory.forget(UserScope("tenant/a"), [FactId("x")], 5)
    directory.forget(UserScope("tenant/a"), [FactId("x")], 2)
    assert directory.is_fenced(UserScope("tenant/a"), planned) is is_fenced
    assert not directory.is_fenced(UserScope("tenant/b"), planned)


class DirectoryMachine(RuleBasedStateMachine):
    """Random reservations, readers, forgets and evictions against a plain model of the arena:
    `rows` holds what each row was last written for, 0 after it was zeroed."""

    @initialize(num_pages=st.integers(3, 10), page_tokens=st.integers(1, 5))
    def start(self, num_pages: int, page_tokens: int) -> None:
        self.directory = ChunkDirectory(PagePool(num_pages, page_tokens))
        self.rows = np.zeros(num_pages * page_tokens, dtype=np.int64)
        self.reserved: list[ChunkKey] = []
        self.pins: list[list] = []
        self.names = 0

    @rule(scope=st.sampled_from(SCOPES), num_tokens=st.integers(1, 12), data=st.data())
    def reserve(self, scope: str, num_tokens: int, data: st.DataObject) -> None:
        self.names += 1
        key = ChunkKey(f"{scope}/{self.names}")
        resident = [
            entry.key
            for entry in self.directory._entries.values()
            if entry.state is ChunkState.RESIDENT and entry.key.startswith(scope)
        ]
        sees = data.draw(st.lists(st.sampled_from(resident), unique=True)) if resident else []
        before = self.directory.num_resident
        entry = self.directory.reserve(
            key,
            num_tokens,
            origin=0,
            fact=FactRef(FactId(str(self.names % 5)), 1),
            prefix_keys=tuple(sees),
        )
        if entry is None:
            assert self.directory.num_resident == before, "evicted in vain"
        else:
            self.zero()
            assert not self.rows[entry.slots].any(), "handed out rows that were not zeroed"
            self.rows[entry.slots] = self.names
            self.reserved.append(key)

    @precondition(lambda self: self.reserved)
    @rule(data=st.data(), publish=st.booleans())
    def end_reservation(self, data: st.DataObject, publish: bool) -> None:
        key = data.draw(st.sampled_from(self.reserved))
        self.reserved.remove(key)
        if publish:
            self.directory.publish(key)
        else:
            self.directory.release(key)

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        entries = [
            entry
            for entry in self.directory._entries.values()
            if entry.state is ChunkState.RESIDENT
        ]
        if entries:
            chosen = data.draw(st.lists(st.sampled_from(entries), min_size=1, unique_by=id))
            self.directory.pin(chosen)
            self.pins.append(chosen)

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.pins) - 1))
        self.directory.unpin(self.pins.pop(index))

    @rule(scope=st.sampled_from(SCOPES), fact=st.integers(0, 4))
    def forget(self, scope: str, fact: int) -> None:
        forgotten = self.directory.forget(UserScope(scope), [FactId(str(fact))], self.names)
        for key in forgotten.keys:
            assert self.directory.get(key) is None
            assert key.startswith(scope)
        left = [e for e in self.directory._entries.values() if e.key.startswith(scope)]
        gone = set(forgotten.keys)
        for entry in left:
            if not entry.cancelled:
                assert entry.fact is not None
                assert entry.fact.fact_id != str(fact)
                assert not gone & set(entry.prefix_keys)

    @rule()
    def zero(self) -> None:
        self.rows[self.directory.drain_to_zero()] = 0

    @invariant()
    def pages_are_conserved_and_readers_see_what_was_written(self) -> None:
        if not hasattr(self, "directory"):
            return
        self.directory.check_conservation()
        for entries in self.pins:
            for entry in entries:
                written = Counter(self.rows[entry.slots].tolist())
                assert written == {int(entry.key.rpartition("/")[2]): entry.num_tokens}


DirectoryMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestDirectoryMachine = DirectoryMachine.TestCase
