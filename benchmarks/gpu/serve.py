"""TTFT and throughput: injected against prefill and against the engine's own full prefix hit.

`python -m benchmarks.gpu.serve --model Llama-3.1-8B --out rows.json`

One engine, our connector loaded, CUDA graphs and prefix caching on, true shape, random weights. The
three ways are interleaved request by request. "floor": the memory lies in vLLM's own prefix cache,
and the same tokens are computed as for "injected". Injected requests and prefills have a cache salt
that is used once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.machine import gpu_rows
from benchmarks.gpu.shapes import write_config
from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.plans import Span
from inferscale_core.vllm_connector.params import Capture, RequestParams

FACT_TOKENS, HEADER_TOKENS, TAIL_TOKENS = 30, 24, 64
WAYS = ("injected", "text", "floor")


class Bench:
    def __init__(self, model: Path, num_facts: int, arena_bytes: int) -> None:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        from vllm import LLM
        from vllm.config import KVTransferConfig

        module = "inferscale_core.vllm_connector"
        self.llm = LLM(
            str(model),
            load_format="dummy",
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=8192,
            max_num_seqs=256,
            max_num_batched_tokens=8192,
            gpu_memory_utilization=0.7,
            worker_extension_cls=f"{module}.extension.WorkerExtension",
            kv_transfer_config=KVTransferConfig(
                kv_connector="InferScaleConnector",
                kv_connector_module_path=f"{module}.connector",
                kv_role="kv_both",
                kv_connector_extra_config={"arena_bytes": arena_bytes},
            ),
        )
        print(self.llm.collective_rpc("inferscale_start"), flush=True)
        self.block_size = self.llm.llm_engine.vllm_config.cache_config.block_size
        self.rng = random.Random(0)
        self.numbers = itertools.count()
        self.vocab = self.llm.model_config.get_vocab_size()
        self.facts: list[tuple[ChunkKey, list[int]]] = []
        self._encode(num_facts)

    def tokens(self, count: int) -> list[int]:
        return [self.rng.randrange(100, self.vocab) for _ in range(count)]

    def ask(
        self, prompts: list[list[int]], params: list[Any], salts: list[str], max_tokens: int
    ) -> tuple[list[Any], dict[str, float], float]:
        """Adds all and steps until done; returns outputs and seconds to each first token."""
        from vllm import SamplingParams

        engine = self.llm.llm_engine
        started = time.perf_counter()
        first: dict[str, float] = {}
        done: dict[str, Any] = {}
        ids = [f"r{next(self.numbers)}" for _ in prompts]
        for request_id, prompt, param, salt in zip(ids, prompts, params, salts, strict=True):
            sampling = SamplingParams(
                temperature=0,
                max_tokens=max_tokens,
                min_tokens=max_tokens,
                ignore_eos=True,
                detokenize=False,
                extra_args={"kv_transfer_params": param.to_wire()} if param else None,
            )
            engine.add_request(
                request_id, {"prompt_token_ids": prompt, "cache_salt": salt}, sampling
            )
        while engine.has_unfinished_requests():
            for output in engine.step():
                now = time.perf_counter() - started
                first.setdefault(output.request_id, now)
                if output.finished:
                    done[output.request_id] = output
        seconds = time.perf_counter() - started
        # The engine may add a random suffix to a request's id.
        by_id = {name.partition("-")[0]: output for name, output in done.items()}
        return [by_id[request_id] for request_id in ids], first, seconds

    def _encode(self, count: int) -> None:
        lengths = [HEADER_TOKENS, *([FACT_TOKENS] * count)]
        for index, length in enumerate(lengths):
            key, part = ChunkKey(f"bench/user/{index}"), self.tokens(length)
            capture = Capture(key, 0, length, (), FactRef(FactId(str(index)), 1), 0)
            self.ask([part], [RequestParams(key, capture=capture)], [key], 1)
            self.facts.append((key, part))

    def request(
        self, way: str, k: int, client: int = 0
    ) -> tuple[list[int], RequestParams | None, str]:
        """Prompt, parameters and salt of one request over the header and k facts.

        Every client of "floor" has facts and a salt of its own, as every user has: clients that
        shared blocks would also share reads of them while decoding.
        """
        header, *facts = self.facts
        chooser = random.Random(client) if way == "floor" else self.rng
        chosen = [header, *chooser.sample(facts, k)]
        prompt = [token for _, part in chosen for token in part] + self.tokens(TAIL_TOKENS)
        if way == "injected":
            spans = tuple(Span(key, len(part)) for key, part in chosen)
            return prompt, RequestParams(f"h{next(self.numbers)}", spans), f"s{next(self.numbers)}"
        return prompt, None, f"floor-{client}" if way == "floor" else f"s{next(self.numbers)}"

    def once(self, way: str, k: int) -> float:
        prompt, params, salt = self.request(way, k)
        [output], first, _ = self.ask([prompt], [params], [salt], 1)
        memory = HEADER_TOKENS + k * FACT_TOKENS
        cached = output.num_cached_tokens or 0
        if way == "injected":
            assert cached == memory, (cached, memory)
        elif way == "floor":
            assert cached == memory // self.block_size * self.block_size, (cached, memory)
        else:
            assert cached == 0, cached
        return next(iter(first.values())) * 1e3

    def ttft(self, k: int, pairs: int) -> dict[str, Any]:
        for way in (*WAYS, "floor", *WAYS):
            prompt, params, salt = self.request(way, k)
            self.ask([prompt], [params], [salt], 1)
        samples: dict[str, list[float]] = {way: [] for way in WAYS}
        for index in range(pairs):
            order = WAYS if index % 2 else WAYS[::-1]
            for way in order:
                samples[way].append(self.once(way, k))
        difference = [i - f for i, f in zip(samples["injected"], samples["floor"], strict=True)]
        busy = {f"gpu_{way}": self.gpu_busy(way, k) for way in WAYS}
        return {
            "kind": "ttft",
            "k": k,
            "unit": "ms",
            "pairs": pairs,
            **{way: statistics.median(values) for way, values in samples.items()},
            "injected_minus_floor": statistics.median(difference),
            **busy,
        }

    def gpu_busy(self, way: str, k: int, repeats: int = 5) -> float:
        """Milliseconds of kernels and copies of one request, median of `repeats`."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        seen = []
        for _ in range(repeats):
            prompt, params, salt = self.request(way, k)
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                self.ask([prompt], [params], [salt], 1)
                torch.cuda.synchronize()
            seen.append(
                sum(
                    event.device_time_total
                    for event in profiler.events()
                    if str(event.device_type).endswith("CUDA")
                )
                / 1e3
            )
        return float(statistics.median(seen))

    def throughput(self, clients: int, k: int, rounds: int) -> dict[str, Any]:
        rates: dict[str, list[float]] = {way: [] for way in WAYS}
        self.together("floor", clients, k, 1)
        for _ in range(rounds):
            for way in WAYS:
                rates[way].append(clients / self.together(way, clients, k, 50))
        medians = {way: statistics.median(values) for way, values in rates.items()}
        return {"kind": "throughput", "clients": clients, "k": k, "unit": "requests/s", **medians}

    def together(self, way: str, clients: int, k: int, max_tokens: int) -> float:
        """Seconds until `clients` requests that come at once are all answered."""
        asks = [self.request(way, k, client) for client in range(clients)]
        prompts, params, salts = map(list, zip(*asks, strict=True))
        return self.ask(prompts, params, salts, max_tokens)[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--ks", type=int, nargs="+", default=[5, 10, 20, 50, 130])
    parser.add_argument("--clients", type=int, nargs="*", default=[10, 25, 50, 75, 100, 200])
    arguments = parser.parse_args()
    model = write_config(arguments.model, Path("/tmp/models"))
    bench = Bench(model, max(arguments.ks), 4 << 30)
    figures = []
    for k in arguments.ks:
        figures.append({"model": arguments.model, **bench.ttft(k, arguments.pairs)})
        print(figures[-1], flush=True)
    rows = gpu_rows("gpu_ttft", figures)
    figures = []
    for clients in arguments.clients:
        rounds = 3 if clients <= 50 else 2
        figures.append({"model": arguments.model, **bench.throughput(clients, 50, rounds)})
        print(figures[-1], flush=True)
    rows += gpu_rows("gpu_throughput", figures)
    arguments.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
