from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.memory.canonical import ChunkSpec
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.plans import PlannedFact, plan_prompt
from inferscale_core.memory.spans import Span
from inferscale_core.memory.waves import Waves, next_wave

HEADER = (Span(ChunkKey("shared/header/0"), 3), (1, 2, 3))


def planned(name: str, *token_ids: int, resident: bool) -> PlannedFact:
    key = ChunkKey(f"acme/robin/{name}") if resident else None
    return PlannedFact(FactRef(FactId(name), 1), token_ids, 0.5, key)


FACTS = [
    planned("a", 10, 11, resident=True),
    planned("b", 20, resident=False),
    planned("c", 30, 31, resident=True),
    planned("d", 40, resident=False),
]


def test_resident_facts_come_first_and_keep_their_ranking() -> None:
    plan = plan_prompt(HEADER, FACTS, (99,), inject=True)
    assert [fact.fact.fact_id for fact in plan.facts] == ["a", "c", "b", "d"]
    assert plan.token_ids == (1, 2, 3, 10, 11, 30, 31, 20, 40, 99)
    assert [span.num_tokens for span in plan.spans] == [3, 2, 2]
    assert plan.num_span_tokens == 7


def test_text_mode_has_the_same_tokens_and_no_spans() -> None:
    text = plan_prompt(HEADER, FACTS, (99,), inject=False)
    assert text.token_ids == plan_prompt(HEADER, FACTS, (99,), inject=True).token_ids
    assert text.spans == ()


def test_facts_asked_for_as_text_go_last_resident_or_not_and_give_no_span() -> None:
    facts = [*FACTS[:2], *(replace(fact, is_text=True) for fact in FACTS[2:])]
    plan = plan_prompt(HEADER, facts, (99,), inject=True)
    assert [fact.fact.fact_id for fact in plan.facts] == ["a", "b", "c", "d"]
    assert [span.num_tokens for span in plan.spans] == [3, 2]
    assert plan.num_text_facts == 2


def spec(name: str, *prefix: str) -> ChunkSpec:
    return ChunkSpec(
        fact=FactRef(FactId(name), 1),
        key=ChunkKey(name),
        prefix_facts=tuple(FactRef(FactId(seen), 1) for seen in prefix),
        prefix_keys=tuple(ChunkKey(seen) for seen in prefix),
        turn_ids=(),
        depth=1,
    )


def test_a_wave_holds_what_is_missing_and_whose_prefix_is_there() -> None:
    specs = [spec("a"), spec("b", "a"), spec("c"), spec("d", "a", "c"), spec("e", "d")]

    def wave(*resident: str) -> list[str]:
        return [ready.key for ready in next_wave(specs, {ChunkKey(key) for key in resident})]

    assert wave() == ["a", "c"]
    assert wave("a") == ["b", "c"]
    assert wave("a", "c") == ["b", "d"]
    assert wave("a", "b", "c", "d") == ["e"]
    assert wave("a", "b", "c", "d", "e") == []
    assert wave("a", "c", "e") == ["b", "d"], "an evicted prefix is encoded again"


def taken(waves: Waves) -> list[str]:
    return list(iter(lambda: found.key if (found := waves.take()) else "", ""))


def test_what_is_taken_is_withheld_until_it_is_given_back() -> None:
    waves = Waves([spec("a"), spec("b", "a"), spec("c")], ())
    assert taken(waves) == ["a", "c"]
    assert taken(waves) == []
    waves.give_back(ChunkKey("c"))
    assert taken(waves) == ["c"], "it was not stored, and may be tried again"
    waves.note(ChunkKey("a"), is_resident=True)
    waves.give_back(ChunkKey("a"))
    assert taken(waves) == ["b"]


def test_what_is_withheld_from_the_start_is_never_taken() -> None:
    waves = Waves([spec("a"), spec("b", "a")], {ChunkKey("a")})
    waves.withhold(ChunkKey("b"))
    waves.note(ChunkKey("a"), is_resident=False)
    waves.note(ChunkKey("a"), is_resident=True)
    assert taken(waves) == []


def test_a_chunk_of_nobody_changes_nothing() -> None:
    waves = Waves([spec("a")], ())
    waves.note(ChunkKey("other"), is_resident=True)
    waves.give_back(ChunkKey("other"))
    assert waves.spec_of(ChunkKey("other")) is None
    assert taken(waves) == ["a"]


@given(st.data())
def test_after_any_changes_what_may_be_taken_is_the_next_wave(data: st.DataObject) -> None:
    names = [f"f{number:02}" for number in range(data.draw(st.integers(1, 12)))]
    specs = [
        spec(name, *data.draw(st.lists(st.sampled_from(names[:place]), max_size=3, unique=True)))
        if place
        else spec(name)
        for place, name in enumerate(names)
    ]
    keys = st.sampled_from([one.key for one in specs])
    resident = data.draw(st.sets(keys))
    waves, busy = Waves(specs, frozenset(resident)), set[ChunkKey]()
    for change in data.draw(st.lists(st.sampled_from(["come", "go", "take", "back"]), max_size=40)):
        if change == "take":
            expected = [one.key for one in next_wave(specs, resident) if one.key not in busy]
            found = waves.take()
            assert (found.key if found else None) == next(iter(expected), None)
            busy |= {found.key} if found else set()
        elif change == "back":
            for key in busy:
                waves.give_back(key)
            busy.clear()
        else:
            key = data.draw(keys)
            (resident.add if change == "come" else resident.discard)(key)
            waves.note(key, is_resident=change == "come")
