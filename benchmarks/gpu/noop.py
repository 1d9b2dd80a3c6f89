"""What a connector costs that does nothing: `python -m benchmarks.gpu.noop --out rows.json`.

Three engines, each in a process of its own on the same GPU, answer in turns the same full prefix
hit: one without a connector, one with a connector that does nothing, one with ours loaded and not
asked for anything. Only one of them has a request at any time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)

from benchmarks.gpu.engine import FACT_TOKENS, Bench, Connector, ours
from benchmarks.gpu.machine import ResultFile
from benchmarks.gpu.shapes import write_config
from inferscale_core.ids import ChunkKey

KINDS = ("none", "no_op", "ours")
READY = "ready"


class NoOpConnector(KVConnectorBase_V1, SupportsHMA):
    """Every method that vLLM demands, empty."""

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None: ...

    def wait_for_layer_load(self, layer_name: str) -> None: ...

    def save_kv_layer(self, *arguments: Any, **kwargs: Any) -> None: ...

    def wait_for_save(self) -> None: ...

    def get_num_new_matched_tokens(self, request: Any, num_computed: int) -> tuple[int, bool]:
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external: int) -> None: ...

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return False, None


def connector(kind: str) -> Connector | None:
    if kind == "ours":
        return ours(1 << 30)
    return Connector("NoOpConnector", "benchmarks.gpu.noop", {}) if kind == "no_op" else None


def serve(kind: str, model: Path) -> None:
    """Answer one full prefix hit for every line that comes in: its `k`, and milliseconds back."""
    bench = Bench(model, connector(kind), memory_share=0.25)
    for _ in range(200):
        bench.facts.append((ChunkKey(""), bench.tokens(FACT_TOKENS)))
    print(READY, flush=True)
    for line in sys.stdin:
        k = int(line)
        ask = bench.request("floor", k)
        answers = bench.ask([ask])
        print(json.dumps(answers.first_s[0] * 1e3), flush=True)


class Child:
    """One engine in a process of its own. Ends with `close`."""

    def __init__(self, kind: str, model: Path) -> None:
        module = "benchmarks.gpu.noop"
        command = [sys.executable, "-m", module, "--serve", kind, "--model", str(model)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        while self._line() != READY:
            pass

    def once(self, k: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{k}\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line: str = self._process.stdout.readline()
        if not line:
            raise RuntimeError("an engine ended before it was ready")
        return line.strip()


def measure(children: dict[str, Child], k: int, rounds: int) -> dict[str, Any]:
    samples: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for index in range(rounds + 5):
        for kind in KINDS if index % 2 else KINDS[::-1]:
            elapsed = children[kind].once(k)
            if index >= 5:
                samples[kind].append(elapsed)
    medians = {kind: statistics.median(values) for kind, values in samples.items()}
    added = {
        f"{kind}_minus_none": statistics.median(
            a - b for a, b in zip(samples[kind], samples["none"], strict=True)
        )
        for kind in KINDS[1:]
    }
    return {"kind": "no_op", "k": k, "unit": "ms", "rounds": rounds, **medians, **added}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="Llama-3.1-8B")
    parser.add_argument("--serve", choices=KINDS, help="be one of the engines")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, Path(arguments.model))
        return
    model = write_config(arguments.model)
    children = {kind: Child(kind, model) for kind in KINDS}
    results = ResultFile(arguments.out, model=arguments.model)
    for k in (5, 50):
        results.add("gpu_no_op", measure(children, k, arguments.rounds))
    for child in children.values():
        child.close()


if __name__ == "__main__":
    main()
