from __future__ import annotations

from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.plans import Plan, PlannedFact, plan_prompt
from inferscale_core.memory.spans import Span
from services.worker.served import Serving, planned_servings, served_tokens

HIT, INJ, PRE = Serving.NATIVE_HIT, Serving.INJECTED, Serving.PREFILLED


def plan(*, inject: bool = True) -> Plan:
    """A header of 10 tokens, chunks of 5 and 6, one fact of 7 as text, a tail of 3."""
    facts = [
        PlannedFact(
            FactRef(FactId(f"f{size}"), 1), tuple(range(size)), 0.5, ChunkKey(key) if key else None
        )
        for size, key in ((5, "a/b/1"), (7, None), (6, "a/b/2"))
    ]
    header = (Span(ChunkKey("shared/header/0"), 10), tuple(range(10)))
    return plan_prompt(header, facts, [1, 2, 3], inject=inject)


def test_a_plan_means_to_inject_what_has_a_chunk() -> None:
    assert planned_servings(plan()) == (INJ, INJ, PRE)
    assert planned_servings(plan(inject=False)) == (PRE, PRE, PRE)


def test_facts_are_served_as_their_tokens_were() -> None:
    cases = {
        (0, 21): (INJ, INJ, PRE),
        (16, 5): (HIT, INJ, PRE),
        (12, 9): (INJ, INJ, PRE),
        (21, 0): (HIT, HIT, PRE),
        (28, 0): (HIT, HIT, HIT),
        (0, 15): (INJ, PRE, PRE),
        (0, 0): (PRE, PRE, PRE),
        (20, 0): (HIT, PRE, PRE),
    }
    for (native, injected), expected in cases.items():
        assert served_tokens(plan(), native, injected).by_fact == expected, (native, injected)


def test_every_prompt_token_is_counted_once() -> None:
    served = served_tokens(plan(), 16, 5)
    assert served.num_prompt_tokens == 31
    assert served.tokens == {INJ: 5, HIT: 16, PRE: 10}
    assert served.facts == {INJ: 1, HIT: 1, PRE: 1}
