from __future__ import annotations

import asyncio
import gc
import sys

import pytest

from inferscale_core.vllm_connector.idle_heap import IdleHeap
from services.worker import turns
from services.worker.activity import Activity
from services.worker.turns import SWITCH_INTERVAL_S, prompt_turns


async def test_the_loop_waits_less_for_threads_and_the_collector_rests_when_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "IDLE_S", 0.0)
    settled = asyncio.Event()
    monkeypatch.setattr(IdleHeap, "maybe", lambda heap: settled.set())
    activity, before = Activity(), sys.getswitchinterval()
    try:
        with activity.open():
            async with prompt_turns(activity):
                assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
                assert gc.get_freeze_count() > 0
                await asyncio.sleep(0)
                assert not settled.is_set(), "somebody asks something"
        async with prompt_turns(activity):
            await asyncio.wait_for(settled.wait(), 5)
    finally:
        gc.unfreeze()
    assert sys.getswitchinterval() == before
