"""Rows of figures that name the GPU they come from."""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

import inferscale_core
from benchmarks.rows import Row, make_rows


def gpu_rows(benchmark: str, figures: Iterable[Mapping[str, Any]]) -> list[Row]:
    """As `make_rows`, with GPU and driver in `hardware`, and the `code` that was measured."""
    rows = make_rows(benchmark, figures)
    gpu = {"gpu": torch.cuda.get_device_name(), "driver": _driver()}
    hardware = [{**gpu, **row["hardware"]} for row in rows]
    return [
        {**row, "hardware": one, "code": code_digest()}
        for row, one in zip(rows, hardware, strict=True)
    ]


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
def code_digest() -> str:
    """Of the sources of `inferscale_core`."""
    return digest_of(Path(inferscale_core.__file__).parent)


def digest_of(package: Path) -> str:
    """Of its Python sources: the same wherever it lies, in a checkout, an archive or installed."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


@functools.cache
def _driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    return lines[0].strip()
