"""`python -m services.worker` as operators run it: joining, readiness, and an orderly end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType

import grpc.aio
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from inferscale_core.memory.recipes import DEFAULT_RECIPE
from inferscale_core.rpc.auth import SharedTokens
from inferscale_core.rpc.channel import open_channel
from inferscale_core.rpc.pb.inferscale.v1 import common_pb2, sync_pb2, worker_pb2
from inferscale_core.rpc.pb.inferscale.v1.sync_pb2_grpc import add_SyncServiceServicer_to_server
from inferscale_core.rpc.pb.inferscale.v1.worker_pb2_grpc import WorkerServiceStub
from inferscale_core.rpc.server import RpcServer
from tests.engine_processes import engine_processes
from tests.tiny_models import LLAMA
from tests.tiny_tokenizers import byte_level, save_with
from tests.worker.control import MemoryControl, SyncServicer

pytestmark = pytest.mark.engine

TOKEN = "internal"
GRACE_S = 4
SERVING = health_pb2.HealthCheckResponse.SERVING


@asynccontextmanager
async def worker_process(
    model: Path, control_port: int, port: int, settings: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Killed at the end if it is still there."""
    environment = {
        "INFERSCALE_WORKER__WORKER_ID": "w1",
        "INFERSCALE_WORKER__LISTEN": f"127.0.0.1:{port}",
        "INFERSCALE_WORKER__CONTROL": f"127.0.0.1:{control_port}",
        "INFERSCALE_WORKER__INTERNAL_TOKEN": TOKEN,
        "INFERSCALE_WORKER__GRACE_S": str(GRACE_S),
        "INFERSCALE_ENGINE__MODEL": str(model),
        "INFERSCALE_ENGINE__SERVED_NAME": "tiny",
        "INFERSCALE_ENGINE__DTYPE": "float32",
        "INFERSCALE_ENGINE__MAX_MODEL_LEN": "5120",
        "INFERSCALE_ENGINE__KV_CACHE_BYTES": str(64 << 20),
        "INFERSCALE_ENGINE__ARENA_BYTES": str(8 << 20),
        "INFERSCALE_ENGINE__ENFORCE_EAGER": "true",
        "INFERSCALE_EMBEDDER__DEVICE": "cpu",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.worker", env={**os.environ, **environment, **settings}
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def health(channel: grpc.aio.Channel) -> int:
    """-1 while nothing answers."""
    try:
        answer = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), timeout=2
        )
    except grpc.aio.AioRpcError:
        return -1
    return int(answer.status)


async def until_serving(channel: grpc.aio.Channel, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(180):
        while await health(channel) != SERVING:
            assert process.returncode is None, "the worker has ended"
            await asyncio.sleep(0.2)


def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def answer(stub: WorkerServiceStub) -> str:
    """The finish reason of a long answer, or the status that ended it."""
    request = worker_pb2.GenerateRequest(
        user=worker_pb2.UserRef(tenant_id="acme", user_id="robin"),
        messages=[common_pb2.Message(role="user", content="Tell me a long story.")],
        sampling=common_pb2.Sampling(max_tokens=4096, min_tokens=4096),
    )
    try:
        async for event in stub.Generate(request, timeout=120):
            if event.response.HasField("done"):
                return str(event.response.done.finish_reason)
    except grpc.aio.AioRpcError as exc:
        return exc.code().name
    return "cut off"


async def test_a_worker_joins_serves_and_drains(tmp_path: Path) -> None:
    model = LLAMA.save(tmp_path)
    save_with(byte_level(), model)
    sync, servicer = RpcServer(SharedTokens(internal=TOKEN)), SyncServicer(MemoryControl())
    sync.add(sync_pb2.DESCRIPTOR, add_SyncServiceServicer_to_server, servicer)
    control_port, port = await sync.start("127.0.0.1:0"), free_port()
    async with (
        worker_process(model, control_port, port) as process,
        open_channel(f"127.0.0.1:{port}", TOKEN) as channel,
    ):
        await until_serving(channel, process)
        joined = servicer.joined[0]
        assert (joined.worker_id, joined.address) == ("w1", f"127.0.0.1:{port}")
        assert (joined.model, joined.recipe) == ("tiny", DEFAULT_RECIPE.name)
        assert joined.model_revision.startswith("tiny@")
        assert joined.embedder.dimension == 384
        await asyncio.sleep(1.2)
        assert len(servicer.joined) > 2, "the lease of one second is renewed"

        stub = WorkerServiceStub(channel)
        answers = [asyncio.create_task(answer(stub)) for _ in range(20)]
        await asyncio.sleep(1)
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        assert await health(channel) != SERVING
        async with asyncio.timeout(GRACE_S + 15):
            ends = await asyncio.gather(*answers)
            assert await process.wait() == 0
        assert set(ends) <= {"length", "UNAVAILABLE"}
        assert servicer.joined[-1].draining
    await sync.drain(0.0)


async def test_a_worker_stopped_while_it_starts_leaves_no_process_behind(tmp_path: Path) -> None:
    model = LLAMA.save(tmp_path)
    save_with(byte_level(), model)
    async with worker_process(model, free_port(), free_port()) as process:
        started: list[psutil.Process] = []
        async with asyncio.timeout(120):
            while not started:
                assert process.returncode is None
                await asyncio.sleep(0.1)
                started = engine_processes(process.pid)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() == 128 + signal.SIGTERM
            while any(child.is_running() for child in started):
                await asyncio.sleep(0.1)
