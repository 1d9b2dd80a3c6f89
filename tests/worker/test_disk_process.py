"""A worker that is killed and started again: what its disk gives back, and what it does not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from inferscale_core.rpc.auth import SharedTokens
from inferscale_core.rpc.channel import open_channel
from inferscale_core.rpc.pb.inferscale.v1 import common_pb2, sync_pb2, worker_pb2
from inferscale_core.rpc.pb.inferscale.v1.sync_pb2_grpc import add_SyncServiceServicer_to_server
from inferscale_core.rpc.pb.inferscale.v1.worker_pb2_grpc import WorkerServiceStub
from inferscale_core.rpc.server import RpcServer
from tests.tiny_models import LLAMA
from tests.tiny_tokenizers import byte_level, save_with
from tests.worker.control import MemoryControl, SyncServicer
from tests.worker.test_encode import TEXTS
from tests.worker.test_process import TOKEN, free_port, until_serving, worker_process

pytestmark = pytest.mark.engine

USER = "robin"
INJECTED, PREFILLED = common_pb2.SERVING_INJECTED, common_pb2.SERVING_PREFILLED


class Restartable:
    """The same worker, as often as it is started: one model, one folder, one control."""

    def __init__(self, folder: Path, control: MemoryControl, control_port: int) -> None:
        self.control = control
        self.disk = folder / "disk"
        self._control_port = control_port
        self._port = free_port()
        self._model = LLAMA.save(folder)
        save_with(byte_level(), self._model)

    @asynccontextmanager
    async def until_killed(self) -> AsyncIterator[Any]:
        """Its stub. At the end the process and all of its engine's are killed."""
        settings = {
            "INFERSCALE_ENGINE__DISK_DIR": str(self.disk),
            "INFERSCALE_ENGINE__DISK_BYTES": str(64 << 20),
            "INFERSCALE_WORKER__MIN_INJECTED_TOKENS": "0",
        }
        async with (
            worker_process(self._model, self._control_port, self._port, settings) as process,
            open_channel(f"127.0.0.1:{self._port}", TOKEN) as channel,
        ):
            await until_serving(channel, process)
            yield WorkerServiceStub(channel)
            worker = psutil.Process(process.pid)
            for each in [worker, *worker.children(recursive=True)]:
                each.kill()

    async def encode(self, stub: Any) -> list[worker_pb2.EncodeResponse]:
        request = worker_pb2.EncodeRequest(user=self._user())
        return [result async for result in stub.Encode(request, timeout=120)]

    async def delete(self, stub: Any, fact_id: str) -> worker_pb2.ForgetResponse:
        """As control does: after the commit it asks the worker to forget."""
        self.control.remove(fact_id, USER)
        request = worker_pb2.ForgetRequest(user=self._user(), fact_ids=[fact_id])
        response: worker_pb2.ForgetResponse = await stub.Forget(request, timeout=60)
        return response

    async def ask(self, stub: Any) -> tuple[Counter[int], str]:
        """How many facts were served in which way, and the answer."""
        request = worker_pb2.GenerateRequest(
            user=self._user(),
            messages=[common_pb2.Message(role="user", content="Where is the spare key?")],
            k=20,
            sampling=common_pb2.Sampling(max_tokens=8),
        )
        events = [event.response async for event in stub.Generate(request, timeout=120)]
        [served] = [event.served for event in events if event.HasField("served")]
        ways = Counter(fact.serving for fact in served.facts)
        return ways, "".join(event.delta.text for event in events if event.HasField("delta"))

    async def until_on_disk(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.records()) != count:
                await asyncio.sleep(0.05)

    def records(self) -> list[Path]:
        found = self.disk.glob("*/*/0of1/*/*")
        return [path for path in found if path.parent.name != "writing"]

    def _user(self) -> worker_pb2.UserRef:
        user = self.control.user(USER)
        return worker_pb2.UserRef(
            tenant_id="acme",
            user_id=USER,
            memory_version=user.version,
            kv_epoch=user.kv_epoch,
        )


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Restartable]:
    control = MemoryControl(dimension=384)
    for number, text in enumerate(TEXTS):
        control.add(f"f{number}", text, USER)
    server = RpcServer(SharedTokens(internal=TOKEN))
    server.add(sync_pb2.DESCRIPTOR, add_SyncServiceServicer_to_server, SyncServicer(control))
    yield Restartable(tmp_path, control, await server.start("127.0.0.1:0"))
    await server.drain(0.0)


async def test_a_killed_worker_is_warm_again_from_disk_and_never_with_what_was_deleted(
    worker: Restartable,
) -> None:
    num_facts = len(TEXTS)
    async with worker.until_killed() as stub:
        results = await worker.encode(stub)
        assert {result.state for result in results} == {common_pb2.ENCODE_STATE_DONE}
        await worker.until_on_disk(num_facts)
        forgotten = await worker.delete(stub, f"f{num_facts - 1}")
        assert (forgotten.disk_chunks, forgotten.pending_chunks) == (1, 0)
        assert len(worker.records()) == num_facts - 1
        before, answer = await worker.ask(stub)
        assert before == {INJECTED: num_facts - 1}

    async with worker.until_killed() as stub:
        again, same_answer = await worker.ask(stub)
        assert again == {INJECTED: num_facts - 1}, "without any encode request"
        assert same_answer == answer
        results = await worker.encode(stub)
        assert {result.already_resident for result in results} == {True}

    worker.control.remove("f0", USER)
    async with worker.until_killed() as stub:
        cold, _ = await worker.ask(stub)
        assert cold == {PREFILLED: num_facts - 2}
        assert worker.records() == []
        await worker.encode(stub)
        await worker.until_on_disk(num_facts - 2)
        warm, _ = await worker.ask(stub)
        assert warm == {INJECTED: num_facts - 2}
