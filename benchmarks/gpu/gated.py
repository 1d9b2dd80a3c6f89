"""Nothing is timed on code that was not found exact: rows of `benchmarks.gpu.gate` are asked for.

Which tests those are is for whoever runs the gate to choose, and stands in its rows.

    python -m benchmarks.gpu.gate --out gate.json
    python -m benchmarks.gpu.serve --gate gate.json ...
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.machine import gpu_rows

SAME = ("code", "versions", "hardware")
"""What a gate's rows must have in common with rows that are measured now."""


def add_gate_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gate",
        type=Path,
        nargs="+",
        default=[],
        help="rows of benchmarks.gpu.gate: of this code, on this machine",
    )


def gate_passed(paths: Sequence[Path]) -> dict[str, Any]:
    """For every row of a run: how many tests had passed before it; None when none were asked for.

    Raises SystemExit for a gate where something failed, and for one of other code or of another
    machine.
    """
    if not paths:
        return {"gate": None}
    rows = [row for path in paths for row in json.loads(path.read_text())]
    (here,) = gpu_rows("gpu_gate", [{}])
    failed = [row["selection"] for row in rows if row["failed"] or not row["passed"]]
    other = [name for name in SAME if any(row.get(name) != here.get(name) for row in rows)]
    if not rows or failed:
        raise SystemExit(f"--gate: nothing is timed, since not passed: {failed or 'no test'}")
    if other:
        raise SystemExit(f"--gate: nothing is timed, since the gate was of another {other[0]}")
    return {"gate": sum(row["passed"] for row in rows)}
