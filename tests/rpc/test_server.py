"""Health, reflection, keepalive, clients that vanish, and the end of a server."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import time

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from inferscale_core.errors import Unavailable
from inferscale_core.rpc.channel import open_channel
from inferscale_core.rpc.pb.inferscale.v1 import (
    chat_pb2,
    chat_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
)
from inferscale_core.rpc.server import serve_until_signal
from inferscale_core.rpc.status import error_from
from tests.rpc.conftest import Served

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ACK = 1


def _frame(kind: int, flags: int = 0, payload: bytes = b"") -> bytes:
    """Source: RFC 9113, section 4.1."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags, 0, 0, 0, 0]) + payload


class PingingClient:
    """Speaks just enough HTTP/2 to ping, and counts what comes back."""

    def __init__(self) -> None:
        self.num_acks = 0
        self.goaways: list[bytes] = []

    async def ping(self, port: int, *, times: int, interval_s: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(PREFACE + _frame(SETTINGS))
        reading = asyncio.create_task(self._read(reader))
        for number in range(times):
            await asyncio.sleep(interval_s)
            writer.write(_frame(PING, payload=number.to_bytes(8, "big")))
        await asyncio.sleep(interval_s)
        reading.cancel()
        writer.close()
        await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            header = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(header[:3], "big"))
            if header[3] == PING and header[4] & ACK:
                self.num_acks += 1
            if header[3] == GOAWAY:
                self.goaways.append(payload)


async def _health(served: Served, service: str = "") -> int:
    async with grpc.aio.insecure_channel(served.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        response = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
        return response.status


async def test_health_needs_no_credential_and_follows_readiness(served: Served) -> None:
    assert await _health(served) == SERVING
    assert await _health(served, "inferscale.v1.MemoryService") == SERVING
    await served.server.set_ready(False)
    assert await _health(served) == NOT_SERVING
    assert await _health(served, "inferscale.v1.MemoryService") == NOT_SERVING


async def test_reflection_lists_the_services(served: Served) -> None:
    async with grpc.aio.insecure_channel(served.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        response = await anext(stub.ServerReflectionInfo(iter([request])).__aiter__())
    names = {service.name for service in response.list_services_response.service}
    assert {"inferscale.v1.MemoryService", "inferscale.v1.ChatService"} <= names
    assert "grpc.health.v1.Health" in names


async def test_a_port_that_is_taken_is_named(served: Served) -> None:
    other = Served()
    other.port = served.port
    with pytest.raises(Unavailable, match=rf"127\.0\.0\.1:{served.port}: is the port taken"):
        await other.start()


async def test_a_client_that_pings_every_fifth_of_a_second_is_not_cut_off(served: Served) -> None:
    client = PingingClient()
    await client.ping(served.port, times=10, interval_s=0.2)
    assert client.num_acks == 10
    assert client.goaways == []


async def test_a_client_that_pings_far_more_often_is_cut_off(served: Served) -> None:
    client = PingingClient()
    await client.ping(served.port, times=10, interval_s=0.01)
    assert any(b"too_many_pings" in goaway for goaway in client.goaways)


async def test_a_stream_whose_client_cancels_is_closed_at_once(
    served: Served, channel: grpc.aio.Channel
) -> None:
    served.chat.num_deltas = 4096
    served.chat.pause = lambda: asyncio.sleep(0.01)
    call = chat_pb2_grpc.ChatServiceStub(channel).Chat(chat_pb2.ChatRequest())
    await anext(call.__aiter__())
    call.cancel()
    await asyncio.wait_for(served.chat.closed.wait(), 5)
    assert served.chat.num_deltas_sent < 100
    assert len(served.server.open_calls) == 0


async def test_a_stream_whose_client_process_dies_is_closed(served: Served) -> None:
    served.chat.num_deltas = 4096
    served.chat.pause = lambda: asyncio.sleep(0.01)
    script = (
        "import asyncio, sys\n"
        "from inferscale_core.client import AsyncInferScale\n"
        "async def main():\n"
        "    client = AsyncInferScale(sys.argv[1], 'key-of-acme')\n"
        "    async for _ in client.chat('robin', 'hello'):\n"
        "        print('event', flush=True)\n"
        "asyncio.run(main())\n"
    )
    import sys

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, served.address), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"event\n"
    process.kill()
    await process.wait()
    await asyncio.wait_for(served.chat.closed.wait(), 10)
    assert served.chat.num_deltas_sent < 4096


async def _read_chat(channel: grpc.aio.Channel, started: asyncio.Semaphore) -> str:
    """`done`, or the class of the error that ended it."""
    try:
        async for response in chat_pb2_grpc.ChatServiceStub(channel).Chat(chat_pb2.ChatRequest()):
            if response.HasField("retrieved"):
                started.release()
            if response.HasField("done"):
                return "done"
    except grpc.aio.AioRpcError as exc:
        return type(error_from(exc)).__name__
    return "cut off"


async def _twenty_streams(served: Served, channel: grpc.aio.Channel) -> list[asyncio.Task[str]]:
    started = asyncio.Semaphore(0)
    streams = [asyncio.create_task(_read_chat(channel, started)) for _ in range(20)]
    for _ in streams:
        await started.acquire()
    return streams


async def test_streams_that_end_within_the_grace_end_normally(
    served: Served, channel: grpc.aio.Channel
) -> None:
    served.chat.pause = lambda: asyncio.sleep(0.1)
    streams = await _twenty_streams(served, channel)
    await served.server.drain(5)
    assert await asyncio.gather(*streams) == ["done"] * 20


async def test_streams_that_outlast_the_grace_end_unavailable_within_it(
    served: Served, channel: grpc.aio.Channel
) -> None:
    served.chat.num_deltas = 10_000
    served.chat.pause = lambda: asyncio.sleep(0.05)
    streams = await _twenty_streams(served, channel)
    started_at = time.monotonic()
    await served.server.drain(1)
    assert time.monotonic() - started_at < 1.5
    assert await asyncio.gather(*streams) == ["Unavailable"] * 20


async def test_readiness_drops_before_new_calls_are_refused(
    served: Served, channel: grpc.aio.Channel
) -> None:
    get = memory_pb2_grpc.MemoryServiceStub(channel).GetMemory
    await get(memory_pb2.GetMemoryRequest())
    draining = asyncio.create_task(served.server.drain(1, notice_s=0.5))
    await asyncio.sleep(0.1)
    assert await _health(served) == NOT_SERVING
    await get(memory_pb2.GetMemoryRequest())
    await draining
    with pytest.raises(grpc.aio.AioRpcError):
        await get(memory_pb2.GetMemoryRequest())


async def test_a_call_in_flight_completes_during_a_drain(
    served: Served, channel: grpc.aio.Channel
) -> None:
    entered = asyncio.Event()

    async def slow() -> None:
        entered.set()
        await asyncio.sleep(0.3)

    served.memory.before = slow
    add = memory_pb2_grpc.MemoryServiceStub(channel).AddMemory
    adding = asyncio.ensure_future(add(memory_pb2.AddMemoryRequest(user_id="robin")))
    await entered.wait()
    await served.server.drain(5)
    assert (await adding).memory_version == 1


async def test_sigterm_drains(served: Served) -> None:
    serving = asyncio.create_task(serve_until_signal(served.server, 1, notice_s=0))
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(serving, 5)
    async with open_channel(served.address, "key-of-acme") as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await memory_pb2_grpc.MemoryServiceStub(channel).GetMemory(
                memory_pb2.GetMemoryRequest()
            )
