from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.memory.canonical import ChunkSpec
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.plans import PlannedFact, Span, plan_prompt
from inferscale_core.memory.recipes import (
    DEFAULT_RECIPE,
    RECIPES,
    Prefix,
    Recipe,
    recipe_by_name,
)
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


def test_a_recipes_hash_covers_all_that_changes_a_chunk_and_not_its_name() -> None:
    base = Recipe("one", Prefix.HEADER_AND_NEIGHBOURS, num_neighbours=8)
    assert Recipe("two", Prefix.HEADER_AND_NEIGHBOURS, num_neighbours=8).hash == base.hash
    others = [
        Recipe("one", Prefix.TURNS, num_neighbours=8),
        Recipe("one", Prefix.HEADER_AND_NEIGHBOURS, num_neighbours=9),
        Recipe("one", Prefix.HEADER_AND_NEIGHBOURS, num_neighbours=8, newest_facts=99),
        Recipe("one", Prefix.HEADER_AND_NEIGHBOURS, num_neighbours=8, header="Other:\n"),
        Recipe("one", Prefix.HEADER_AND_NEIGHBOURS, num_neighbours=8, dated_fact="{text}"),
    ]
    assert len({base.hash, *(other.hash for other in others)}) == len(others) + 1


def test_the_architecture_page_lists_every_recipe() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "architecture.md"
    section = page.read_text(encoding="utf-8").partition("## Recipes\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([\w-]+)`", " ".join(rows))) == set(RECIPES)


def test_every_recipe_by_name_is_another() -> None:
    assert len({recipe.hash for recipe in RECIPES.values()}) == len(RECIPES)
    assert recipe_by_name(DEFAULT_RECIPE.name) is DEFAULT_RECIPE
    with pytest.raises(InvalidInput, match=r"'none' is not one of: .*progressive-32"):
        recipe_by_name("none")


@pytest.mark.parametrize(
    "fields", [{"num_neighbours": 257}, {"num_neighbours": -1}, {"num_turns": 1001}]
)
def test_a_recipe_out_of_bounds_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(fields))):
        Recipe("odd", Prefix.HEADER_AND_NEIGHBOURS, **fields)  # type: ignore[arg-type]


def test_a_facts_line_may_hold_what_looks_like_a_place_for_text() -> None:
    when = datetime(2026, 5, 3, tzinfo=UTC)
    assert DEFAULT_RECIPE.render("{date} {text}", when) == "On 3 May 2026: {date} {text}\n"
    assert DEFAULT_RECIPE.render("{text}", None) == "{text}\n"
