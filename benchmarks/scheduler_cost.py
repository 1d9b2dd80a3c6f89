"""What one request costs the host because of us: `python -m benchmarks.scheduler_cost`.

    params    to `kv_transfer_params`, in the worker's process
    engine    vLLM's own handling of them: checked, packed, unpacked; less that of a request without
    parse     `on_new_request`
    match     `get_num_new_matched_tokens`
    plan      `update_state_after_alloc`: pins, slots of every token
    step      `build_connector_meta`: captures are planned here
    launch    in a rank, from the step's metadata to the list of copies that goes to the device
    done      `update_connector_output` and `request_finished`

A chat over k facts, and an encode request behind the header and 32 facts. Plain Python and numpy,
so it is the same code on any machine; the time is this machine's. Cold: the processor's caches are
filled with something else before each request, as a step of the engine does.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from vllm import SamplingParams
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

from benchmarks.host_table import PARTS, host_table
from benchmarks.rows import make_rows, replace_rows
from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.kv.rows import LayerShape
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Span
from inferscale_core.vllm_connector.config import ConnectorConfig
from inferscale_core.vllm_connector.metadata import StepDone
from inferscale_core.vllm_connector.params import Capture, RequestParams
from inferscale_core.vllm_connector.scheduler_side import SchedulerSide
from inferscale_core.vllm_connector.sinks import MemorySink
from inferscale_core.vllm_connector.staging import plain_lines

FACT_TOKENS, NEW_TOKENS, TAIL_TOKENS, BLOCK = 30, 28, 64, 16
NEIGHBOURS = 32
REPEATS = 200
CACHE_BYTES = 64 << 20
"""More than a core's share of any cache."""


class Parts:
    """Seconds that each part of each request took."""

    def __init__(self) -> None:
        self._samples: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._samples[part].append(time.perf_counter() - started)

    def samples(self, part: str) -> list[float]:
        return self._samples[part]

    def medians_us(self) -> dict[str, float]:
        return {part: statistics.median(self._samples[part]) * 1e6 for part in PARTS}


def side_with_facts(count: int) -> tuple[SchedulerSide, tuple[Span, ...]]:
    config = ConnectorConfig(
        layer_names=("layer",),
        layers=(LayerShape(8, 128),),
        group_of_layer=(0,),
        windows=(None,),
        dtype=torch.bfloat16,
        block_size=BLOCK,
        page_tokens=4,
        num_pages=16 * count + 8 * REPEATS,
        event_endpoint=None,
    )
    side = SchedulerSide(config, MemorySink())
    spans = []
    for index in range(count):
        key = ChunkKey(f"tenant/{'u' * 32}/{index:032d}")
        entry = side.directory.reserve(
            key, FACT_TOKENS, origin=100, fact=FactRef(FactId(key), 1), prefix_keys=()
        )
        assert entry is not None
        side.directory.publish(entry)
        spans.append(Span(key, FACT_TOKENS))
    return side, tuple(spans)


class Requests:
    """One request after the other, each alone in its step, through all that vLLM calls."""

    def __init__(self, num_spans: int, *, captures: bool) -> None:
        self.side, self._spans = side_with_facts(num_spans)
        self._captures = captures
        self._num_computed = num_spans * FACT_TOKENS
        self._num_tokens = self._num_computed + (NEW_TOKENS if captures else TAIL_TOKENS)
        self._encoder, self._decoder = MsgpackEncoder(), MsgpackDecoder(SamplingParams)
        # Not of one run, as nothing in a busy engine is.
        blocks = np.random.default_rng(0).permutation(10_000)[: -(-self._num_tokens // BLOCK)]
        self._blocks = (blocks.tolist(),)

    def one(self, name: str, parts: Parts) -> None:
        side = self.side
        blocks: Any = SimpleNamespace(get_block_ids=lambda: self._blocks)
        params = self._params(name)
        with parts.time("params"):
            wire = params.to_wire()
        with parts.time("engine"):
            self.through_engine({"kv_transfer_params": wire})
        request: Any = SimpleNamespace(
            request_id=name,
            kv_transfer_params=wire,
            num_prompt_tokens=self._num_tokens,
            lora_request=None,
        )
        with parts.time("parse"):
            side.new_request(request)
        with parts.time("match"):
            injected = side.matched_tokens(request, 0)
        assert injected == self._num_computed, "every chunk is in the arena"
        with parts.time("plan"):
            side.allocated(request, blocks, injected)
        output = self._scheduled(name)
        with parts.time("step"):
            step = side.build_step(output)
        with parts.time("launch"):
            for copies in filter(None, (step.inject, step.capture)):
                plain_lines(copies, 1)
        done: Any = SimpleNamespace(kv_connector_worker_meta=StepDone([step.step_id]))
        with parts.time("done"):
            side.step_done(done)
            side.finished(request)
        assert len(step.capture) == self._captures

    def one_without(self, parts: Parts) -> None:
        """The engine's part of a request that tells the connector nothing."""
        self._params("without").to_wire()
        with parts.time("engine"):
            self.through_engine(None)

    def through_engine(self, extra_args: dict[str, Any] | None) -> None:
        """Between the worker's call and the scheduler's first."""
        sampling = SamplingParams(max_tokens=1, extra_args=extra_args, skip_clone=True)
        self._decoder.decode(self._encoder.encode(sampling.clone()))

    def _params(self, name: str) -> RequestParams:
        if not self._captures:
            return RequestParams(name, self._spans)
        key = ChunkKey(f"tenant/{'u' * 32}/{name:>032}")
        seen = tuple(span.key for span in self._spans)
        fact = FactRef(FactId(name), 1)
        capture = Capture(key, self._num_computed, NEW_TOKENS, seen, fact, 0)
        return RequestParams(name, self._spans, capture)

    def _scheduled(self, name: str) -> Any:
        new = SimpleNamespace(
            req_id=name, block_ids=self._blocks, num_computed_tokens=self._num_computed
        )
        cached = SimpleNamespace(
            req_ids=[], new_block_ids=[], num_computed_tokens=[], resumed_req_ids=set()
        )
        return SimpleNamespace(
            scheduled_new_reqs=[new],
            scheduled_cached_reqs=cached,
            num_scheduled_tokens={name: self._num_tokens - self._num_computed},
        )


def measure(num_spans: int, *, captures: bool, is_cold: bool) -> dict[str, float]:
    """Median microseconds of each part; of "engine", less those of a request without params."""
    requests, parts, without = Requests(num_spans, captures=captures), Parts(), Parts()
    other = np.ones(CACHE_BYTES // 8)
    for index in range(REPEATS):
        for is_ours in (False, True):
            if is_cold:
                other += 1.0
            if is_ours:
                requests.one(f"r{index}", parts)
                continue
            requests.one_without(without)
    medians = parts.medians_us()
    medians["engine"] -= statistics.median(without.samples("engine")) * 1e6
    return medians


def main() -> None:
    figures = []
    for is_cold in (True, False):
        requests = [(f"chat, k = {k}", k + 1, False) for k in (5, 10, 20, 50, 130)]
        for name, num_spans, captures in [*requests, ("encode", NEIGHBOURS + 1, True)]:
            medians = measure(num_spans, captures=captures, is_cold=is_cold)
            caches = "cold" if is_cold else "warm"
            rounded = {part: round(value, 1) for part, value in medians.items()}
            total = round(sum(medians.values()), 1)
            figures.append({"request": name, "caches": caches, **rounded, "all": total})
    rows = make_rows("host_cost", figures)
    replace_rows(rows)
    print(host_table(rows))


if __name__ == "__main__":
    main()
