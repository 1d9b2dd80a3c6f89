"""How long an engine's GPUs work on a request: kernels and copies, by the profiler of every rank.

Ranks beyond the first are processes of their own, which only their own profiler sees. Operations
of several ranks are left out, in every way of serving alike: their kernels run for as long as they
wait for the other rank, whose host may be milliseconds behind.
"""

from __future__ import annotations

import re
import statistics
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.engine import Bench

OF_SEVERAL_RANKS = re.compile(r"nccl|cross_device_reduce|all_?reduce|all_?gather", re.IGNORECASE)
"""In names of kernels: NCCL's, vLLM's own for one host, torch's over symmetric memory."""

_open: list[Any] = []
"""Of this process."""


def gpu_busy(bench: Bench, way: str, k: int, repeats: int = 5) -> float:
    """Milliseconds of one request on the rank that is busy longest, median of `repeats`."""
    seen = []
    for _ in range(repeats):
        ask = bench.request(way, k)
        bench.llm.collective_rpc(begin)
        bench.ask([ask])
        seen.append(max(bench.llm.collective_rpc(end)))
    return float(statistics.median(seen))


def begin(worker: Any) -> None:
    """In a rank."""
    _settle()
    profiler: Any = profile(activities=[ProfilerActivity.CUDA])
    profiler.start()
    _open.append(profiler)


def end(worker: Any) -> float:
    """In a rank: milliseconds since `begin`."""
    _settle()
    profiler = _open.pop()
    profiler.stop()
    on_device = [e for e in profiler.events() if str(e.device_type).endswith("CUDA")]
    own = [event for event in on_device if not OF_SEVERAL_RANKS.search(event.name)]
    return float(sum(event.device_time_total for event in own) / 1e3)


def _settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
