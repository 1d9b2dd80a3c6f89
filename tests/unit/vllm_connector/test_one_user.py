"""The last line before the arena: no request reads chunks of two users, or stores one user's facts
behind another's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.kv.rows import LayerShape
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Span
from inferscale_core.vllm_connector.config import ConnectorConfig
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.params import Capture, RequestParams
from inferscale_core.vllm_connector.scheduler_side import SchedulerSide
from inferscale_core.vllm_connector.sinks import MemorySink

HEADER, SPAN_TOKENS, NUM_PROMPT, BLOCK = "shared/header/h", 8, 100, 16
ROBIN, MIRA, OTHER_TENANT = "acme/robin", "acme/mira", "bolt/robin"


@pytest.fixture
def side() -> SchedulerSide:
    config = ConnectorConfig(
        layer_names=("layer",),
        layers=(LayerShape(1, 8),),
        group_of_layer=(0,),
        windows=(None,),
        dtype=torch.float32,
        block_size=BLOCK,
        page_tokens=4,
        num_pages=32,
        event_endpoint=None,
    )
    return SchedulerSide(config, MemorySink())


def store(side: SchedulerSide, keys: list[str]) -> None:
    for key in map(ChunkKey, keys):
        fact = FactRef(FactId(key), 1)
        entry = side.directory.reserve(key, SPAN_TOKENS, origin=0, fact=fact, prefix_keys=())
        assert entry is not None
        side.directory.publish(entry)


def ask(side: SchedulerSide, keys: list[str], capture: Capture | None = None) -> Any:
    spans = tuple(Span(ChunkKey(key), SPAN_TOKENS) for key in keys)
    request: Any = SimpleNamespace(
        request_id="x",
        kv_transfer_params=RequestParams("x", spans, capture).to_wire(),
        num_prompt_tokens=NUM_PROMPT,
        lora_request=None,
    )
    side.new_request(request)
    return request


@pytest.mark.parametrize(
    ("keys", "num_injected"),
    [
        ([], 0),
        ([HEADER], 1),
        ([f"{ROBIN}/a"], 1),
        ([HEADER, f"{ROBIN}/a", f"{ROBIN}/b"], 3),
        ([f"{ROBIN}/a", f"{MIRA}/a"], 1),
        ([HEADER, f"{ROBIN}/a", f"{ROBIN}/b", f"{OTHER_TENANT}/a", f"{ROBIN}/c"], 3),
        ([f"{ROBIN}/a", HEADER], 1),
        ([f"{ROBIN}/a", f"{ROBIN}2/a"], 1),
        ([f"{ROBIN}2/a", f"{ROBIN}/a"], 1),
    ],
)
@pytest.mark.parametrize("is_on_gpu", [True, False])
def test_chunks_of_one_user_alone_are_injected(
    side: SchedulerSide, keys: list[str], num_injected: int, is_on_gpu: bool
) -> None:
    """All of them are in the arena, or one behind them is not known."""
    store(side, keys)
    request = ask(side, keys if is_on_gpu else [*keys, f"{ROBIN}/unknown"])
    assert side.matched_tokens(request, 0) == SPAN_TOKENS * num_injected


@pytest.mark.parametrize(
    ("keys", "captured", "seen", "refused"),
    [
        ([HEADER, f"{ROBIN}/a"], f"{ROBIN}/x", [HEADER, f"{ROBIN}/a"], None),
        ([], f"{ROBIN}/x", [], None),
        ([], HEADER, [], None),
        ([HEADER, f"{ROBIN}/a"], f"{MIRA}/x", [HEADER, f"{ROBIN}/a"], "another_user"),
        ([f"{ROBIN}/a"], f"{OTHER_TENANT}/x", [], "another_user"),
        ([f"{ROBIN}/a"], f"{ROBIN}/x", [f"{MIRA}/a"], "another_user"),
        ([f"{ROBIN}/a"], HEADER, [f"{ROBIN}/a"], "another_user"),
    ],
)
def test_a_chunk_is_stored_behind_its_own_user_s_alone(
    side: SchedulerSide, keys: list[str], captured: str, seen: list[str], refused: str | None
) -> None:
    store(side, [*dict.fromkeys([*keys, *seen])])
    num_seen = SPAN_TOKENS * len(keys)
    fact = None if captured == HEADER else FactRef(FactId("f"), 1)
    key = ChunkKey(captured)
    capture = Capture(key, num_seen, SPAN_TOKENS, tuple(map(ChunkKey, seen)), fact, 0)
    request = ask(side, keys, capture)
    assert side.matched_tokens(request, 0) == num_seen
    block_ids = ([*range(1, 2 + NUM_PROMPT // BLOCK)],)
    blocks: Any = SimpleNamespace(get_block_ids=lambda: block_ids)
    side.allocated(request, blocks, num_seen)
    new = SimpleNamespace(req_id="x", block_ids=block_ids, num_computed_tokens=num_seen)
    cached = SimpleNamespace(
        req_ids=[], new_block_ids=[], num_computed_tokens=[], resumed_req_ids=set()
    )
    output: Any = SimpleNamespace(
        scheduled_new_reqs=[new],
        scheduled_cached_reqs=cached,
        num_scheduled_tokens={"x": NUM_PROMPT - num_seen},
    )
    step = side.build_step(output)
    sink: Any = side.sink
    refusals = [e.fields["reason"] for e in sink.events if e.kind is EventKind.CAPTURE_REFUSED]
    assert refusals == ([refused] if refused else [])
    assert len(step.capture) == (refused is None)
