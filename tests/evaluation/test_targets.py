from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inferscale_core.memory.recipes import DEFAULT_RECIPE, recipe_by_name
from services.evaluation.figures import Row
from services.evaluation.targets import IN_ONE_CHAPTER, targets_table


def row(
    recipe: str = "ours",
    k: int = 50,
    dtype: str = "cache",
    *,
    f1: float = -0.004,
    f1_low: float = -0.015,
    nll: float = 0.01,
    above: float = 0.06,
    above_low: float = 0.04,
    n: int = 8,
) -> Row:
    return {
        "n": n,
        "recipe": recipe,
        "k": k,
        "dtype": dtype,
        "f1_to_text": f1,
        "f1_to_text_interval": [f1_low, 0.02],
        "nll_to_text": nll,
        "nll_to_text_interval": [-0.02, 0.04],
        "compared": {"window-50": {"f1": above, "f1_interval": [above_low, 0.08]}},
    }


def cells(table: str, line: int = 0) -> list[str]:
    return [cell.strip() for cell in table.splitlines()[2 + line].strip("|").split("|")]


def test_what_meets_all_that_is_wanted_has_nothing_bold() -> None:
    assert cells(targets_table([row(), row(k=20)])) == [
        *("`ours`", "cache", "0"),
        *("-0.40 [-1.50, +2.00]", "-0.40 [-1.50, +2.00]"),
        *("+0.010 [-0.020, +0.040]", "+0.010 [-0.020, +0.040]"),
        "+6.00 [+4.00, +8.00]",
    ]


@pytest.mark.parametrize(
    ("changes", "place", "text"),
    [
        ({"f1": -0.0101}, 4, "**-1.01** [-1.50, +2.00]"),
        ({"f1_low": -0.0202}, 4, "-0.40 [**-2.02**, +2.00]"),
        ({"nll": 0.031}, 6, "**+0.031** [-0.020, +0.040]"),
        ({"above": 0.049}, 7, "**+4.90** [+4.00, +8.00]"),
        ({"above_low": -0.001}, 7, "+6.00 [**-0.10**, +8.00]"),
    ],
)
def test_each_number_that_misses_is_bold_and_counted(
    changes: dict[str, Any], place: int, text: str
) -> None:
    found = cells(targets_table([row(**changes)]))
    assert (found[2], found[place]) == ("1", text)


def test_what_misses_least_stands_first_and_what_was_not_asked_stays_empty() -> None:
    table = targets_table([row("worse", k=20, nll=0.3), row("better"), row("text"), row(k=10)])
    assert len(table.splitlines()) == 2 + 2
    assert cells(table)[:4] == ["`better`", "cache", "0", "–"]
    assert cells(table, 1)[2:] == [
        *("1", "-0.40 [-1.50, +2.00]", "–", "**+0.300** [-0.020, +0.040]", "–", "–")
    ]


def test_the_default_is_marked_in_its_own_storage_alone() -> None:
    table = targets_table([row(DEFAULT_RECIPE.name), row(DEFAULT_RECIPE.name, dtype="int8")])
    assert cells(table)[0] == f"`{DEFAULT_RECIPE.name}` (default)"
    assert cells(table, 1)[0] == f"`{DEFAULT_RECIPE.name}`"


def test_what_the_default_is_for_users_of_one_chapter_is_marked_as_that() -> None:
    assert replace(DEFAULT_RECIPE, chapter=None).hash == recipe_by_name(IN_ONE_CHAPTER).hash
    [name, *_] = cells(targets_table([row(IN_ONE_CHAPTER)]))
    assert name == f"`{IN_ONE_CHAPTER}` (default, one chapter)"


def test_a_share_of_which_less_is_known_is_told_with_fewer_digits() -> None:
    table = targets_table([row(f1=-0.021) | {"digits": 3}])
    assert cells(table)[4] == "**-2.1** [-1.5, +2.0]"


def test_without_the_window_there_is_no_table() -> None:
    assert targets_table([row() | {"compared": {}}]) == ""


def test_of_a_model_that_was_not_trained_to_answer_the_likelihood_alone_counts() -> None:
    rows = [row(f1=-0.5, f1_low=-0.6, above=-0.1, above_low=-0.2), row(k=20, nll=0.04)]
    table = targets_table(rows, wants_f1=False)
    assert cells(table)[2] == "1"
    assert table.count("**") == 2
    assert "**+0.040**" in table


def test_what_was_asked_a_part_of_the_questions_alone_has_no_line() -> None:
    table = targets_table([row(), row("part", n=3), row(k=20), row("part", k=20, n=3)])
    assert "ours" in table
    assert "part" not in table


def test_the_window_itself_has_nothing_above_it_and_others_say_when_it_was_not_asked() -> None:
    alone = {**row("alone"), "compared": {}}
    window = {**row("window-50"), "compared": {}}
    table = targets_table([row(), alone, window])
    above = {cells(table, i)[0]: cells(table, i)[-1] for i in range(3)}
    assert above["`alone`"] == "not compared"
    assert above["`window-50`"] == "–"
