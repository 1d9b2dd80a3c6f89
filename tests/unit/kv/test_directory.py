"""The directory as a state machine: no page is lost, and nobody reads a wrong one."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.kv.directory import ChunkDirectory
from inferscale_core.kv.pages import PagePool
from inferscale_core.kv.tiers import Tier
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Span

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
    assert directory.publish(entry)
    return entry


def test_a_reserved_chunk_cannot_be_found_until_it_is_published() -> None:
    directory = directory_of()
    key = ChunkKey("tenant/a/x")
    entry = directory.reserve(key, 5, origin=0, fact=FactRef(FactId("x"), 1), prefix_keys=())
    assert entry is not None
    assert directory.get(key) is None
    assert directory.find(key) is None
    assert directory.holds(key)
    directory.publish(entry)
    assert directory.get(key) is not None


def test_a_chunk_holds_no_copies_of_the_keys_that_it_saw() -> None:
    """They come off the wire as new strings: 33 of them would be most of what a chunk takes."""
    directory = directory_of()
    seen, other = store(directory, "seen"), store(directory, "other")
    reader = store(directory, "reader", sees=("seen", "gone", "other"))
    assert reader.prefix_keys == ("tenant/a/seen", "tenant/a/gone", "tenant/a/other")
    assert reader.prefix_keys[0] is seen.key
    assert reader.prefix_keys[2] is other.key
    assert reader.tenant is seen.tenant
    directory.check_conservation()


def test_who_saw_a_chunk_counts_for_as_long_as_either_is_known() -> None:
    directory = directory_of(4)
    seen = store(directory, "seen")
    assert seen.num_readers == 0
    store(directory, "reader", sees=("seen", "gone"))
    assert seen.num_readers == 1
    directory.forget(SCOPES[0], [FactId("seen")], 1)
    directory.check_conservation()
    assert directory.num_published == 0
    late = store(directory, "late", sees=("seen",))
    directory.check_conservation()
    again = store(directory, "seen")
    assert again.num_readers == 1
    directory.lost(late.places[0])
    directory.check_conservation()
    assert again.num_readers == 0


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class WatchedFact(FactRef):
    """Held by its entry alone. Entries cannot be watched themselves."""


@pytest.mark.parametrize("end", ["forget", "forget while read", "release", "evict"])
@pytest.mark.usefixtures("no_collector")
def test_a_chunk_that_is_gone_is_freed_without_the_garbage_collector(end: str) -> None:
    directory = directory_of(1)
    if end == "release":
        key, fact = ChunkKey("tenant/a/x"), FactRef(FactId("x"), 1)
        entry = directory.reserve(key, 4, origin=0, fact=fact, prefix_keys=())
        assert entry is not None
        directory.release(entry)
    else:
        entry = store(directory, "x")
        reading = directory.read([entry]) if end == "forget while read" else None
        if end == "evict":
            store(directory, "y")
        directory.forget(SCOPES[0], [FactId("x")], 1)
        if reading is not None:
            directory.end_read(reading)
        del reading
    directory.gpu.drain_freed()
    # The order gives up what is gone from it when it has grown or when its turn comes.
    directory.gpu.queue._order._heap.clear()
    fact = entry.fact = WatchedFact(FactId("x"), 1)
    left = weakref.ref(fact)
    del entry, fact
    assert left() is None
    directory.check_conservation()


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


def evicted(directory: ChunkDirectory) -> list[ChunkKey]:
    return [moved.key for moved in directory.drain_moved() if moved.tier is None]


def test_room_is_made_from_what_is_used_least_and_nothing_is_evicted_in_vain() -> None:
    directory = directory_of(num_pages=3)
    for name in "abc":
        store(directory, name)
    a = directory.get(ChunkKey("tenant/a/a"))
    assert a is not None
    directory.end_read(directory.read([a]))
    store(directory, "d")
    assert evicted(directory) == ["tenant/a/b"]
    directory.pin([a])
    too_big = directory.reserve(
        ChunkKey("tenant/a/e"), 12, origin=0, fact=FactRef(FactId("e"), 1), prefix_keys=()
    )
    assert too_big is None
    assert evicted(directory) == []
    assert directory.num_resident == 3


def test_the_header_is_never_evicted() -> None:
    directory = directory_of(num_pages=2)
    header = ChunkKey("shared/header/x")
    entry = directory.reserve(header, 4, origin=0, fact=None, prefix_keys=())
    assert entry is not None
    directory.publish(entry)
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
    slots = entry.slots
    directory.pin([entry])
    directory.pin([entry])
    forgotten = directory.forget(UserScope("tenant/a"), [FactId("a")], 1)
    assert forgotten.pending == {entry.key: (Tier.GPU,)}
    assert directory.get(entry.key) is None
    directory.unpin([entry])
    assert directory.gpu.drain_freed() == []
    assert len(directory.drain_to_zero()) == 0
    directory.unpin([entry])
    assert [place.entry for place in directory.gpu.drain_freed()] == [entry]
    np.testing.assert_array_equal(np.sort(directory.drain_to_zero()), np.sort(slots))


def test_a_chunk_that_is_forgotten_while_two_requests_read_it_is_freed_by_the_last() -> None:
    directory = directory_of()
    a, b = store(directory, "a"), store(directory, "b")
    first, last = directory.read([a, b]), directory.read([b, a])
    forgotten = directory.forget(UserScope("tenant/a"), [FactId("a")], 1)
    assert forgotten.pending == {a.key: (Tier.GPU,)}
    directory.end_read(first)
    directory.check_conservation()
    assert (directory.gpu.drain_freed(), directory.num_pinned) == ([], 2)
    directory.end_read(last)
    assert [place.entry for place in directory.gpu.drain_freed()] == [a]
    assert (directory.num_pinned, directory.get(b.key)) == (0, b)
    directory.check_conservation()


def test_one_list_of_places_may_be_read_twice_at_once() -> None:
    """A request that was preempted is resumed while the step that read for it is in flight."""
    directory = directory_of()
    entry = store(directory, "a")
    first = directory.read([entry])
    second = directory.gpu.read(first.places)
    directory.end_read(first)
    assert directory.num_pinned == 1
    directory.end_read(second)
    assert directory.num_pinned == 0


@pytest.mark.parametrize("ends_first", ["reading", "pin"])
def test_a_forgotten_chunk_that_is_read_and_copied_is_freed_when_both_have_ended(
    ends_first: str,
) -> None:
    directory = directory_of()
    entry = store(directory, "a")
    reading = directory.read([entry])
    directory.pin([entry])
    directory.forget(UserScope("tenant/a"), [FactId("a")], 1)
    for end in ("reading", "pin") if ends_first == "reading" else ("pin", "reading"):
        assert directory.gpu.drain_freed() == []
        directory.check_conservation()
        if end == "reading":
            directory.end_read(reading)
        else:
            directory.gpu.unpin(reading.places)
    assert directory.gpu.drain_freed() == reading.places
    directory.check_conservation()


def test_what_is_read_and_pinned_is_counted_once_and_refuses_what_does_not_fit_beside_it() -> None:
    directory = directory_of(num_pages=3)
    for name in "abc":
        store(directory, name)
    a, b, _ = directory.of_scope(UserScope("tenant/a"))
    reading, again = directory.read([a, b]), directory.read([a])
    directory.pin([a])
    assert (directory.gpu.num_pinned, directory.gpu.num_evictable) == (2, 1)
    key, fact = ChunkKey("tenant/a/x"), FactRef(FactId("x"), 1)
    assert directory.reserve(key, 8, origin=0, fact=fact, prefix_keys=()) is None
    assert evicted(directory) == []
    directory.end_read(reading)
    assert (directory.gpu.num_pinned, directory.gpu.num_evictable) == (1, 2)
    assert directory.reserve(key, 8, origin=0, fact=fact, prefix_keys=()) is not None
    assert directory.get(a.key) is a, "still read, and pinned"
    directory.end_read(again)
    directory.unpin([a])
    directory.check_conservation()


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
    assert first.keys == tuple(first.pending) == ("tenant/a/b",)
    second = directory.forget(UserScope("tenant/a"), [FactId("a"), FactId("b")], 6)
    assert second.keys == tuple(second.pending) == ("tenant/a/a", "tenant/a/c")
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
    entry = directory.reserve(key, 4, origin=0, fact=FactRef(FactId("a"), 1), prefix_keys=())
    assert entry is not None
    directory.publish(entry)
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
