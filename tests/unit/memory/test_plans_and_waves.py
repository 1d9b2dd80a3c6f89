from __future__ import annotations

from dataclasses import replace

from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.memory.canonical import ChunkSpec
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.plans import PlannedFact, Span, plan_prompt
from inferscale_core.memory.waves import next_wave

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
