from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import grpc
import grpc.aio
import pytest

from inferscale_core.errors import DeadlineExceeded
from inferscale_core.rpc.channel import ChannelOptions, open_channel
from inferscale_core.rpc.deadlines import Deadlines, within
from inferscale_core.rpc.pb.inferscale.v1 import (
    chat_pb2,
    chat_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
)
from inferscale_core.rpc.status import error_from
from tests.rpc.conftest import Served

BEARER = (("authorization", "Bearer key-of-acme"),)
SHORT = Deadlines(unary_s=0.2, stream_s=0.2)


class Stuck:
    """Waits for ever and remembers how it ended."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()

    async def __call__(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.fixture
async def impatient(served: Served) -> Served:
    """A server that gives a call without a deadline 0.2 s."""
    served.options = replace(served.options, deadlines=SHORT)
    await served.restart()
    return served


async def test_the_server_ends_a_call_that_came_without_a_deadline(impatient: Served) -> None:
    stuck = impatient.memory.before = Stuck()
    async with grpc.aio.insecure_channel(impatient.address) as channel:
        stub = memory_pb2_grpc.MemoryServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.GetMemory(memory_pb2.GetMemoryRequest(), metadata=BEARER)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert isinstance(error_from(raised.value), DeadlineExceeded)
    assert stuck.cancelled.is_set()


async def test_the_server_ends_a_stream_that_came_without_a_deadline(impatient: Served) -> None:
    impatient.chat.pause = Stuck()
    async with grpc.aio.insecure_channel(impatient.address) as channel:
        responses = (
            chat_pb2_grpc.ChatServiceStub(channel)
            .Chat(chat_pb2.ChatRequest(), metadata=BEARER)
            .__aiter__()
        )
        await anext(responses)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await anext(responses)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert impatient.chat.closed.is_set()


async def test_a_callers_longer_deadline_holds(impatient: Served) -> None:
    async def slow() -> None:
        await asyncio.sleep(0.4)

    impatient.memory.before = slow
    async with grpc.aio.insecure_channel(impatient.address) as channel:
        stub = memory_pb2_grpc.MemoryServiceStub(channel)
        await stub.GetMemory(memory_pb2.GetMemoryRequest(), metadata=BEARER, timeout=5)


async def test_a_callers_deadline_cancels_the_servicer(
    served: Served, channel: grpc.aio.Channel
) -> None:
    stuck = served.memory.before = Stuck()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await memory_pb2_grpc.MemoryServiceStub(channel).GetMemory(
            memory_pb2.GetMemoryRequest(), timeout=0.2
        )
    assert isinstance(error_from(raised.value), DeadlineExceeded)
    await asyncio.wait_for(stuck.cancelled.wait(), 5)


async def test_our_channel_gives_every_call_a_deadline(served: Served) -> None:
    served.memory.before = Stuck()
    options = ChannelOptions(deadlines=SHORT)
    started_at = time.monotonic()
    async with open_channel(served.address, "key-of-acme", options) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await memory_pb2_grpc.MemoryServiceStub(channel).GetMemory(
                memory_pb2.GetMemoryRequest()
            )
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - started_at < 3


async def test_a_timeout_of_the_blocks_own_stays_one() -> None:
    with pytest.raises(TimeoutError):
        async with within(5):
            raise TimeoutError
