"""One real server for each test, on a free port, in the test's own event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import grpc.aio
import pytest

from inferscale_core.rpc.channel import open_channel
from inferscale_core.rpc.deadlines import Deadlines
from inferscale_core.rpc.pb.inferscale.v1 import (
    chat_pb2,
    chat_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    sync_pb2,
    sync_pb2_grpc,
    tenant_pb2,
    tenant_pb2_grpc,
)
from inferscale_core.rpc.server import RpcServer, ServerOptions
from tests.rpc.fakes import (
    FakeAuthenticator,
    FakeChatService,
    FakeMemoryService,
    FakeSyncService,
    FakeTenantService,
)
from tests.telemetry_capture import Capture, captured


class Served:
    """A running server and the services behind it. `restart` keeps the port and the services."""

    def __init__(self) -> None:
        self.memory = FakeMemoryService()
        self.chat = FakeChatService()
        self.options = ServerOptions(deadlines=Deadlines(unary_s=5, stream_s=20))
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.server = RpcServer(FakeAuthenticator(), self.options)
        self.server.add(
            memory_pb2.DESCRIPTOR, memory_pb2_grpc.add_MemoryServiceServicer_to_server, self.memory
        )
        self.server.add(
            chat_pb2.DESCRIPTOR, chat_pb2_grpc.add_ChatServiceServicer_to_server, self.chat
        )
        self.server.add(
            sync_pb2.DESCRIPTOR, sync_pb2_grpc.add_SyncServiceServicer_to_server, FakeSyncService()
        )
        self.server.add(
            tenant_pb2.DESCRIPTOR,
            tenant_pb2_grpc.add_TenantServiceServicer_to_server,
            FakeTenantService(),
        )
        self.port = await self.server.start(self.address)

    async def restart(self, grace_s: float = 0.0) -> None:
        await self.server.drain(grace_s)
        await self.start()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    await served.start()
    yield served
    await served.server.drain(0)


@pytest.fixture
async def channel(served: Served) -> AsyncIterator[grpc.aio.Channel]:
    """With a tenant's key."""
    channel = open_channel(served.address, "key-of-acme")
    yield channel
    await channel.close(None)


@pytest.fixture
def telemetry() -> Iterator[Capture]:
    with captured() as capture:
        yield capture
