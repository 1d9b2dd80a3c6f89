"""Exactness on this GPU, before anything is timed: `python -m benchmarks.gpu.gate --out rows.json`.

The tests of `tests/exactness` on tiny models: every model in every layout that the engine's
attention has (NHD, HND), several engines at a time. In bfloat16 that is FlashAttention 3; in
float32, which it does not take, vLLM's Triton kernels, and the limit is far below any rounding of
half precision. Engines are eager, as they then start in seconds, but for `--with-graphs`. A row
says what passed; the exit status is 1 when anything did not, and nothing is timed then
(`benchmarks.gpu.gated`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.machine import gpu_rows
from inferscale_core.vllm_connector.config import GPU_BLOCK_SIZE

LAYOUTS = ("NHD", "HND")
FOLDER = "tests/exactness"
PYTEST = (
    *("-m", "pytest", "-c", os.devnull, "--rootdir=.", f"--confcutdir={FOLDER}"),
    *("-p", "no:cacheprovider", "-q", "--tb=short"),
)


@dataclass(frozen=True)
class Part:
    """Tests of one file that `selection` (as of `pytest -k`) chooses, in one cache layout."""

    layout: str
    block_size: int
    file: str
    selection: str
    is_eager: bool = True


def parts(
    models: Sequence[str],
    dtype: str,
    files: Sequence[str],
    block_size: int,
    *,
    with_graphs: Sequence[str] = (),
) -> Iterator[Part]:
    """Every model in both layouts, then whole files that choose their models themselves, and models
    with torch.compile and CUDA graphs in the engine's own layout."""
    for model in with_graphs:
        test = f"{FOLDER}/test_injection_equals_prefill.py"
        yield Part(LAYOUTS[0], block_size, test, f"{model}-{dtype}", is_eager=False)
    for layout in LAYOUTS:
        for model in models:
            chosen = f"{model}-{dtype}"
            yield Part(layout, block_size, f"{FOLDER}/test_injection_equals_prefill.py", chosen)
        for given in files:
            file, _, selection = given.partition(":")
            yield Part(layout, block_size, f"{FOLDER}/{file}", selection or "not float32")


def run(part: Part, limit_s: float) -> dict[str, Any]:
    environment = {
        **os.environ,
        "VLLM_KV_CACHE_LAYOUT": part.layout,
        "INFERSCALE_TEST_BLOCK_SIZE": str(part.block_size),
        "INFERSCALE_TEST_EAGER": str(int(part.is_eager)),
        "NCCL_NVLS_ENABLE": "0",
        "TRITON_F32_DEFAULT": "ieee",  # Else attention in float32 has products of 10 bits.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # CUDA does not survive a fork.
    }
    command = [sys.executable, *PYTEST, part.file, "-k", part.selection]
    started = time.perf_counter()
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit_s
        )
        text = done.stdout
    except subprocess.TimeoutExpired as late:
        text = (late.stdout or b"").decode(errors="replace") + "\n1 error in time limit"
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", text)}
    row = {
        "kind": "gate",
        "layout": part.layout,
        "block_size": part.block_size,
        "tests": Path(part.file).stem,
        "selection": part.selection,
        "eager": part.is_eager,
        "passed": counts.get("passed", 0),
        "failed": counts.get("failed", 0) + counts.get("error", 0),
        "seconds": round(time.perf_counter() - started, 1),
    }
    if row["failed"] or not row["passed"]:
        print(text[-3000:], flush=True)
    print(row, flush=True)
    return row


def main() -> int:
    from tests.tiny_models import MODELS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=[*MODELS])
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--files", nargs="*", default=[], help="FILE or FILE:SELECTION")
    parser.add_argument("--with-graphs", nargs="*", default=["llama"], help="models")
    parser.add_argument("--block-size", type=int, default=GPU_BLOCK_SIZE)
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("--limit-s", type=float, default=240)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    work = list(
        parts(
            arguments.models,
            arguments.dtype,
            arguments.files,
            arguments.block_size,
            with_graphs=arguments.with_graphs,
        )
    )
    with ThreadPoolExecutor(arguments.at_once) as pool:
        figures = list(pool.map(lambda part: run(part, arguments.limit_s), work))
    arguments.out.write_text(json.dumps(gpu_rows("gpu_gate", figures), indent=1))
    return 1 if any(row["failed"] or not row["passed"] for row in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
