from __future__ import annotations

from typing import Any

import pytest

from scripts import generate_quality_docs as quality

TARGETS = "before\n<!-- targets -->\nold\n<!-- end -->\n"
PAGE = f"{TARGETS}between\n<!-- rows -->\nold\n<!-- end -->\nafter\n"
DEFAULT = quality.COMPARED_WITH


def row(recipe: str = "progressive-32", k: int = 20, **changes: Any) -> quality.Row:
    figures = ("f1", "nll", "kl_first", "top1", "exact", "f1_to_text", "nll_to_text")
    return {
        "recipe": recipe,
        "k": k,
        "dtype": "" if recipe == "text" else "cache",
        "n": 8,
        **dict.fromkeys(figures, 0.25),
        **{f"{name}_interval": [0.2, 0.3] for name in figures},
        "f1_by_category": {"temporal": {"n": 3, "f1": 0.5, "f1_interval": [0.25, 0.75]}},
        "model_revision": "Tiny-1.5B@abc",
        "data": "d",
        "asked": "a",
        "date": "2026-11-29",
        "command": "inferscale eval locomo",
    } | changes


def test_without_rows_the_page_says_so() -> None:
    files = quality.rendered([], PAGE)
    assert files == {quality.PAGE: PAGE.replace("old\n", quality.NONE_YET)}


def test_every_model_has_a_table_a_plot_and_where_they_come_from() -> None:
    cost = {"facts": 10, "forwarded_tokens": 280, "waves": 4, "seconds": 0.5}
    rows = [row(), row("text"), row(model_revision="other@1"), row(k=5, encode=cost)]
    files = quality.rendered(rows, PAGE)
    page = files.pop(quality.PAGE)
    names = ("tiny-1-5b", "tiny-1-5b-nll", "other", "other-nll")
    assert [path.name for path in files] == [f"quality-{name}.svg" for name in names]
    assert all(text.startswith("<svg") for text in files.values())
    assert "between\n<!-- rows -->\n### Tiny-1.5B\n" in page
    assert page.endswith("<!-- end -->\nafter\n")
    assert "| `progressive-32` | cache | 28 | 4 | 20 |" in page
    assert "| `progressive-32` | cache | 5 | 0.500 [0.250, 0.750] of 3 |" in page
    assert "`inferscale eval locomo` with recipes, storages and k as in the tables, 2026" in page
    assert page.index("| `progressive-32` | cache | 5 |") < page.index("| `text` | – | 20 |")


def test_what_was_asked_of_other_data_stands_by_itself() -> None:
    cost = {"facts": 10_000, "forwarded_tokens": 280_000, "waves": 40, "seconds": 50.0}
    rows = [row(), row("text", data="more"), row(data="more", encode=cost), row("text")]
    files = quality.rendered(rows, PAGE)
    page = files.pop(quality.PAGE)
    names = ("tiny-1-5b", "tiny-1-5b-nll", "tiny-1-5b-10-000-facts", "tiny-1-5b-10-000-facts-nll")
    assert [path.name for path in files] == [f"quality-{name}.svg" for name in names]
    first, _, second = page.partition("### Tiny-1.5B, 10,000 facts\n")
    assert "data d, asked a" in first
    assert "data more" not in first
    assert "data more, asked a" in second
    assert "data d," not in second


def difference() -> quality.Row:
    figures = dict.fromkeys(("f1", "nll", "kl_first"), 0.1)
    return {"n": 8, **figures, **{f"{name}_interval": [0.0, 0.2] for name in figures}}


def compared(recipe: str, *names: str, **changes: Any) -> quality.Row:
    return row(recipe, compared={name: difference() for name in names}, **changes)


def comparisons(rows: list[quality.Row]) -> list[tuple[str, str, str]]:
    page = quality.rendered(rows, PAGE)[quality.PAGE]
    lines = page.partition("| compared with |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip(" `") for cell in line.split("|")[1:5]] for line in lines]
    return [(recipe, storage, other) for recipe, storage, _, other in cells]


def test_a_recipe_is_compared_with_the_default_and_with_what_its_name_goes_on_from() -> None:
    rows = [
        compared(DEFAULT, "window-50", "progressive-32"),
        compared("progressive-32", "window-50", DEFAULT),
        compared("progressive-32-ours", "window-50", DEFAULT, "progressive-32"),
        compared("window-50", DEFAULT, "progressive-32"),
        compared("progressive-32", "window-50", DEFAULT, "progressive-32", dtype="int8"),
    ]
    assert comparisons(rows) == [
        (DEFAULT, "cache", "progressive-32"),
        ("progressive-32-ours", "cache", DEFAULT),
        ("progressive-32-ours", "cache", "progressive-32"),
        ("window-50", "cache", DEFAULT),
        ("progressive-32", "int8", "progressive-32"),
    ]


def test_a_recipe_that_was_compared_with_others_only_is_shown_beside_these() -> None:
    rows = [compared("running-sequence", "header-only", "window-50")]
    assert comparisons(rows) == [
        ("running-sequence", "cache", "header-only"),
        ("running-sequence", "cache", "window-50"),
    ]


def test_commands_that_differ_in_what_the_tables_tell_are_one() -> None:
    command = "inferscale eval locomo --out scores"
    rows = [
        row(command=f"{command} --k 20,50 --recipes a,b"),
        row(k=50, command=f"{command} --recipes c --storage int8 --k 20 --text-again"),
        row(k=5, command=f"{command} --recipes a --part 1/3"),
    ]
    page = quality.rendered(rows, PAGE)[quality.PAGE]
    assert page.count(command) == 2
    assert f"`{command}` with recipes" in page
    assert f"`{command} --part 1/3` with recipes" in page


def test_what_is_wanted_stands_where_the_page_has_room_for_it() -> None:
    page = quality.rendered([compared(DEFAULT, "window-50", k=50)], PAGE)[quality.PAGE]
    assert "<!-- targets -->\n**Tiny-1.5B**\n\n| recipe | storage | missed |" in page
    assert quality.rendered([row()], PAGE)[quality.PAGE].count(quality.NONE_YET) == 1


def test_a_plot_shows_what_was_asked_at_every_k() -> None:
    rows = [row("text"), row("text", k=50), row(), row(k=50), row("window-0")]
    files = quality.rendered(rows, PAGE)
    [picture] = [text for path, text in files.items() if path.name == "quality-tiny-1-5b.svg"]
    assert ">progressive-32<" in picture
    assert "window-0" not in picture


def test_the_fastest_encoding_of_a_recipe_is_shown() -> None:
    costs = [
        {"facts": 10, "forwarded_tokens": 20_000, "waves": 4, "seconds": seconds}
        for seconds in (0.5, 0.1, 0.4)
    ]
    rows = [row(k=k, encode=cost) for k, cost in zip((5, 10, 20), costs, strict=True)]
    page = quality.rendered(rows, PAGE)[quality.PAGE]
    assert "| `progressive-32` | cache | 2,000 | 4 | 100 |" in page


def test_a_row_measured_again_takes_the_place_of_the_old_one() -> None:
    old = [row(f1=0.1), row("text"), row(k=50)]
    rows = quality.merged(old, [row(f1=0.2)])
    # Which data a model was asked first must not change.
    assert [(r["recipe"], r["k"], r["f1"]) for r in rows] == [
        ("progressive-32", 20, 0.2),
        ("text", 20, 0.25),
        ("progressive-32", 50, 0.25),
    ]


def test_a_check_fails_when_the_page_is_stale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quality, "read_rows", lambda: [row()])
    monkeypatch.setattr("sys.argv", ["generate_quality_docs.py", "--check"])
    assert quality.main() == 1
    assert "docs/quality.md" in capsys.readouterr().out
