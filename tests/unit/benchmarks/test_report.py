"""Tables and plot say what the rows say, and the committed ones are up to date."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.plot import LABEL_HEIGHT, LinePlot, Series
from benchmarks.report import document_with_tables, outputs, ttft_plot
from benchmarks.rows import make_rows, read_rows, replace_rows


def ttft_row(k: int, injected_s: float, text_s: float) -> dict[str, Any]:
    figures = {
        "k": k,
        "facts_injected": k,
        "tokens_injected": 30 * k,
        "tokens_prefilled": 40,
        "ttft_injected_s": injected_s,
        "ttft_text_s": text_s,
        "pairs": 5,
    }
    (row,) = make_rows("chat_ttft", [figures], model="some-model")
    return row


def test_committed_tables_and_plot_match_the_rows() -> None:
    for path, text in outputs().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run python -m benchmarks.report"


def test_every_committed_row_says_what_how_and_when() -> None:
    for row in read_rows():
        assert row["versions"]["vllm"]
        assert row["hardware"]["cores"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"])
        assert row["command"].startswith("python -m benchmarks.")


def test_a_table_is_written_between_its_marks_only() -> None:
    document = "before\n<!-- rows: chat_ttft -->\nold\n<!-- end -->\nafter\n"
    filled = document_with_tables(document, [ttft_row(50, 3.0, 24.0), ttft_row(5, 2.5, 5.0)])
    assert filled.startswith("before\n<!-- rows: chat_ttft -->\n| k |")
    assert filled.endswith("<!-- end -->\nafter\n")
    assert "| 50 | 50 | 1500 | 40 | 3.00 s | 24.00 s | 8.0× |" in filled
    assert "old" not in filled
    assert document_with_tables(filled, [ttft_row(5, 2.5, 5.0)]) != filled


def test_a_place_without_rows_says_so() -> None:
    filled = document_with_tables("<!-- rows: encode -->\n<!-- end -->", [])
    assert "Not measured yet" in filled


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        document_with_tables("<!-- rows: nonsense -->\n<!-- end -->", [{"benchmark": "nonsense"}])


def test_a_new_run_replaces_its_own_rows_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    replace_rows(make_rows("encode", [{"facts": 1}]), path)
    replace_rows([ttft_row(5, 1, 2), ttft_row(10, 1, 2)], path)
    replace_rows([ttft_row(20, 1, 2)], path)
    assert [row.get("k") for row in read_rows(path, "chat_ttft")] == [20]
    assert [row["facts"] for row in read_rows(path, "encode")] == [1]


def test_the_plot_draws_one_line_per_mode_and_slower_is_higher() -> None:
    svg = ElementTree.fromstring(ttft_plot([ttft_row(50, 3.0, 24.0), ttft_row(5, 2.5, 5.0)]))
    lines = svg.findall("{http://www.w3.org/2000/svg}polyline")
    injected, text = (
        [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        for line in lines
    )
    assert injected[0][0] < injected[1][0]
    assert text[1][1] < text[0][1] < injected[1][1] < injected[0][1]
    assert "24.0 at 50" in (svg.findtext("{http://www.w3.org/2000/svg}desc") or "")


def test_the_measured_rows_keep_what_the_first_page_shows() -> None:
    row_by_k = {row["k"]: row for row in read_rows(benchmark="chat_ttft")}
    few, many = row_by_k[5], row_by_k[50]
    assert all(row["facts_injected"] == k for k, row in row_by_k.items())
    assert many["ttft_text_s"] >= 6 * many["ttft_injected_s"]
    assert many["ttft_injected_s"] <= 1.3 * few["ttft_injected_s"]


def test_labels_of_lines_that_end_together_do_not_lie_on_each_other() -> None:
    series = [
        Series(name, ((5, 1.0), (50, y))) for name, y in (("a", 9.0), ("b", 9.1), ("c", 90.0))
    ]
    plot = LinePlot("title", "subtitle", "x", "y", tuple(series), unit=" ms")
    texts = list(ElementTree.fromstring(plot.svg()).iter("{http://www.w3.org/2000/svg}text"))
    at = {text.text or "": float(text.attrib["y"]) for text in texts}
    assert sorted(at, key=lambda text: at[text] if text in "abc" else -1)[-3:] == ["c", "b", "a"]
    assert at["a"] - at["b"] >= LABEL_HEIGHT
    assert at["9.0 ms"] - at["a"] == at["90.0 ms"] - at["c"] == 17
