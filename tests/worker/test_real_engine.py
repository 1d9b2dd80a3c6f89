"""The worker on a real engine and over real gRPC.

One engine serves the module; each test has a user of its own.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import grpc.aio
import pytest
import pytest_asyncio

from inferscale_core.errors import InvalidInput, Unavailable
from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Span
from inferscale_core.rpc.pb.inferscale.v1 import common_pb2, worker_pb2
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.params import Capture, RequestParams
from services.worker.engine.protocol import EngineRequest, SamplingOptions
from tests.worker.real_worker import RealWorker, real_engine, real_worker
from tests.worker.test_encode import TEXTS

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealWorker]:
    async with (
        real_engine(tmp_path_factory.mktemp("models")) as running,
        real_worker(running) as worker,
    ):
        yield worker


async def test_injected_and_text_serve_the_same_prompt(worker: RealWorker) -> None:
    worker.fill("same")
    results = await worker.encode("same")
    assert len(results) == 12
    assert all(r.state == common_pb2.ENCODE_STATE_DONE for r in results.values())
    injected = await worker.chat("same", timed=True)
    text = await worker.chat("same", timed=True, mode=common_pb2.SERVING_MODE_TEXT)
    num_facts = sum(fact.num_tokens for fact in injected.served.facts)
    assert injected.usage.facts_injected == 12
    assert injected.usage.injected_tokens == worker.parts.rules.header_tokens + num_facts
    assert injected.usage.prompt_tokens == text.usage.prompt_tokens
    assert (text.usage.facts_prefilled, text.usage.injected_tokens) == (12, 0)
    assert injected.usage.native_hit_tokens == text.usage.native_hit_tokens == 0
    assert [f.memory_id for f in injected.served.facts] == [f.memory_id for f in text.served.facts]
    assert injected.served.timings.inject_ms > 0
    assert injected.done.usage.completion_tokens >= 1


async def test_a_fact_alone_in_a_memory_serves_injected_as_it_does_prefilled(
    worker: RealWorker,
) -> None:
    """Encoded behind the header alone and served so, its KV is that of prefill."""
    worker.fill("alone", TEXTS[:1])
    await worker.encode("alone")
    injected = await worker.chat("alone", timed=True)
    text = await worker.chat("alone", timed=True, mode=common_pb2.SERVING_MODE_TEXT)
    assert injected.usage.facts_injected == 1
    assert injected.text == text.text


async def test_a_text_request_is_not_served_from_injected_blocks(worker: RealWorker) -> None:
    worker.fill("hits")
    await worker.encode("hits")
    text_mode = common_pb2.SERVING_MODE_TEXT
    first = await worker.chat("hits")
    second = await worker.chat("hits")
    assert first.usage.native_hit_tokens == 0
    assert second.usage.native_hit_tokens > 0
    assert second.text == first.text
    assert second.usage.facts_native_hit > 0
    text = await worker.chat("hits", mode=text_mode)
    assert text.usage.native_hit_tokens == 0
    assert text.text == (await worker.chat("hits", mode=text_mode, timed=True)).text
    again = await worker.chat("hits", mode=text_mode)
    assert again.usage.native_hit_tokens > 0
    assert again.text == text.text


async def test_another_user_with_the_same_facts_is_not_served_from_ones_blocks(
    worker: RealWorker,
) -> None:
    for user_id in ("one", "two"):
        worker.fill(user_id, TEXTS)
        await worker.encode(user_id)
    await worker.chat("one")
    assert (await worker.chat("two")).usage.native_hit_tokens == 0


async def test_cold_facts_are_prefilled_behind_the_injected_ones(worker: RealWorker) -> None:
    worker.fill("mixed", TEXTS)
    await worker.encode("mixed")
    worker.control.add("cold", "The spare key is blue", "mixed")
    chat = await worker.chat("mixed")
    assert (chat.usage.facts_injected, chat.usage.facts_prefilled) == (8, 1)
    assert chat.served.facts[-1].memory_id == "cold"
    assert [fact.fact_id for fact in chat.events[0].not_resident] == ["cold"]


async def _run(worker: RealWorker, request: EngineRequest) -> EventKind | None:
    kinds = {EventKind.REJECTED, EventKind.CAPTURE_REFUSED, EventKind.SERVED}
    with worker.running.reports.follow(request.params.handle) as report:
        async for _ in worker.running.host.stream(request):
            pass
        event = await report.first_of(kinds, 2.0)
    return event.kind if event else None


async def test_requests_that_ask_for_nonsense_do_not_stop_the_engine(worker: RealWorker) -> None:
    key = ChunkKey("acme/nobody/1")
    fact = FactRef(FactId("f"), 1)
    bad = [
        RequestParams("bad1", spans=(Span(key, 3),)),
        RequestParams("bad2", spans=(Span(key, 3000),)),
        RequestParams("bad3", spans=(Span(key, 1), Span(key, 1))),
        RequestParams("bad4", capture=Capture(key, 4, 500, (), fact, 0)),
        RequestParams("bad5", capture=Capture(key, 2, 2, (ChunkKey("a/b/c"),), fact, 0)),
    ]
    for params in bad:
        request = EngineRequest(
            tuple(range(200, 208)), params, uuid.uuid4().hex, SamplingOptions(max_tokens=2)
        )
        assert await _run(worker, request) is not None, params.handle
    worker.fill("sane", TEXTS[:2])
    await worker.encode("sane")
    assert (await worker.chat("sane")).usage.facts_injected == 2


async def test_a_prompt_longer_than_the_context_is_the_callers_error(worker: RealWorker) -> None:
    long = [common_pb2.Message(role="user", content="word " * 6000)]
    request = worker.question("sane2", k=0)
    del request.messages[:]
    request.messages.extend(long)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        async for _ in worker.stub.Generate(request):
            pass
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "context has 5120" in str(refused.value.details())


async def test_a_client_that_vanishes_has_its_request_aborted(worker: RealWorker) -> None:
    sampling = common_pb2.Sampling(max_tokens=4096, min_tokens=4096)
    stream = worker.stub.Generate(worker.question("gone", sampling=sampling))
    async for event in stream:
        if event.response.HasField("delta"):
            break
    llm = worker.running.host._llm
    assert llm.output_processor.get_num_unfinished_requests() == 1
    stream.cancel()
    async with asyncio.timeout(3):
        while llm.output_processor.get_num_unfinished_requests():
            await asyncio.sleep(0.02)
    assert len(worker.running.reports) == 0


async def test_a_prompt_the_engine_refuses_is_invalid_and_the_next_one_is_served(
    worker: RealWorker,
) -> None:
    too_long = (200,) * (worker.running.host.max_model_len + 1)
    request = EngineRequest(too_long, RequestParams("bad"), "salt", SamplingOptions(max_tokens=2))
    with pytest.raises(InvalidInput, match="refuses request bad"):
        await _run(worker, request)
    request = EngineRequest(
        (200, 201), RequestParams("good"), "salt", SamplingOptions(max_tokens=2)
    )
    assert await _run(worker, request) is EventKind.SERVED


async def test_the_cache_is_reported_and_empty_after_everything_is_forgotten(
    worker: RealWorker,
) -> None:
    worker.fill("status", TEXTS)
    results = await worker.encode("status")
    request = worker_pb2.CacheStatusRequest(user=worker.ref("status"))
    status = await worker.stub.CacheStatus(request)
    assert {c.fact.fact_id: c.chunk_digest for c in status.chunks} == {
        i: r.chunk_digest for i, r in results.items()
    }
    assert status.memory_version == 8
    assert 0 < status.resident_bytes < status.capacity_bytes <= 32 << 20
    purged = await worker.forget("status", *results)
    assert purged.arena_chunks == 8
    assert (await worker.stub.CacheStatus(request)).chunks == []


async def test_the_break_even_is_measured_and_leaves_nothing_behind(worker: RealWorker) -> None:
    break_even = worker.parts.break_even
    before = (await worker.stub.CacheStatus(worker_pb2.CacheStatusRequest())).resident_chunks
    try:
        samples = await break_even.measure()
        assert [sample.num_tokens for sample in samples][:2] == [64, 128]
        assert all(sample.text_ms > 0 and sample.injected_ms > 0 for sample in samples)
        status = await worker.stub.CacheStatus(worker_pb2.CacheStatusRequest())
        assert status.resident_chunks == before
        assert status.min_injected_tokens == break_even.min_tokens
        break_even.min_tokens = 100_000
        worker.fill("short")
        await worker.encode("short")
        chat = await worker.chat("short", timed=True)
        assert (chat.usage.facts_prefilled, chat.usage.injected_tokens) == (12, 0)
    finally:
        break_even.min_tokens = 0


async def test_many_users_encode_side_by_side(worker: RealWorker) -> None:
    users = [f"crowd{n}" for n in range(6)]
    for user_id in users:
        worker.fill(user_id, TEXTS)
    every = await asyncio.gather(*(worker.encode(user_id) for user_id in users))
    assert [len(results) for results in every] == [8] * 6
    assert all(
        r.state == common_pb2.ENCODE_STATE_DONE for results in every for r in results.values()
    )


async def test_a_dead_engine_is_noticed_and_every_request_says_so(worker: RealWorker) -> None:
    """The last test: nothing is served after it."""
    watching = asyncio.create_task(worker.running.host.watch())
    worker.running.host._llm.engine_core.resources.engine_manager.processes[0].kill()
    async with asyncio.timeout(10):
        with pytest.raises(Unavailable, match="engine has died"):
            await watching
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await worker.chat("late")
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
