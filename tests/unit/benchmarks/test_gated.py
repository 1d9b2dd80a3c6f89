"""Figures of a GPU are taken only where a gate of the same code and machine has passed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import gated
from benchmarks.gpu.machine import digest_of

HERE = {"code": "c0de", "versions": {"vllm": "1"}, "hardware": {"gpu": "G", "driver": "5"}}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gated, "gpu_rows", lambda benchmark, figures: [dict(HERE) for _ in figures])


def gate(folder: Path, *rows: dict[str, Any]) -> Path:
    passed = {"selection": "llama", "passed": 14, "failed": 0}
    path = folder / "gate.json"
    path.write_text(json.dumps([{**HERE, **passed, **row} for row in rows]))
    return path


def test_what_passed_is_said_in_every_row(tmp_path: Path) -> None:
    assert gated.gate_passed([gate(tmp_path, {}, {"passed": 5})] * 2) == {"gate": 38}


def test_a_run_without_a_gate_says_so() -> None:
    assert gated.gate_passed([]) == {"gate": None}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"failed": 1}, "not passed: .*llama"),
        ({"passed": 0}, "not passed: .*llama"),
        ({"code": "other"}, "another code"),
        ({"versions": {"vllm": "2"}}, "another versions"),
        ({"hardware": {"gpu": "H", "driver": "5"}}, "another hardware"),
    ],
)
def test_nothing_is_timed_behind_another_gate(
    tmp_path: Path, row: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SystemExit, match=reason):
        gated.gate_passed([gate(tmp_path, {}), gate(tmp_path, {}, row)])


def test_nothing_is_timed_behind_an_empty_gate(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no test"):
        gated.gate_passed([gate(tmp_path)])


def test_code_has_one_digest_wherever_it_lies_until_it_changes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name / "kv").mkdir(parents=True)
        (tmp_path / name / "kv" / "pages.py").write_text("SIZE = 4\n")
        (tmp_path / name / "kv" / f"{name}.pyc").write_text(name)
    here = digest_of(tmp_path / "one")
    assert digest_of(tmp_path / "other") == here
    (tmp_path / "other" / "kv" / "pages.py").write_text("SIZE = 8\n")
    assert digest_of(tmp_path / "other") != here
    (tmp_path / "one" / "kv" / "pages.py").rename(tmp_path / "one" / "pages.py")
    assert digest_of(tmp_path / "one") != here
