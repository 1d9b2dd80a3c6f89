"""Metrics of a worker that serves many users: more counts, and no more series."""

from __future__ import annotations

from collections.abc import Iterable

from inferscale_core.ids import FactId
from inferscale_core.settings import WorkerSettings
from inferscale_core.telemetry import names
from services.worker.served import Serving
from tests.telemetry_capture import captured
from tests.worker.conftest import FakeWorker, MakeWorker
from tests.worker.test_generate import command

NUM_USERS = 5_000
FIRST = 50
"""More than the user cache holds, so that it has evicted before the first count."""


async def _serve(worker: FakeWorker, numbers: Iterable[int]) -> None:
    """Each user is encoded and asks; every tenth has a fact forgotten."""
    for number in numbers:
        user_id = f"user-{number}"
        worker.control.add("warm", f"Fact {number} is encoded", user_id)
        async for _ in worker.parts.encode(worker.control.at(user_id)):
            pass
        worker.control.add("cold", f"Fact {number} is not", user_id)
        async for _ in worker.parts.generate(command(worker, user=worker.control.at(user_id))):
            pass
        if number % 10 == 0:
            worker.control.remove("warm", user_id)
            await worker.parts.forget(worker.control.at(user_id), [FactId("warm")], [], [])
        worker.engine.requests.clear()


async def test_five_thousand_users_leave_as_many_series_as_fifty(make_worker: MakeWorker) -> None:
    worker = make_worker(settings=WorkerSettings(max_users_cached=20))
    with captured() as capture:
        await _serve(worker, range(FIRST))
        before = capture.values()
        await _serve(worker, range(FIRST, NUM_USERS))
        after = capture.values()
    assert set(after) == set(before)
    assert not any("user-" in str(series) for series in after)
    more = NUM_USERS - FIRST
    for series in (
        (names.CHAT_FACTS, ((names.SERVING, Serving.INJECTED.value),)),
        (names.CHAT_FACTS, ((names.SERVING, Serving.PREFILLED.value),)),
        (names.CHAT_STAGE, ((names.STAGE, names.PREFILL),)),
        (names.ENCODED_CHUNKS, ((names.OUTCOME, "done"),)),
        (names.CACHE_EVICTIONS, ((names.CACHE, "users"),)),
    ):
        assert after[series] - before[series] == more, series
