from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inferscale_core.errors import InvalidInput
from inferscale_core.memory.recipe_files import (
    load_recipe,
    recipe_from_fields,
    recipe_from_text,
    recipe_to_fields,
)
from inferscale_core.memory.recipes import RECIPES, FactOrder, Recipe, Storage

TOML = """
name = "ours-24"
like = "progressive-16-recent-16"
num_neighbours = 24
fact_order = "arrival"
storage = "int8"
newest_facts = 1024
header = "What we know:\\n"
"""


def test_a_file_gives_the_fields_it_names_and_takes_the_others_from_the_recipe_it_is_like() -> None:
    recipe = recipe_from_text(TOML, is_json=False)
    assert recipe == Recipe(
        "ours-24",
        num_neighbours=24,
        num_recent=16,
        fact_order=FactOrder.ARRIVAL,
        newest_facts=1024,
        header="What we know:\n",
        storage=Storage.INT8,
    )


def test_without_a_base_what_is_left_out_has_its_default() -> None:
    assert recipe_from_fields({"name": "alone"}) == Recipe("alone")


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_every_recipe_can_be_written_to_a_file_and_read_again(
    recipe: Recipe, tmp_path: Path
) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(recipe_to_fields(recipe)))
    loaded = load_recipe(str(path))
    assert loaded == recipe
    assert loaded.hash == recipe.hash


def test_a_name_and_a_path_are_told_apart_by_their_end(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(TOML)
    assert load_recipe(str(path)).name == "ours-24"
    assert load_recipe("progressive-16") is RECIPES["progressive-16"]
    with pytest.raises(InvalidInput, match=r"recipe: '.*absent.toml' cannot be read"):
        load_recipe(str(tmp_path / "absent.toml"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, r"recipe.name: is missing"),
        ({"name": "x", "neighbours": 3}, r"recipe.neighbours: is not one of: name, with_header"),
        ({"name": "x", "num_neighbours": "3"}, r"recipe.num_neighbours: '3' is not of type int"),
        ({"name": "x", "num_neighbours": True}, r"recipe.num_neighbours: True is not of type int"),
        ({"name": "x", "num_neighbours": None}, r"recipe.num_neighbours: None is not of type int"),
        ({"name": "x", "num_neighbours": 300}, r"recipe.num_neighbours: 300 is not in 0..256"),
        ({"name": "x", "fact_order": "random"}, r"recipe.fact_order: 'random' is not one of: near"),
        ({"name": "x", "storage": 8}, r"recipe.storage: 8 is not one of: cache, fp8, int8, int4"),
        ({"name": "x", "with_header": 1}, r"recipe.with_header: 1 is not of type bool"),
        ({"name": "x", "like": "none"}, r"recipe: 'none' is not one of"),
        ({"name": "x", "like": 3}, r"recipe.like: 3 is not the name"),
        ({"name": 3}, r"recipe.name: 3 is not of type str"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_field_and_what_it_may_be(
    body: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        recipe_from_fields(body)


@pytest.mark.parametrize(
    ("text", "is_json", "message"),
    [("name =", False, "is not TOML"), ("{", True, "is not JSON"), ("[1]", True, "is not a table")],
)
def test_a_file_that_is_no_table_is_refused(text: str, is_json: bool, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        recipe_from_text(text, is_json=is_json)


def test_a_bound_that_may_be_absent_can_be_taken_away() -> None:
    fields: dict[str, Any] = {"name": "x", "like": "progressive-32-depth-8", "max_depth": None}
    assert recipe_from_fields(fields).hash == RECIPES["progressive-32"].hash


def test_a_storage_beside_the_name_changes_the_key_and_an_unknown_one_is_refused() -> None:
    plain, small = load_recipe("progressive-8"), load_recipe("progressive-8", "int8")
    assert (plain.storage, small.storage) == (Storage.CACHE, Storage.INT8)
    assert plain.hash != small.hash
    with pytest.raises(InvalidInput, match=r"recipe\.storage: 'int2' is not one of: cache, fp8"):
        load_recipe("progressive-8", "int2")
