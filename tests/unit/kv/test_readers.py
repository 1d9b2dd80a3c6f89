"""Which chunks saw which, against a model that knows nothing but what each known chunk saw."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.kv.directory import ChunkDirectory
from inferscale_core.kv.pages import PageBudget, PagePool
from inferscale_core.memory.facts import FactRef

SCOPE, OTHER = UserScope("tenant/a"), UserScope("tenant/b")
NAMES = "abcdefgh"

actions = st.tuples(
    st.sampled_from(["store", "store", "store", "adopt", "evict", "forget"]),
    st.sampled_from(NAMES),
    st.sets(st.sampled_from(NAMES), max_size=3),
)


class Model:
    """A user's chunks, beside another's of the same facts. seen: of each known chunk."""

    def __init__(self) -> None:
        self.directory = ChunkDirectory(PagePool(40, 1), disk=PageBudget(40, 1))
        self.seen: dict[ChunkKey, tuple[ChunkKey, ...]] = {}
        for name in NAMES:
            self.add("store", OTHER, name, set(NAMES))
        self.seen.clear()

    def do(self, kind: str, name: str, others: set[str]) -> None:
        key = key_of(name)
        if kind == "forget":
            forgotten = self.directory.forget(SCOPE, [FactId(name)], 0)
            expected = self.closure([key])
            assert forgotten.keys == tuple(sorted(expected))
            assert forgotten.num_dependants == len(expected - {key})
            for gone in expected:
                del self.seen[gone]
        elif kind == "evict" and key in self.seen:
            while (entry := self.directory.find(key)) and (place := entry.fastest):
                self.directory.lost(place)
            del self.seen[key]
        elif kind in ("store", "adopt") and key not in self.seen:
            self.add(kind, SCOPE, name, others)

    def add(self, kind: str, scope: UserScope, name: str, others: set[str]) -> None:
        """What is adopted may have seen what is not known, or not yet."""
        keys = [key_of(other, scope) for other in sorted(others)]
        if kind == "store" and scope == SCOPE:
            keys = [key for key in keys if key in self.seen]
        key, sees = key_of(name, scope), tuple(keys)
        fact = FactRef(FactId(name), 1)
        if kind == "store":
            entry = self.directory.reserve(key, 1, origin=0, fact=fact, prefix_keys=sees)
            assert entry is not None
            self.directory.publish(entry)
        else:
            assert self.directory.adopt(key, 1, origin=0, fact=fact, prefix_keys=sees)
        self.seen[key] = sees

    def closure(self, keys: list[ChunkKey]) -> set[ChunkKey]:
        reached, frontier = set(), [key for key in keys if key in self.seen]
        while frontier:
            reached.add(last := frontier.pop())
            frontier += [r for r, seen in self.seen.items() if last in seen and r not in reached]
        return reached

    def check(self) -> None:
        self.directory.check_conservation()
        known = self.directory.of_scope(SCOPE)
        assert [entry.key for entry in known] == list(self.seen), "in the order of capture"
        for entry in known:
            num_readers = sum(entry.key in seen for seen in self.seen.values())
            assert entry.num_readers == num_readers
        assert len(self.directory.of_scope(OTHER)) == len(NAMES)


def key_of(name: str, scope: UserScope = SCOPE) -> ChunkKey:
    return ChunkKey(f"{scope}/{name}")


@settings(deadline=None)
@given(st.lists(actions, max_size=30))
def test_a_forget_drops_just_what_saw_the_fact_and_readers_are_counted(
    steps: list[tuple[str, str, set[str]]],
) -> None:
    model = Model()
    for step in steps:
        model.do(*step)
        model.check()


@pytest.fixture
def chain() -> Iterator[Model]:
    """Each saw the one before it; all but the last were evicted and encoded again, from the end,
    so that each but the last stands behind its reader."""
    model = Model()
    for name, before in zip(NAMES, " " + NAMES, strict=False):
        model.do("store", name, {before} & set(NAMES))
    for name in reversed(NAMES[:-1]):
        sees = model.seen[key_of(name)]
        model.do("evict", name, set())
        model.add("adopt", SCOPE, name, {key.rpartition("/")[2] for key in sees})
    yield model
    model.check()


def test_a_chunk_that_was_encoded_again_and_stands_behind_its_reader_takes_it_along(
    chain: Model,
) -> None:
    assert list(chain.seen) == [key_of(name) for name in reversed(NAMES)]
    chain.do("forget", "a", set())
    assert not chain.seen


def test_what_is_gone_leads_to_nobody(chain: Model) -> None:
    """Its readers do not hang on what it saw: whoever forgets names them."""
    chain.do("evict", "d", set())
    chain.do("forget", "a", set())
    assert set(chain.seen) == {key_of(name) for name in "efgh"}


@pytest.mark.parametrize("end", ["evict", "forget"])
def test_a_wrong_count_is_found(chain: Model, end: str) -> None:
    chain.do(end, "h", set())
    chain.directory._readers.add([key_of("b")])
    with pytest.raises(AssertionError, match="readers"):
        chain.directory.check_conservation()
    chain.directory._readers.remove([key_of("b")])
