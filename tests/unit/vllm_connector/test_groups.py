"""Several KV cache groups: layers follow their group's blocks, and windows give blocks up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.kernels.paged import PAD_SLOT
from inferscale_core.kv.rope import RotaryTable, apply, rotation
from inferscale_core.kv.rows import LayerShape, row_layout
from inferscale_core.kv.storage import Arena
from inferscale_core.kv.tiers import Place
from inferscale_core.memory.facts import FactRef
from inferscale_core.vllm_connector.blocks import token_copy
from inferscale_core.vllm_connector.config import ConnectorConfig
from inferscale_core.vllm_connector.copiers import TorchCopier
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.layout import PagedLayer
from inferscale_core.vllm_connector.metadata import StepDone
from inferscale_core.vllm_connector.params import Capture, RequestParams
from inferscale_core.vllm_connector.scheduler_side import SchedulerSide
from inferscale_core.vllm_connector.sinks import MemorySink

BLOCK, DIM = 4, 8
SHAPE = LayerShape(2, DIM)
WINDOW = 6


def config() -> ConnectorConfig:
    return ConnectorConfig(
        layer_names=("full", "window"),
        layers=(SHAPE, SHAPE),
        group_of_layer=(0, 1),
        windows=(None, WINDOW),
        dtype=torch.float32,
        block_size=BLOCK,
        page_tokens=4,
        num_pages=16,
        event_endpoint=None,
    )


class Engine:
    """The few calls of vLLM's scheduler that a request makes, with block ids of two groups."""

    def __init__(self) -> None:
        self.sink = MemorySink()
        self.side = SchedulerSide(config(), self.sink)

    def step(self, new: list[Any], scheduled: dict[str, int], running: list[Any] | None = None):
        running = running or []
        cached = SimpleNamespace(
            req_ids=[r.req_id for r in running],
            new_block_ids=[r.block_ids for r in running],
            num_computed_tokens=[r.num_computed_tokens for r in running],
            resumed_req_ids=set(),
        )
        output = SimpleNamespace(
            scheduled_new_reqs=new, scheduled_cached_reqs=cached, num_scheduled_tokens=scheduled
        )
        step = self.side.build_step(output)
        done = SimpleNamespace(kv_connector_worker_meta=StepDone([step.step_id]))
        self.side.step_done(done)
        return step

    def reasons(self) -> list[str]:
        return [e.fields["reason"] for e in self.sink.events if e.kind == "capture_refused"]


def request(params: RequestParams, num_tokens: int) -> Any:
    return SimpleNamespace(
        request_id=params.handle,
        kv_transfer_params=params.to_wire(),
        num_prompt_tokens=num_tokens,
        lora_request=None,
    )


def scheduled(handle: str, block_ids: tuple[list[int], ...] | None, num_computed: int) -> Any:
    return SimpleNamespace(req_id=handle, block_ids=block_ids, num_computed_tokens=num_computed)


def capture(start: int, num_tokens: int) -> RequestParams:
    fact = FactRef(FactId("f"), 1)
    return RequestParams("r", (), Capture(ChunkKey("t/u/x"), start, num_tokens, (), fact, 0))


def test_a_capture_takes_the_slots_of_each_group() -> None:
    engine = Engine()
    engine.side.new_request(request(capture(2, 6), 8))
    step = engine.step([scheduled("r", ([3, 5], [7, 2]), 0)], {"r": 8})
    [copy] = step.capture
    np.testing.assert_array_equal(copy.cache_slots[0], [14, 15, 20, 21, 22, 23])
    np.testing.assert_array_equal(copy.cache_slots[1], [30, 31, 8, 9, 10, 11])


@pytest.mark.parametrize(("computed_before", "is_refused"), [(7, False), (8, True)])
def test_a_capture_that_has_left_a_window_is_refused(
    computed_before: int, is_refused: bool
) -> None:
    """Captured from token 2: with 8 tokens computed, a window of 6 has given up tokens below 3."""
    engine = Engine()
    engine.side.new_request(request(capture(2, 10), 12))
    engine.step([scheduled("r", ([3, 5], [7, 2]), 0)], {"r": computed_before})
    blocks = ([6], [9])
    step = engine.step([], {"r": 12}, [scheduled("r", blocks, computed_before)])
    assert bool(step.capture) is not is_refused
    assert engine.reasons() == (["outside_window"] if is_refused else [])


def place_of(engine: Engine) -> Place:
    entry = engine.side.directory.get(ChunkKey("t/u/x"))
    assert entry is not None
    assert entry.gpu is not None
    return entry.gpu


def captured_place() -> Place:
    """Of a chunk of eight tokens."""
    engine = Engine()
    engine.side.new_request(request(capture(0, 8), 9))
    engine.step([scheduled("r", ([1, 2, 3], [4, 5, 6]), 0)], {"r": 9})
    return place_of(engine)


def test_an_injection_skips_the_blocks_that_a_window_has_given_up() -> None:
    place = captured_place()
    copy = token_copy("h", [place], ([9, 8], [0, 8]), BLOCK, range(0, 8))
    assert (copy.cache_slots[1][:BLOCK] == PAD_SLOT).all()
    assert (copy.cache_slots[1][BLOCK:] == np.arange(32, 36)).all()
    assert (copy.cache_slots[0] >= 0).all()


@pytest.mark.parametrize("positions", [range(7), range(9), range(2, 9)])
def test_chunks_that_hold_more_or_fewer_tokens_than_are_to_be_copied_are_refused(
    positions: range,
) -> None:
    place = captured_place()
    with pytest.raises(RuntimeError, match=r"chunks hold \d of \d tokens to copy"):
        token_copy("h", [place], ([9, 8, 7], [0, 8, 7]), BLOCK, positions)


class Writer:
    def do_kv_cache_update(self, layer, key, value, cache, slots) -> None:
        cache[slots // BLOCK, :, slots % BLOCK, :DIM] = key
        cache[slots // BLOCK, :, slots % BLOCK, DIM:] = value


def test_the_copier_follows_each_group_and_leaves_other_slots_alone() -> None:
    angles = torch.arange(32.0)[:, None] * torch.tensor([1.0, 0.1, 0.01, 0.001])
    table = RotaryTable(angles.cos(), angles.sin(), DIM, True)
    arena = Arena(16, row_layout((SHAPE, SHAPE), torch.float32), torch.device("cpu"))
    caches = [torch.full((10, 2, BLOCK, 2 * DIM), float("nan")) for _ in range(2)]
    attention = SimpleNamespace(impl=Writer())
    layers = [
        PagedLayer(name, attention, cache, SHAPE, BLOCK, group, "split_last")
        for group, (name, cache) in enumerate(zip(("full", "window"), caches, strict=True))
    ]
    copier = TorchCopier(arena, layers, [table, table])
    engine = Engine()
    engine.side.new_request(request(capture(0, 8), 9))
    [copy] = engine.step([scheduled("r", ([1, 2, 3], [4, 5, 6]), 0)], {"r": 9}).capture
    key, value = torch.randn(8, 2, DIM), torch.randn(8, 2, DIM)
    for layer in layers:
        slots = torch.from_numpy(copy.cache_slots[layer.group])
        layer.write(slots, apply(rotation(table, torch.arange(8)), key), value)
    copier.capture([copy])
    for cache in caches:
        cache.fill_(float("nan"))

    place = place_of(engine)
    move = token_copy("h", [place], ([9, 8, 7], [0, 8, 7]), BLOCK, range(0, 8))
    copier.inject([move])
    full, window = caches
    expected = apply(rotation(table, torch.arange(8)), key)
    torch.testing.assert_close(full[9, :, :, :DIM], expected[:4].transpose(0, 1))
    torch.testing.assert_close(window[8, :, :, :DIM], expected[4:].transpose(0, 1))
    assert window[[0, 9]].isnan().all(), "nothing is written where the window gave up its block"
    assert not full[[8, 9]].isnan().any()


def test_a_request_with_an_adapter_neither_takes_nor_gives_chunks() -> None:
    engine = Engine()
    asked = request(capture(0, 8), 9)
    asked.lora_request = object()
    engine.side.new_request(asked)
    assert engine.side.num_requests == 0
    assert engine.sink.events[-1].kind is EventKind.REJECTED
