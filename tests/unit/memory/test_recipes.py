from __future__ import annotations

import re
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from inferscale_core.errors import InvalidInput
from inferscale_core.memory.recipes import (
    DEFAULT_RECIPE,
    RECIPES,
    FactOrder,
    PrefixFacts,
    Recipe,
    Storage,
    recipe_by_name,
)
from inferscale_core.settings import RecipeSettings

PAGE = Path(__file__).resolve().parents[3] / "docs" / "recipes.md"

OTHERS: dict[str, Any] = {
    "with_header": False,
    "num_neighbours": 9,
    "num_recent": 2,
    "fact_order": FactOrder.ARRIVAL,
    "facts_as": PrefixFacts.TEXT,
    "num_turns": 1,
    "newest_facts": 99,
    "chapter": 512,
    "max_depth": 4,
    "header": "Other:\n",
    "footer": "Over.\n",
    "dated_fact": "{text}",
    "undated_fact": "- {text}\n",
    "max_fact_tokens": 64,
    "storage": Storage.INT8,
}


def recipe(**changes: Any) -> Recipe:
    return Recipe("one", **({"num_neighbours": 8} | changes))


def test_a_recipes_hash_covers_all_that_changes_a_chunk_and_nothing_else() -> None:
    base = recipe()
    hashes = {base.hash, *(recipe(**{name: value}).hash for name, value in OTHERS.items())}
    hashes.add(recipe(num_neighbours=0, running_sequence=True).hash)
    assert len(hashes) == len(OTHERS) + 2
    assert {field.name for field in fields(Recipe)} - OTHERS.keys() == {
        "name",
        "running_sequence",
        "text_facts",
    }
    assert Recipe("two", num_neighbours=8, text_facts=4).hash == base.hash


def test_a_field_that_came_later_leaves_the_hash_of_recipes_without_it_as_it_was() -> None:
    """Their chunks are stored under it, also on disks."""
    assert RECIPES["progressive-32"].hash == "217eda5a8a51db8b"
    assert RECIPES["progressive-32-arrival"].hash == "c46c31db9111537a"
    assert Recipe("x", num_neighbours=32, chapter=512).hash != "217eda5a8a51db8b"


def test_the_page_of_recipes_lists_every_one() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## By name\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([\w-]+)`", " ".join(rows))) == set(RECIPES)


def test_the_page_of_recipes_describes_every_field() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Fields\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert re.findall(r"`(\w+)`", " ".join(rows)) == [field.name for field in fields(Recipe)]


def test_a_service_that_names_no_recipe_has_the_default() -> None:
    """Also where a tool is told none: operators and measurements mean the same by it."""
    assert RECIPES[RecipeSettings().name] is DEFAULT_RECIPE


@pytest.mark.parametrize(
    "name", ["progressive-16-arrival", "progressive-32-arrival", "progressive-32"]
)
def test_a_recipe_in_chapters_differs_in_these_alone(name: str) -> None:
    assert replace(RECIPES[name], chapter=512).hash == RECIPES[f"{name}-chapters"].hash


def test_every_recipe_by_name_is_another() -> None:
    assert len({recipe.hash for recipe in RECIPES.values()}) == len(RECIPES)
    assert recipe_by_name(DEFAULT_RECIPE.name) is DEFAULT_RECIPE
    with pytest.raises(InvalidInput, match=r"'none' is not one of: .*progressive-32"):
        recipe_by_name("none")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_neighbours": 257}, r"recipe.num_neighbours: 257 is not in 0..256"),
        ({"num_neighbours": -1}, r"recipe.num_neighbours: -1 is not in 0..256"),
        ({"num_recent": 257}, r"recipe.num_recent: 257 is not in 0..256"),
        ({"num_turns": 1001}, r"recipe.num_turns: 1001 is not in 0..1000"),
        ({"newest_facts": 0}, r"recipe.newest_facts: 0 is not in 1..1000000"),
        ({"chapter": 1}, r"recipe.chapter: 1 is not in 2..1000000"),
        ({"max_depth": 1}, r"recipe.max_depth: 1 is not in 2..256"),
        ({"max_fact_tokens": 0}, r"recipe.max_fact_tokens: 0 is not in 1..8192"),
        ({"text_facts": 101}, r"recipe.text_facts: 101 is not in 0..100"),
        ({"dated_fact": "On {date}"}, r"recipe.dated_fact: has no {text}"),
        ({"header": "x" * 8193}, r"recipe.header: is longer than 8192 characters"),
        ({"running_sequence": True}, r"recipe.running_sequence: .* must be 0"),
        ({"num_neighbours": 0, "max_depth": 4}, r"recipe.max_depth: .* there are none"),
        ({"facts_as": PrefixFacts.TEXT, "max_depth": 4}, r"recipe.max_depth: .* there are none"),
    ],
)
def test_a_recipe_out_of_bounds_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        recipe(**changes)


def test_a_name_that_could_not_stand_in_a_label_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"recipe.name: 'Mine, better' does not match"):
        Recipe("Mine, better")


def test_a_facts_line_may_hold_what_looks_like_a_place_for_text() -> None:
    when = datetime(2026, 5, 3, tzinfo=UTC)
    assert DEFAULT_RECIPE.render("{date} {text}", when) == "On 3 May 2026: {date} {text}\n"
    assert DEFAULT_RECIPE.render("{text}", None) == "{text}\n"
