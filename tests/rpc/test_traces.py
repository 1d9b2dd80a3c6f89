"""One trace from the client through the server, and nothing of what was said in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from opentelemetry.trace import SpanKind, StatusCode

from inferscale_core.client import AsyncInferScale, ClientOptions, RetryPolicy
from inferscale_core.errors import InvalidInput, NotFound, Unavailable
from inferscale_core.rpc.channel import open_channel
from inferscale_core.rpc.pb.inferscale.v1 import (
    memory_pb2,
    memory_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)
from inferscale_core.telemetry import names
from inferscale_core.telemetry.tracing import span
from tests.rpc.conftest import Served
from tests.telemetry_capture import Capture

ADD = "inferscale.v1.MemoryService/AddMemory"
GET = "inferscale.v1.MemoryService/GetMemory"
CHAT = "inferscale.v1.ChatService/Chat"
SECRETS = ["the alarm code is 4471", "where do I keep my key", "piece-", "wrong-key-9f2"]


@pytest.fixture
async def client(served: Served) -> AsyncIterator[AsyncInferScale]:
    options = ClientOptions(retries=RetryPolicy(max_attempts=3, first_wait_s=0.01))
    async with AsyncInferScale(served.address, "key-of-acme", options) as client:
        yield client


async def test_one_trace_runs_from_the_caller_through_the_client_to_the_servicer(
    served: Served, client: AsyncInferScale, telemetry: Capture
) -> None:
    async def step() -> None:
        with span(names.RETRIEVE):
            pass

    served.memory.before = step
    with span("test"):
        await client.add_memory("robin", "x")
    (root,) = telemetry.spans("test")
    (inner,) = telemetry.spans(names.RETRIEVE)
    sent, handled = sorted(await telemetry.all_spans(ADD, 2), key=lambda found: found.start_time)
    assert (sent.kind, handled.kind) == (SpanKind.CLIENT, SpanKind.SERVER)
    assert sent.parent == root.context
    assert handled.parent is not None
    assert handled.parent.span_id == sent.context.span_id
    assert inner.parent == handled.context
    assert len({found.context.trace_id for found in (root, sent, handled, inner)}) == 1


async def test_a_chat_is_one_trace_and_its_spans_last_to_its_end(
    client: AsyncInferScale, telemetry: Capture
) -> None:
    stream = client.chat("robin", "hello")
    await anext(stream)
    assert not [found for found in telemetry.spans(CHAT) if found.kind is SpanKind.CLIENT]
    await stream.answer()
    by_kind = {found.kind: found for found in await telemetry.all_spans(CHAT, 2)}
    assert by_kind[SpanKind.SERVER].parent is not None
    assert by_kind[SpanKind.SERVER].parent.span_id == by_kind[SpanKind.CLIENT].context.span_id
    assert by_kind[SpanKind.SERVER].attributes[names.RPC_STATUS] == "OK"


async def test_a_trace_goes_on_to_a_server_behind_the_server(
    served: Served, client: AsyncInferScale, telemetry: Capture
) -> None:
    async def call_another() -> None:
        served.memory.before = None
        async with open_channel(served.address, "key-of-globex") as channel:
            stub = memory_pb2_grpc.MemoryServiceStub(channel)
            await stub.GetMemory(memory_pb2.GetMemoryRequest(memory_id="m"))

    served.memory.before = call_another
    await client.add_memory("robin", "x")
    (behind,) = await telemetry.all_spans(GET, 1)
    front = next(
        found for found in await telemetry.all_spans(ADD, 2) if found.kind is SpanKind.SERVER
    )
    assert behind.parent is not None
    assert behind.parent.span_id == front.context.span_id


async def test_a_call_without_a_trace_starts_one_and_a_malformed_one_is_ignored(
    served: Served, telemetry: Capture
) -> None:
    async with grpc.aio.insecure_channel(served.address) as channel:
        stub = memory_pb2_grpc.MemoryServiceStub(channel)
        await stub.GetMemory(
            memory_pb2.GetMemoryRequest(),
            metadata=(("authorization", "Bearer key-of-acme"), ("traceparent", "00-nonsense")),
        )
    (handled,) = await telemetry.all_spans(GET, 1)
    assert handled.parent is None


async def test_a_failed_call_marks_both_spans_with_the_code(
    served: Served, client: AsyncInferScale, telemetry: Capture
) -> None:
    async def fail() -> None:
        raise NotFound("memory", "m-7")

    served.memory.before = fail
    with pytest.raises(NotFound):
        await client.get_memory("robin", "m-7")
    spans = await telemetry.all_spans(GET, 2)
    assert len(spans) == 2
    for found in spans:
        assert found.status.status_code is StatusCode.ERROR
        assert found.attributes[names.ERROR_TYPE] == "not_found"
        assert found.attributes[names.RPC_STATUS] == "NOT_FOUND"
        assert found.events == ()


async def test_repeated_attempts_are_counted_on_the_clients_one_span(
    served: Served, client: AsyncInferScale, telemetry: Capture
) -> None:
    left = [Unavailable("draining"), Unavailable("draining")]

    async def fail_twice() -> None:
        if left:
            raise left.pop()

    served.memory.before = fail_twice
    await client.add_memory("robin", "x")
    (sent,) = [found for found in telemetry.spans(ADD) if found.kind is SpanKind.CLIENT]
    assert sent.attributes[names.ATTEMPT] == 3
    assert sent.status.status_code is StatusCode.UNSET


async def test_no_span_log_or_metric_holds_what_was_said(
    served: Served, client: AsyncInferScale, telemetry: Capture
) -> None:
    failures = [
        ValueError(SECRETS[0]),
        InvalidInput("text", f"{SECRETS[0]!r} is too long"),
        NotFound("memory", SECRETS[0]),
    ]

    async def fail() -> None:
        if failures:
            raise failures.pop()

    served.memory.before = fail
    for _ in range(3):
        with pytest.raises(Exception):  # noqa: B017, PT011
            await client.add_memory("robin", SECRETS[0])
    await client.add_memory("robin", SECRETS[0])
    await client.chat("robin", SECRETS[1]).answer()
    async with AsyncInferScale(served.address, SECRETS[3]) as stranger:
        with pytest.raises(Exception):  # noqa: B017, PT011
            await stranger.add_memory("robin", SECRETS[0])
    await telemetry.all_spans(CHAT, 2)
    recorded = telemetry.everything()
    assert "rpc.failed" in recorded
    assert CHAT in recorded
    assert [secret for secret in SECRETS if secret in recorded] == []
    assert "key-of-acme" not in recorded


async def test_metric_series_do_not_grow_with_users_or_tenants_or_made_up_methods(
    served: Served, client: AsyncInferScale, telemetry: Capture
) -> None:
    await client.add_memory("robin", "x")
    with pytest.raises(Exception):  # noqa: B017, PT011
        async with open_channel(served.address, "key-of-acme") as channel:
            await worker_pb2_grpc.WorkerServiceStub(channel).Forget(worker_pb2.ForgetRequest())
    before = set(telemetry.values())
    for number in range(200):
        await client.add_memory(f"user-{number}", "x")
    async with open_channel(served.address, "key-of-globex") as channel:
        await memory_pb2_grpc.MemoryServiceStub(channel).AddMemory(memory_pb2.AddMemoryRequest())
        for number in range(20):
            made_up = channel.unary_unary(f"/inferscale.v1.MemoryService/Made{number}", None, None)
            with pytest.raises(grpc.aio.AioRpcError):
                await made_up(b"")
    assert set(telemetry.values()) == before
    served_label = (("rpc.method", ADD), ("rpc.response.status_code", "OK"))
    assert telemetry.values()[(names.RPC_SERVER_DURATION, served_label)] >= 202
