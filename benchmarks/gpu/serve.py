"""TTFT and throughput: injected against prefill and against the engine's own full prefix hit.

`python -m benchmarks.gpu.serve --model Llama-3.1-8B --out rows.json`

The three ways are interleaved request by request in one engine (`benchmarks.gpu.engine`). First
tokens want the host to themselves; `--ks` or `--clients` without numbers leaves that part out.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from benchmarks.gpu.busy import gpu_busy
from benchmarks.gpu.engine import FACT_TOKENS, HEADER_TOKENS, WAYS, Bench, ours
from benchmarks.gpu.gated import add_gate_argument, gate_passed
from benchmarks.gpu.machine import ResultFile
from benchmarks.gpu.shapes import write_config
from inferscale_core.vllm_connector.config import GPU_BLOCK_SIZE

ANSWER_TOKENS, CLIENT_FACTS = 50, 50
TEXT_PAIRS = 40
"""Of the interleaved rounds, those in which the prompt is also prefilled."""

SLOW_CLIENTS = 75
"""From here on prefill takes seconds a round and hardly varies: it is run once."""

MIN_ANSWERS = 240
"""Of injected prompts and of prefix hits: few clients are answered in a third of a second, and so
are asked more often."""


def ttft(bench: Bench, k: int, pairs: int) -> dict[str, Any]:
    for way in (*WAYS, "floor", *WAYS):
        bench.ask([bench.request(way, k)])
    bench.take_launch_ms()
    samples: dict[str, list[float]] = {way: [] for way in WAYS}
    for index in range(pairs):
        for way in WAYS if index % 2 else WAYS[::-1]:
            if way != "text" or index < TEXT_PAIRS:
                samples[way].append(bench.once(way, k))
    launches = bench.take_launch_ms()
    busy = {f"gpu_{way}": gpu_busy(bench, way, k) for way in WAYS}
    differences = sorted(i - f for i, f in zip(samples["injected"], samples["floor"], strict=True))
    return {
        "kind": "ttft",
        "k": k,
        "unit": "ms",
        "pairs": pairs,
        **{way: statistics.median(values) for way, values in samples.items()},
        "injected_minus_floor": statistics.median(differences),
        "launch_ms": statistics.median(launches),
        "injected_minus_floor_quartiles": [differences[pairs // 4], differences[3 * pairs // 4]],
        **busy,
    }


def throughput(bench: Bench, clients: int, k: int, rounds: int) -> dict[str, Any]:
    """rounds: at least; of prefill at most."""
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    text_rounds = rounds if clients < SLOW_CLIENTS else 1
    for index in range(max(rounds, -(-MIN_ANSWERS // clients))):
        for way in WAYS if index % 2 else WAYS[::-1]:
            if way != "text" or index < text_rounds:
                if way == "floor":
                    together(bench, way, clients, k, 1)  # Fills the prefix cache, if it is not.
                seconds[way].append(together(bench, way, clients, k, ANSWER_TOKENS))
    rates = {way: clients / statistics.median(values) for way, values in seconds.items()}
    return {
        "kind": "throughput",
        "clients": clients,
        "k": k,
        "unit": "requests/s",
        "rounds": len(seconds["injected"]),
        **rates,
    }


def together(bench: Bench, way: str, clients: int, k: int, max_tokens: int) -> float:
    """Seconds until `clients` requests that come at once are all answered."""
    asks = [bench.request(way, k, client, max_tokens) for client in range(clients)]
    answers = bench.ask(asks)
    if max_tokens > 1:
        for output in answers.outputs:
            bench.check(way, HEADER_TOKENS + k * FACT_TOKENS, output)
    return answers.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ks", type=int, nargs="*", default=[5, 10, 20, 50, 130])
    parser.add_argument("--clients", type=int, nargs="*", default=[10, 25, 50, 75, 100, 200])
    parser.add_argument("--storage", default="cache")
    parser.add_argument("--block-size", type=int, default=GPU_BLOCK_SIZE)
    parser.add_argument(
        "--step-tokens", type=int, default=2048, help="computed in one step at most"
    )
    parser.add_argument("--gpus", type=int, default=1, help="tensor-parallel ranks")
    add_gate_argument(parser)
    arguments = parser.parse_args()
    gate = gate_passed(arguments.gate)
    model = write_config(arguments.model)
    bench = Bench(
        model,
        ours(4 << 30, storage=arguments.storage),
        block_size=arguments.block_size,
        max_num_batched_tokens=arguments.step_tokens,
        memory_share=0.8,
        tensor_parallel_size=arguments.gpus,
    )
    bench.encode(max([*arguments.ks, CLIENT_FACTS]) + 20)
    results = ResultFile(
        arguments.out,
        model=arguments.model,
        storage=arguments.storage,
        gpus=arguments.gpus,
        step_tokens=arguments.step_tokens,
        **bench.engine_settings(),
        **gate,
    )
    for k in arguments.ks:
        results.add("gpu_ttft", ttft(bench, k, arguments.pairs))
    for clients in arguments.clients:
        results.add("gpu_throughput", throughput(bench, clients, CLIENT_FACTS, arguments.rounds))


if __name__ == "__main__":
    main()
