"""Host cost of the scheduler side for one request: `python -m benchmarks.scheduler_cost`.

Plain Python and numpy, so it is the same code on any machine; the time is this machine's.
"""

from __future__ import annotations

import statistics
import time
from types import SimpleNamespace
from typing import Any

import torch

from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.kv.rows import LayerShape
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.plans import Span
from inferscale_core.vllm_connector.config import ConnectorConfig
from inferscale_core.vllm_connector.metadata import StepDone
from inferscale_core.vllm_connector.params import RequestParams
from inferscale_core.vllm_connector.scheduler_side import SchedulerSide
from inferscale_core.vllm_connector.sinks import MemorySink

FACT_TOKENS = 30


def side_with_facts(count: int) -> tuple[SchedulerSide, tuple[Span, ...]]:
    config = ConnectorConfig(
        layer_names=("layer",),
        layers=(LayerShape(8, 128),),
        group_of_layer=(0,),
        windows=(None,),
        dtype=torch.bfloat16,
        block_size=16,
        page_tokens=4,
        num_pages=16 * count,
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


def one_request(side: SchedulerSide, request: Any, blocks: Any) -> None:
    """What vLLM calls for one request that is admitted at once, and the end of its step."""
    side.new_request(request)
    injected = side.matched_tokens(request, 0)
    assert injected is not None, "every chunk is in the arena"
    side.allocated(request, blocks, injected)
    new = SimpleNamespace(req_id=request.request_id, num_computed_tokens=injected)
    cached = SimpleNamespace(
        req_ids=[], new_block_ids=[], num_computed_tokens=[], resumed_req_ids=set()
    )
    step = side.build_step(SimpleNamespace(scheduled_new_reqs=[new], scheduled_cached_reqs=cached))
    done = SimpleNamespace(kv_connector_worker_meta=StepDone([step.step_id]))
    side.step_done(done)
    side.finished(request)


def measure(k: int, repeats: int = 300) -> float:
    """Median milliseconds per request."""
    side, spans = side_with_facts(k + 1)
    tokens = (k + 1) * FACT_TOKENS
    blocks = SimpleNamespace(get_block_ids=lambda: (list(range(tokens // 16 + 8)),))
    samples = []
    for index in range(repeats):
        wire = RequestParams(f"h{index}", spans).to_wire()
        request = SimpleNamespace(
            request_id=f"r{index}",
            kv_transfer_params=wire,
            num_prompt_tokens=tokens + 64,
            lora_request=None,
        )
        started = time.perf_counter()
        one_request(side, request, blocks)
        samples.append((time.perf_counter() - started) * 1e3)
    return statistics.median(samples)


def main() -> None:
    for k in (5, 10, 20, 50, 130):
        print(f"k = {k:3d}: {measure(k):.3f} ms per request")


if __name__ == "__main__":
    main()
