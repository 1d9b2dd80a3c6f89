"""`python -m services.control` as a process of its own, with the packaged embedder."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from inferscale_core.client import AsyncInferScale, AsyncOperator
from inferscale_core.errors import Unavailable
from inferscale_core.rpc.pb.inferscale.v1 import sync_pb2
from tests.control.control_process import PACKAGED_DIMENSION, environment, port_in
from tests.control.fake_worker import FakeWorker, endless
from tests.control.harness import INTERNAL_TOKEN, NO_RETRY, OPERATOR_TOKEN
from tests.fixtures_postgres import Database


class Process:
    """Control, listening on a port of its choice; what it logged is kept."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.log = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    async def address(self) -> str:
        """Once it listens. Fails when it ends before."""
        assert self._process.stderr is not None
        async with asyncio.timeout(60):
            while line := (await self._process.stderr.readline()).decode():
                self.log += line
                if port := port_in(line):
                    return f"127.0.0.1:{port}"
        raise AssertionError(f"control ended at once:\n{self.log}")

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    async def ended(self, *, within_s: float) -> int:
        """Its exit code."""
        async with asyncio.timeout(within_s):
            _, rest = await self._process.communicate()
        self.log += rest.decode()
        assert self._process.returncode is not None
        return self._process.returncode

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.communicate()


Start = Callable[..., Awaitable[Process]]


@pytest.fixture
async def start(database_factory: Callable[..., Database]) -> AsyncIterator[Start]:
    started: list[Process] = []
    database = database_factory(PACKAGED_DIMENSION)

    async def start(**changes: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "services.control"),
            env=environment(database, **changes),
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(Process(process))
        return started[-1]

    yield start
    for process in started:
        await process.kill()


async def test_it_finds_what_is_meant_and_ends_in_order_at_sigterm(start: Start) -> None:
    process = await start()
    address = await process.address()
    operator = AsyncOperator(address, OPERATOR_TOKEN)
    created = await operator.create_tenant("acme", ["small"])
    client = AsyncInferScale(address, created.api_key, NO_RETRY)
    await client.add_memory("mira", "Robin keeps the spare key at the office.")
    await client.add_memory("mira", "Rain is forecast for Monday.")
    found = await client.search_memories("mira", "Where can I find a way into the house?", k=1)
    assert "spare key" in found.memories[0].memory.text

    worker = FakeWorker(address, INTERNAL_TOKEN, model="small")
    await worker.start()
    await worker.join(embedder=_packaged())
    worker.on_generate = endless
    chat = client.chat("mira", "Hello?")
    await anext(chat)
    process.terminate()
    with pytest.raises(Unavailable):
        await chat.answer()
    assert await process.ended(within_s=15) == 0
    assert "rpc.draining open_calls=1" in process.log
    assert "control.stopped" in process.log
    assert "spare key" not in process.log
    for opened in (client, operator, worker):
        await opened.close()


def _packaged() -> sync_pb2.EmbedderIdentity:
    return sync_pb2.EmbedderIdentity(
        embedder_id="all-MiniLM-L6-v2", revision="1", dimension=PACKAGED_DIMENSION
    )
