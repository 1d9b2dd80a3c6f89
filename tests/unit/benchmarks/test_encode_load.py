"""The benchmark of encoding, rehearsed with a tiny model: all of it is injected and stored."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny_models import LLAMA


@pytest.mark.engine
def test_every_request_is_injected_and_every_chunk_stored(tmp_path: Path) -> None:
    model, out = LLAMA.save(tmp_path), tmp_path / "rows.json"
    command = [sys.executable, "-m", "benchmarks.gpu.encode_load", "--model", model]
    few = ["--clients", "2", "--neighbours", "2", "5", "--requests", "2", "--turns", "1"]
    small = ["--arena-bytes", str(64 << 20), "--block-size", "32"]

    subprocess.run([*command, *few, *small, "--out", out], check=True, timeout=300)

    rows = json.loads(out.read_text())
    assert [row["neighbours"] for row in rows] == [2, 5]
    assert {row["kind"] for row in rows} == {"encode_load"}
    assert all(row["injected"] > 0 and row["floor"] > 0 for row in rows)
