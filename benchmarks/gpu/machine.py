"""Rows of figures that name the GPU they come from."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.rows import Row, make_rows


def gpu_rows(benchmark: str, figures: Iterable[Mapping[str, Any]]) -> list[Row]:
    """As `make_rows`, with GPU and driver in `hardware`."""
    rows = make_rows(benchmark, figures)
    gpu = {"gpu": torch.cuda.get_device_name(), "driver": _driver()}
    return [{**row, "hardware": {**gpu, **row["hardware"]}} for row in rows]


class ResultFile:
    """A list of rows that is whole after each `add`: a run cut short leaves what it measured."""

    def __init__(self, path: Path, **about: Any) -> None:
        """about: what every row of the run has in common."""
        self._path = path
        self._about = about
        self._rows: list[Row] = []

    def add(self, benchmark: str, figure: Mapping[str, Any]) -> None:
        """Prints it too."""
        print(figure, flush=True)
        make = gpu_rows if torch.cuda.is_available() else make_rows
        self._rows += make(benchmark, [{**self._about, **figure}])
        self._path.write_text(json.dumps(self._rows, indent=1))


@functools.cache
def _driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    return lines[0].strip()
