from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.memory.recipes import FactOrder, PrefixFacts
from inferscale_core.retrieval import UserSnapshot
from tests.unit.retrieval.factories import delta, empty, fact, recipe, rules, turn

EAST = torch.tensor([1.0, 0.0, 0.0, 0.0])
NORTH = torch.tensor([0.0, 1.0, 0.0, 0.0])
NORTH_EAST = torch.tensor([0.6, 0.8, 0.0, 0.0])


def prefix(snapshot: UserSnapshot, fact_id: str) -> list[str]:
    spec = snapshot.spec_of(FactId(fact_id))
    assert spec is not None
    return [ref.fact_id for ref in spec.prefix_facts]


def test_the_nearest_earlier_facts_stand_in_the_prefix_nearest_last() -> None:
    facts = [fact("a", 1), fact("b", 2), fact("c", 3), fact("d", 4)]
    vectors = [NORTH, EAST, NORTH_EAST, NORTH]
    snapshot = empty(rules(recipe(num_neighbours=2))).apply(delta(facts, vectors=vectors))
    assert prefix(snapshot, "a") == []
    assert prefix(snapshot, "c") == ["b", "a"]
    assert prefix(snapshot, "d") == ["c", "a"]


def test_equally_near_facts_are_ranked_by_the_older_id() -> None:
    facts = [fact("z", 1), fact("m", 2), fact("a", 3), fact("q", 4)]
    snapshot = empty(rules(recipe(num_neighbours=2))).apply(delta(facts, vectors=[EAST] * 4))
    assert prefix(snapshot, "q") == ["m", "a"]
    assert [fact_id for fact_id, _ in snapshot.vectors.nearest(EAST, 3)] == ["a", "m", "q"]


def test_an_update_moves_a_fact_to_the_end() -> None:
    before = empty().apply(delta([fact("a", 1), fact("b", 2)]))
    after = before.apply(delta([fact("a", 3, revision=2)]))
    assert list(after.facts) == ["b", "a"]
    assert prefix(after, "b") == []
    assert prefix(after, "a") == ["b"]


def test_a_fact_that_arrives_out_of_order_becomes_a_neighbour_of_the_later_ones() -> None:
    late = [fact("b", 2), fact("d", 4)]
    snapshot = empty().apply(delta(late)).apply(delta([fact("a", 1), fact("c", 3)], version=4))
    assert list(snapshot.facts) == ["a", "b", "c", "d"]
    assert set(prefix(snapshot, "d")) == {"a", "b", "c"}
    assert prefix(snapshot, "b") == ["a"]


def test_a_delete_changes_the_keys_of_all_that_saw_the_fact_and_of_no_other() -> None:
    facts = [fact("a", 1), fact("b", 2), fact("c", 3), fact("d", 4)]
    vectors = [EAST, EAST, NORTH_EAST, NORTH]
    before = empty(rules(recipe(num_neighbours=1))).apply(delta(facts, vectors=vectors))
    assert [prefix(before, i) for i in "bcd"] == [["a"], ["a"], ["c"]]
    after = before.apply(delta(version=5, removed=["a"]))
    changed = {i for i, spec in after.specs.items() if spec.key != before.specs[i].key}
    assert changed == {"b", "c", "d"}
    untouched = before.apply(delta(version=5, removed=["d"]))
    assert {i: s.key for i, s in untouched.specs.items()} == {
        i: s.key for i, s in before.specs.items() if i != "d"
    }


def test_neighbours_come_from_the_newest_facts_only_when_the_recipe_says_so() -> None:
    facts = [fact("a", 1), fact("b", 2), fact("c", 3), fact("d", 4)]
    vectors = [EAST, NORTH, NORTH, EAST]
    bounded = rules(recipe(num_neighbours=1, newest_facts=2))
    snapshot = empty(bounded).apply(delta(facts, vectors=vectors))
    assert prefix(snapshot, "d") == ["b"]
    assert prefix(snapshot.apply(delta(version=5, removed=["c"])), "d") == ["a"]


def test_earlier_facts_come_from_a_facts_own_chapter_only() -> None:
    facts = [fact("a", 4), fact("b", 5), fact("c", 6), fact("d", 7), fact("e", 8), fact("f", 9)]
    vectors = [EAST, NORTH, NORTH, EAST, EAST, EAST]
    of = recipe(num_neighbours=2, num_recent=1, chapter=4)
    snapshot = empty(rules(of)).apply(delta(facts, vectors=vectors))
    assert [prefix(snapshot, i) for i in "abcd"] == [[], ["a"], ["b", "a"], ["c", "b", "a"]]
    assert [prefix(snapshot, i) for i in "ef"] == [[], ["e"]]
    running = rules(recipe(0, running_sequence=True, chapter=4))
    snapshot = empty(running).apply(delta(facts, vectors=vectors))
    assert [prefix(snapshot, i) for i in "def"] == [["a", "b", "c"], [], ["e"]]
    fewer = snapshot.apply(delta(version=10, removed=["a", "b"]))
    assert [prefix(fewer, i) for i in "def"] == [["c"], [], ["e"]]
    for fact_id in map(FactId, "ef"):
        assert fewer.specs[fact_id].key == snapshot.specs[fact_id].key


def test_recent_facts_stand_before_the_nearest_of_the_others() -> None:
    facts = [fact(name, place) for place, name in enumerate("abcdef", 1)]
    vectors = [NORTH, EAST, NORTH_EAST, EAST, NORTH, NORTH]
    of = recipe(num_neighbours=2, num_recent=2)
    snapshot = empty(rules(of)).apply(delta(facts, vectors=vectors))
    assert prefix(snapshot, "f") == ["d", "e", "c", "a"]
    assert prefix(snapshot, "b") == ["a"]
    arrival = empty(rules(replace(of, fact_order=FactOrder.ARRIVAL)))
    assert prefix(arrival.apply(delta(facts, vectors=vectors)), "f") == ["a", "c", "d", "e"]


def test_a_running_sequence_holds_every_earlier_fact_that_fits() -> None:
    facts = [fact(name, place, num_tokens=3) for place, name in enumerate("abcd", 1)]
    of = recipe(0, running_sequence=True)
    assert prefix(empty(rules(of)).apply(delta(facts)), "d") == ["a", "b", "c"]
    narrow = empty(rules(of, max_prompt_tokens=5 + 3 * 3)).apply(delta(facts))
    assert prefix(narrow, "d") == ["b", "c"]


def test_facts_as_text_are_part_of_a_key_and_what_they_saw_is_not() -> None:
    facts = [fact("a", 1), fact("b", 2), fact("c", 3)]
    vectors = [EAST, EAST, EAST]
    of = rules(recipe(num_neighbours=1, facts_as=PrefixFacts.TEXT))
    before = empty(of).apply(delta(facts, vectors=vectors))
    spec = before.specs[FactId("b")]
    assert (prefix(before, "b"), spec.prefix_keys, spec.depth) == (["a"], (), 1)
    # All are equally near, so the older id is nearest to both b and c.
    assert prefix(before, "c") == ["a"]
    after = before.apply(delta([fact("b", 4, revision=2)], vectors=[EAST]))
    assert after.specs[FactId("c")].key == before.specs[FactId("c")].key
    gone = before.apply(delta(version=5, removed=["a"]))
    assert gone.specs[FactId("c")].key != before.specs[FactId("c")].key


def test_a_chain_that_would_get_too_long_begins_anew_with_its_neighbours_as_text() -> None:
    facts = [fact(name, place) for place, name in enumerate("abcdefg", 1)]
    of = rules(recipe(num_neighbours=2, max_depth=3))
    specs = empty(of).apply(delta(facts, vectors=[EAST] * 7)).specs
    unbounded = empty(rules(recipe(num_neighbours=2))).apply(delta(facts, vectors=[EAST] * 7)).specs
    for fact_id, spec in specs.items():
        assert spec.depth <= 3
        assert spec.prefix_facts == unbounded[fact_id].prefix_facts, "the choice is the same"
        if spec.prefix_facts:
            deepest = max(specs[ref.fact_id].depth for ref in spec.prefix_facts)
            assert bool(spec.prefix_keys) is (deepest < 3)


def test_the_farthest_neighbours_give_way_when_the_prompt_is_full() -> None:
    facts = [fact("a", 1, num_tokens=4), fact("b", 2, num_tokens=4), fact("c", 3, num_tokens=2)]
    small = rules(recipe(num_neighbours=2), max_prompt_tokens=5 + 4 + 2)
    snapshot = empty(small).apply(delta(facts, vectors=[EAST, NORTH_EAST, NORTH]))
    assert prefix(snapshot, "c") == ["b"]


def test_a_fact_that_is_too_long_has_no_chunk_and_is_nobodys_neighbour() -> None:
    facts = [fact("a", 1, num_tokens=9), fact("b", 2)]
    snapshot = empty(rules(recipe(max_fact_tokens=8))).apply(delta(facts))
    assert snapshot.spec_of(FactId("a")) is None
    assert prefix(snapshot, "b") == []
    assert FactId("a") in snapshot.facts


def test_a_fact_that_leaves_no_room_behind_the_header_has_no_chunk() -> None:
    snapshot = empty(rules(max_prompt_tokens=8)).apply(delta([fact("a", 1, num_tokens=4)]))
    assert snapshot.specs == {}


def test_the_header_is_part_of_every_key_that_it_stands_before() -> None:
    for of, depends in ((recipe(), True), (recipe(0, num_turns=1, with_header=False), False)):
        one = empty(rules(of)).apply(delta([fact("a", 1)]))
        other_rules = replace(rules(of), header_key=ChunkKey("shared/header/1"))
        other = empty(other_rules).apply(delta([fact("a", 1)]))
        assert (one.specs != other.specs) is depends


def window_of(snapshot: UserSnapshot, fact_id: str) -> list[str]:
    spec = snapshot.spec_of(FactId(fact_id))
    assert spec is not None
    assert [entry.turn_id for entry in snapshot.prefix_turns(spec)] == list(spec.turn_ids)
    return list(spec.turn_ids)


def test_a_window_holds_the_turns_before_the_source_and_not_the_source() -> None:
    windowed = rules(recipe(0, num_turns=2, with_header=False))
    turns = [turn(f"t{n}", n) for n in range(5)] + [turn("other", 2, talk="elsewhere")]
    facts = [fact("a", 1, turn_ids=("t4", "t3")), fact("b", 2, turn_ids=("t0",)), fact("c", 3)]
    snapshot = empty(windowed).apply(delta(facts, turns=turns))
    assert window_of(snapshot, "a") == ["t1", "t2"]
    assert window_of(snapshot, "b") == []
    assert window_of(snapshot, "c") == []


def test_deleting_a_turn_changes_the_chunks_that_saw_it_and_no_others() -> None:
    windowed = rules(recipe(0, num_turns=2))
    turns = [turn(f"t{n}", n) for n in range(6)]
    facts = [fact("a", 1, turn_ids=("t2",)), fact("b", 2, turn_ids=("t5",))]
    before = empty(windowed).apply(delta(facts, turns=turns))
    after = before.apply(delta(version=3, removed_turns=["t1"]))
    assert window_of(after, "a") == ["t0"]
    assert after.specs[FactId("a")].key != before.specs[FactId("a")].key
    assert after.specs[FactId("b")] == before.specs[FactId("b")]


def test_turns_stand_behind_earlier_facts_and_have_the_room_that_these_leave() -> None:
    turns = [turn(f"t{n}", n, num_tokens=3) for n in range(4)]
    facts = [fact("a", 1), fact("b", 2, turn_ids=("t3",))]
    of = recipe(num_neighbours=1, num_turns=3)
    both = empty(rules(of)).apply(delta(facts, turns=turns))
    assert (prefix(both, "b"), window_of(both, "b")) == (["a"], ["t0", "t1", "t2"])
    narrow = rules(of, max_prompt_tokens=5 + 2 + 2 + 3 + 1)
    assert window_of(empty(narrow).apply(delta(facts, turns=turns)), "b") == ["t2"]


def test_turns_farther_away_give_way_when_the_prompt_is_full() -> None:
    windowed = rules(recipe(0, num_turns=4, with_header=False), max_prompt_tokens=2 + 3 + 3)
    turns = [turn(f"t{n}", n, num_tokens=3) for n in range(5)]
    snapshot = empty(windowed).apply(delta([fact("a", 1, turn_ids=("t4",))], turns=turns))
    assert window_of(snapshot, "a") == ["t2", "t3"]


@pytest.mark.parametrize("bad", [torch.zeros(4), torch.full((4,), torch.nan), 3 * EAST])
def test_a_vector_that_cannot_be_compared_leaves_the_snapshot_as_it_was(bad: torch.Tensor) -> None:
    before = empty().apply(delta([fact("a", 1)]))
    with pytest.raises(InvalidInput, match="embedding"):
        before.apply(delta([fact("b", 2)], vectors=[bad]))
    assert list(before.facts) == ["a"]


def test_no_fact_is_nearest_to_anything_in_an_empty_memory() -> None:
    assert empty().vectors.nearest(EAST, 5) == []


def test_removing_what_was_never_there_changes_nothing_but_the_version() -> None:
    before = empty().apply(delta([fact("a", 1)]))
    after = before.apply(delta(version=7, removed=["ghost"], removed_turns=["ghost"]))
    assert (after.memory_version, after.specs) == (7, before.specs)
