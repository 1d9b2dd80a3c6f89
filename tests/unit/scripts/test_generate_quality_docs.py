from __future__ import annotations

from typing import Any

import pytest

from scripts import generate_quality_docs as quality

PAGE = "before\n<!-- rows -->\nold\n<!-- end -->\nafter\n"


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
    assert page.startswith("before\n<!-- rows -->\n### Tiny-1.5B\n")
    assert page.endswith("<!-- end -->\nafter\n")
    assert "| `progressive-32` | cache | 28 | 4 | 20 |" in page
    assert "| `progressive-32` | cache | 5 | 0.500 [0.250, 0.750] of 3 |" in page
    assert "`inferscale eval locomo`, 2026-11-29" in page
    assert page.index("| `progressive-32` | cache | 5 |") < page.index("| `text` | – | 20 |")


def test_a_row_measured_again_takes_the_place_of_the_old_one() -> None:
    old = [row(f1=0.1), row("text"), row(k=50)]
    rows = quality.merged(old, [row(f1=0.2)])
    assert [(r["recipe"], r["k"], r["f1"]) for r in rows] == [
        ("text", 20, 0.25),
        ("progressive-32", 50, 0.25),
        ("progressive-32", 20, 0.2),
    ]


def test_a_check_fails_when_the_page_is_stale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quality, "read_rows", lambda: [row()])
    monkeypatch.setattr("sys.argv", ["generate_quality_docs.py", "--check"])
    assert quality.main() == 1
    assert "docs/quality.md" in capsys.readouterr().out
