"""Rows that a measuring program leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu.machine import ResultFile
from benchmarks.rows import read_rows


def test_a_run_cut_short_leaves_what_it_had_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.json"
    results = ResultFile(path, model="tiny")
    for k in (5, 50):
        results.add("gpu_ttft", {"k": k, "unit": "ms"})
        newest = read_rows(path, "gpu_ttft")[-1]
        assert (newest["model"], newest["k"]) == ("tiny", k)
        assert {"versions", "hardware", "date", "command"} <= newest.keys()
    assert [row["k"] for row in read_rows(path)] == [5, 50]
    assert "'k': 50" in capsys.readouterr().out
