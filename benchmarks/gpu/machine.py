"""Rows of figures that name the GPU they come from."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from benchmarks.rows import Row, make_rows


def gpu_rows(benchmark: str, figures: Iterable[Mapping[str, Any]]) -> list[Row]:
    """As `make_rows`, with GPU and driver in `hardware`."""
    rows = make_rows(benchmark, figures)
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    gpu = {"gpu": torch.cuda.get_device_name(), "driver": driver.splitlines()[0].strip()}
    return [{**row, "hardware": {**gpu, **row["hardware"]}} for row in rows]
