"""That the event loop gets its turn, though threads and the garbage collector want theirs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from inferscale_core.vllm_connector.idle_heap import IdleHeap
from services.worker.activity import Activity

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that computes in Python keeps the event loop from its next callback. A chat has
some ten of them, so that with Python's 5 ms one beside a user who is being fetched takes longer by
up to 50 ms. Measured with benchmarks.large_user."""

IDLE_S = 1.0


@asynccontextmanager
async def prompt_turns(activity: Activity) -> AsyncIterator[None]:
    """Enter when all is loaded: it is not looked at again by the garbage collector."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    heap = IdleHeap()
    heap.settle()
    task = asyncio.create_task(_settle_when_idle(activity, heap))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        sys.setswitchinterval(before)


async def _settle_when_idle(activity: Activity, heap: IdleHeap) -> None:
    while True:
        await activity.idle_for(IDLE_S)
        heap.maybe()
        await activity.busy()
