"""Which chunk gives way: what it costs, how often it is asked for, and whose it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.kv.directory import ChunkDirectory
from inferscale_core.kv.eviction import EvictionQueue
from inferscale_core.kv.pages import PagePool
from inferscale_core.kv.readings import MAX_UNNOTED
from inferscale_core.kv.tiers import Tier
from inferscale_core.memory.facts import FactRef


def store(
    directory: ChunkDirectory, key: str, num_tokens: int = 4, sees: tuple[str, ...] = ()
) -> Any:
    entry = directory.reserve(
        ChunkKey(key),
        num_tokens,
        origin=0,
        fact=FactRef(FactId(key), 1),
        prefix_keys=tuple(map(ChunkKey, sees)),
    )
    assert entry is not None
    directory.publish(entry)
    return entry


def ask(directory: ChunkDirectory, entry: Any, times: int = 1) -> None:
    for _ in range(times):
        directory.end_read(directory.read([entry]))


def gone(directory: ChunkDirectory) -> list[str]:
    return [moved.key for moved in directory.drain_moved() if moved.tier is None]


def test_what_others_saw_is_kept_longer() -> None:
    directory = ChunkDirectory(PagePool(3, 4))
    store(directory, "t/u/seen")
    store(directory, "t/u/alone")
    store(directory, "t/u/reader", sees=("t/u/seen",))
    store(directory, "t/u/new")
    assert gone(directory) == ["t/u/alone"]


def test_a_chunk_with_a_lower_copy_gives_way_before_one_without_and_is_not_lost() -> None:
    directory = ChunkDirectory(PagePool(3, 4), PagePool(3, 4))
    copied = store(directory, "t/u/copied")
    ask(directory, copied, 3)
    store(directory, "t/u/only-here")
    transfer = directory.begin_transfer(copied, copied.gpu, Tier.HOST)
    assert transfer is not None
    directory.end_transfer(transfer, succeeded=True)
    store(directory, "t/u/large", num_tokens=8)
    assert [(m.key, m.tier) for m in directory.drain_moved()] == [("t/u/copied", Tier.HOST)]
    assert directory.find(copied.key) is copied


def test_a_chunk_that_is_read_while_its_turn_comes_is_asked_again_when_it_is_not() -> None:
    """With a bound on tenants it stands in two orders, and its turn comes in one of them."""
    directory = ChunkDirectory(PagePool(3, 4), tenant_share=0.3)
    read = store(directory, "left/u/read")
    reading = directory.read([read])
    store(directory, "left/u/idle")
    key = ChunkKey("right/u/large")
    large = directory.reserve(key, 8, origin=0, fact=FactRef(FactId(key), 1), prefix_keys=())
    assert large is not None
    directory.check_conservation()
    directory.publish(large)
    assert gone(directory) == ["left/u/idle"]
    directory.end_read(reading)
    directory.check_conservation()
    store(directory, "right/u/next", num_tokens=12)
    assert gone(directory) == ["right/u/large", "left/u/read"]


def test_what_was_skipped_because_two_read_it_is_asked_again_when_the_last_ends() -> None:
    directory = ChunkDirectory(PagePool(2, 4))
    read = store(directory, "t/u/read")
    readings = [directory.read([read]), directory.read([read])]
    for number in range(40):  # More and more is worth less than what was read at clock 0.
        ask(directory, store(directory, f"t/u/{number}"), 1)
        if read.gpu in directory.gpu.queue.skipped:
            break
    for reading in readings:
        assert read.gpu in directory.gpu.queue.skipped
        directory.end_read(reading)
        directory.check_conservation()
    assert not directory.gpu.queue.skipped
    store(directory, "t/u/large", num_tokens=8)
    assert "t/u/read" in gone(directory)


def test_what_was_skipped_because_it_was_pinned_is_asked_again_although_it_is_read() -> None:
    directory = ChunkDirectory(PagePool(2, 4))
    kept = store(directory, "t/u/kept")
    directory.pin([kept])
    for number in range(40):
        ask(directory, store(directory, f"t/u/{number}"), 1)
    assert kept.gpu in directory.gpu.queue.skipped
    reading = directory.read([kept])
    directory.unpin([kept])
    for number in range(40, 80):
        ask(directory, store(directory, f"t/u/{number}"), 1)
        directory.check_conservation()
    assert directory.get(kept.key) is kept
    directory.end_read(reading)
    directory.check_conservation()
    store(directory, "t/u/large", num_tokens=8)
    assert "t/u/kept" in gone(directory)


def test_a_use_counts_before_a_chunk_has_to_give_way_although_it_is_noted_late() -> None:
    directory = ChunkDirectory(PagePool(2, 4))
    used = store(directory, "t/u/used")
    store(directory, "t/u/other")
    ask(directory, used)
    assert used.heat == 1, "not yet"
    store(directory, "t/u/new")
    assert gone(directory) == ["t/u/other"]
    assert used.heat > 1


def test_uses_are_noted_now_and_then_even_if_nothing_gives_way() -> None:
    directory = ChunkDirectory(PagePool(2, 4))
    used = store(directory, "t/u/used")
    ask(directory, used, MAX_UNNOTED)
    assert used.heat > MAX_UNNOTED / 2


def test_what_is_not_asked_for_any_more_gives_way_to_what_is() -> None:
    """However often it was asked for once."""
    directory = ChunkDirectory(PagePool(4, 4))
    ask(directory, store(directory, "t/u/once-loved"), 50)
    for number in range(2_000):
        ask(directory, store(directory, f"t/u/{number}"), 3)
        if "t/u/once-loved" in gone(directory):
            return
    raise AssertionError("never gave way")


def test_a_chunk_that_comes_back_is_remembered() -> None:
    directory = ChunkDirectory(PagePool(3, 4))
    known = store(directory, "t/u/known")
    ask(directory, known, 4)
    directory.lost(known.gpu)
    store(directory, "t/u/other")
    assert store(directory, "t/u/known").heat > 3
    assert store(directory, "t/u/stranger").heat == 1


@pytest.mark.parametrize(
    ("share", "survivors"), [(1.0, {"noisy/u/8", "noisy/u/9"}), (0.5, {"quiet/u/0", "quiet/u/1"})]
)
def test_a_tenant_beyond_its_share_pushes_out_its_own_chunks(
    share: float, survivors: set[str]
) -> None:
    directory = ChunkDirectory(PagePool(4, 4), tenant_share=share)
    for number in range(2):
        store(directory, f"quiet/u/{number}")
    for number in range(10):
        store(directory, f"noisy/u/{number}")
    assert survivors <= set(directory._entries)


def test_others_push_out_the_tenant_beyond_its_share_first() -> None:
    directory = ChunkDirectory(PagePool(6, 4), tenant_share=0.5)
    for number in range(5):
        ask(directory, store(directory, f"noisy/u/{number}"), 9)
    store(directory, "quiet/u/0")
    for number in range(1, 3):
        store(directory, f"quiet/u/{number}")
    assert len(gone(directory)) == 2
    assert {key for key in directory._entries if key.startswith("quiet")} == {
        "quiet/u/0",
        "quiet/u/1",
        "quiet/u/2",
    }


class Item:
    """A place whose worth only grows between two turns."""

    tenant = "t"
    num_pins = 0
    clock = 0.0

    def __init__(self, holder: int, num_pages: int, cost: float) -> None:
        self.holder, self.num_pages, self.cost = holder, num_pages, cost
        self.heat = 1.0

    @property
    def worth(self) -> float:
        return self.clock + self.heat * self.cost / self.num_pages


class QueueMachine(RuleBasedStateMachine):
    """The lazy order always gives what a look at everything would."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: EvictionQueue[Item] = EvictionQueue(1000)
        self.items: list[Item] = []
        self.num_items = 0

    @rule(num_pages=st.integers(1, 5), cost=st.integers(1, 50))
    def add(self, num_pages: int, cost: int) -> None:
        self.num_items += 1
        item = Item(self.num_items, num_pages, float(cost))
        self.queue.add(item)
        self.items.append(item)

    @precondition(lambda self: self.items)
    @rule(data=st.data(), is_pinned=st.booleans())
    def use(self, data: st.DataObject, is_pinned: bool) -> None:
        item = data.draw(st.sampled_from(self.items))
        item.heat += 1.0
        item.clock = self.queue.clock
        if is_pinned:
            item.num_pins += 1

    @precondition(lambda self: any(item.num_pins for item in self.items))
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from([item for item in self.items if item.num_pins]))
        item.num_pins -= 1
        if not item.num_pins and item in self.queue.skipped:
            self.queue.unpinned(item)

    @precondition(lambda self: self.items)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.items))
        self.items.remove(item)
        self.queue.remove(item)

    @rule()
    def evict(self) -> None:
        candidates = [item for item in self.items if not item.num_pins]
        victim = self.queue.victim("t", 1, lambda item: item.num_pins > 0)
        if victim is None:
            assert not candidates
            return
        assert victim in candidates
        assert victim.worth == min(item.worth for item in candidates)
        assert self.queue.clock >= victim.worth
        self.items.remove(victim)


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueMachine = QueueMachine.TestCase
