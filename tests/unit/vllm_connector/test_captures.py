"""A capture is worth something only while every chunk that it saw can be found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Span
from inferscale_core.vllm_connector.params import Capture, RequestParams
from tests.unit.vllm_connector.test_groups import Engine, request, scheduled

SCOPE = UserScope("t/u")
SEEN, NEW = ChunkKey("t/u/seen"), ChunkKey("t/u/new")
BLOCKS = ([1, 2], [3, 4])


def store(engine: Engine, key: ChunkKey) -> None:
    fact = FactRef(FactId(key), 1)
    entry = engine.side.directory.reserve(key, 4, origin=0, fact=fact, prefix_keys=())
    assert entry is not None
    engine.side.directory.publish(entry)


@pytest.mark.parametrize("is_back", [False, True])
@pytest.mark.parametrize("is_lost", [False, True])
def test_what_is_lost_between_injection_and_capture_is_missed(is_lost: bool, is_back: bool) -> None:
    """The plan is of the version that the forget is of, so no fence stops it."""
    engine = Engine()
    store(engine, SEEN)
    capture = Capture(NEW, 4, 4, (SEEN,), FactRef(FactId("new"), 1), planned_version=2)
    asked = request(RequestParams("r", (Span(SEEN, 4),), capture), 8)
    engine.side.new_request(asked)
    assert engine.side.matched_tokens(asked, 0) == 4
    blocks: Any = SimpleNamespace(get_block_ids=lambda: BLOCKS)
    engine.side.allocated(asked, blocks, 4)
    if is_lost:
        engine.side.directory.forget(SCOPE, [FactId(SEEN)], 2)
        if is_back:
            store(engine, SEEN)
    step = engine.step([scheduled("r", BLOCKS, 4)], {"r": 4})
    is_missed = is_lost and not is_back
    assert bool(step.capture) is not is_missed
    assert engine.reasons() == (["missing_prefix"] if is_missed else [])


def test_a_prefix_that_is_none_of_the_spans_is_looked_up() -> None:
    engine = Engine()
    store(engine, SEEN)
    capture = Capture(NEW, 4, 4, (ChunkKey("t/u/gone"),), FactRef(FactId("new"), 1), 2)
    asked = request(RequestParams("r", (Span(SEEN, 4),), capture), 8)
    engine.side.new_request(asked)
    assert engine.side.matched_tokens(asked, 0) == 4
    blocks: Any = SimpleNamespace(get_block_ids=lambda: BLOCKS)
    engine.side.allocated(asked, blocks, 4)
    assert not engine.step([scheduled("r", BLOCKS, 4)], {"r": 4}).capture
    assert engine.reasons() == ["missing_prefix"]
