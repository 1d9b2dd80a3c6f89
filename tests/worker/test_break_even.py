"""Below how much memory a prompt is served as text: found by timing the engine."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from inferscale_core.settings import WorkerSettings
from services.worker import break_even as module
from services.worker.break_even import LENGTHS, MEASURE_SCOPE, Sample, break_even
from services.worker.engine.protocol import EngineRequest
from services.worker.served import Serving
from tests.worker.conftest import FakeWorker, MakeWorker
from tests.worker.test_encode import encode, fill
from tests.worker.test_generate import chat, command, served_of, servings


def samples(*saved_ms: float) -> list[Sample]:
    return [Sample(n, 10.0 + ms, 10.0) for n, ms in zip(LENGTHS, saved_ms, strict=False)]


@pytest.mark.parametrize(
    ("saved_ms", "expected"),
    [
        ((1, 2, 3, 4, 5), 0),
        ((-1, 1, 3, 4, 5), 64 + 32 + 1),
        ((-1, -1, 3, 4, 5), 128 + 32 + 1),
        ((-1, 1, -1, 4, 5), 256 + 256 // 5 + 1),
        ((0, 1, 2, 3, 4), 65),
        ((-1, -1, -1, -1, -1), 1025),
        ((-1,), 65),
        ((), 0),
    ],
)
def test_the_break_even_lies_behind_the_last_length_that_saves_nothing(
    saved_ms: tuple[float, ...], expected: int
) -> None:
    assert break_even(samples(*saved_ms)) == expected


def pace(worker: FakeWorker, text_s: float, token_s: float, injected_s: float) -> None:
    """Make the fake engine take as long as these say: tokens beyond 128 cost `token_s` each."""

    def before(request: EngineRequest) -> None:
        num_tokens = len(request.token_ids)
        is_injected = bool(request.params.spans)
        seconds = injected_s if is_injected else text_s + max(0, num_tokens - 160) * token_s
        import time

        time.sleep(seconds)

    worker.engine.before = before


async def test_an_engine_is_measured_through_ordinary_requests_and_left_as_it_was(
    worker: FakeWorker,
) -> None:
    await worker.parts.header.ensure()
    pace(worker, text_s=0.002, token_s=0.00005, injected_s=0.004)
    found = await worker.parts.break_even.measure()
    assert [sample.num_tokens for sample in found] == list(LENGTHS)
    assert 128 < worker.parts.break_even.min_tokens < 256
    assert worker.parts.cache.status(None).min_injected_tokens == (
        worker.parts.break_even.min_tokens
    )
    assert worker.mirror.of_scope(MEASURE_SCOPE) == []
    assert worker.engine.directory.num_resident == 1, "the header"
    assert len(worker.reports) == 0


async def test_a_second_measurement_is_not_in_the_way_of_the_first(worker: FakeWorker) -> None:
    assert await worker.parts.break_even.measure()
    assert await worker.parts.break_even.measure()


async def test_no_round_begins_when_the_time_is_up(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUDGET_S", 0.0)
    found = await worker.parts.break_even.measure()
    timed = [r for r in worker.engine.requests if not r.params.capture and not r.params.forget]
    assert len(timed) == 2 * 2 * len(found)


async def test_lengths_that_an_engine_has_no_room_for_are_left_out(
    make_worker: MakeWorker,
) -> None:
    small = make_worker(max_model_len=300)
    assert [s.num_tokens for s in await small.parts.break_even.measure()] == [64, 128, 256]
    crowded = make_worker(num_pages=4 * 128 // 4)
    assert [s.num_tokens for s in await crowded.parts.break_even.measure()] == [64, 128]
    tiny = make_worker(max_model_len=90)
    assert await tiny.parts.break_even.measure() == ()
    assert tiny.engine.requests == []


async def test_an_engine_that_stores_nothing_is_left_unmeasured(worker: FakeWorker) -> None:
    worker.engine.before = lambda request: _fill_arena(worker, request)
    worker.parts.break_even.min_tokens = 7
    assert await worker.parts.break_even.measure() == ()
    assert worker.parts.break_even.min_tokens == 7
    assert worker.mirror.of_scope(MEASURE_SCOPE) == []


def _fill_arena(worker: FakeWorker, request: EngineRequest) -> None:
    if request.params.spans:
        for part in request.params.spans:
            if part.key in worker.mirror:
                worker.engine.evict(part.key)


async def both_ways(worker: FakeWorker, **fields: Any) -> tuple[EngineRequest, EngineRequest]:
    """The engine's request below and above the break-even."""
    break_even = worker.parts.break_even
    requests = []
    for min_tokens in (10_000, 0):
        break_even.min_tokens = min_tokens
        await chat(worker, **fields)
        requests.append(worker.engine.requests[-1])
    return requests[0], requests[1]


async def test_memory_below_the_break_even_is_served_as_text_with_the_same_tokens(
    worker: FakeWorker,
) -> None:
    fill(worker)
    await encode(worker)
    below, above = await both_ways(worker)
    assert below.token_ids == above.token_ids
    assert below.params.spans == ()
    assert above.params.spans


async def test_it_is_told_as_prefilled_and_counted_as_no_miss(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(worker)
    await encode(worker)
    misses: list[int] = []
    monkeypatch.setattr(worker.parts.generate._chunk_metrics, "miss", misses.append)
    worker.parts.break_even.min_tokens = 10_000
    events = await chat(worker)
    assert servings(served_of(events)) == [Serving.PREFILLED] * 4
    assert {fact.serving for fact in events[0].facts} == {Serving.PREFILLED}  # type: ignore[union-attr]
    assert events[0].not_resident == ()  # type: ignore[union-attr]
    assert misses == []


async def test_it_shares_blocks_with_text_and_never_with_injected_requests(
    worker: FakeWorker,
) -> None:
    fill(worker)
    await encode(worker)
    below, above = await both_ways(worker)
    text, _ = await both_ways(worker, inject=False)
    assert below.cache_salt == text.cache_salt
    assert below.cache_salt != above.cache_salt


async def test_what_counts_is_the_memory_that_would_be_injected(worker: FakeWorker) -> None:
    fill(worker)
    await encode(worker)
    served = served_of(await chat(worker))
    stored = served.tokens.injected_tokens
    worker.control.add("cold", "The spare key of Robin is blue and much else is not")
    for min_tokens, is_injected in ((stored, True), (stored + 1, False)):
        worker.parts.break_even.min_tokens = min_tokens
        await chat(worker, k=5)
        assert bool(worker.engine.requests[-1].params.spans) is is_injected


async def test_a_number_in_the_settings_is_taken_as_it_is(make_worker: MakeWorker) -> None:
    worker = make_worker(settings=WorkerSettings(min_injected_tokens=300))
    assert worker.parts.break_even.min_tokens == 300
    assert make_worker().parts.break_even.min_tokens == 0


async def test_an_engine_that_answers_others_injects_whatever_is_stored(
    worker: FakeWorker,
) -> None:
    fill(worker)
    await encode(worker)
    worker.parts.break_even.min_tokens = 10_000
    worker.engine.hold.clear()
    first = asyncio.create_task(chat(worker))
    while not worker.engine.num_running:
        await asyncio.sleep(0.001)
    second = asyncio.create_task(chat(worker))
    while worker.engine.num_running < 2:
        await asyncio.sleep(0.001)
    worker.engine.hold.set()
    await asyncio.gather(first, second)
    alone, beside_another = worker.engine.requests[-2:]
    assert not alone.params.spans
    assert beside_another.params.spans
    await chat(worker)
    assert not worker.engine.requests[-1].params.spans, "the two are over"


async def test_a_chat_that_is_left_counts_no_longer(worker: FakeWorker) -> None:
    fill(worker)
    await encode(worker)
    worker.parts.break_even.min_tokens = 10_000
    async with aclosing(worker.parts.generate(command(worker))) as events:
        await anext(events)
    await chat(worker)
    assert not worker.engine.requests[-1].params.spans
