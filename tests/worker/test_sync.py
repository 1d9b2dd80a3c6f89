from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from inferscale_core.errors import Incompatible, Unavailable, WorkerIdTaken
from inferscale_core.rpc.auth import SharedTokens
from inferscale_core.rpc.channel import open_channel
from inferscale_core.rpc.pb.inferscale.v1 import sync_pb2
from inferscale_core.rpc.pb.inferscale.v1.sync_pb2_grpc import add_SyncServiceServicer_to_server
from inferscale_core.rpc.server import RpcServer
from services.worker import sync as module
from services.worker.__main__ import serve_until_end
from services.worker.engine.host import EngineHost
from services.worker.sync import ControlLink, Lease
from tests.worker.control import MemoryControl, SyncServicer
from tests.worker.test_encode import TEXTS

IDENTITY = sync_pb2.JoinWorkerRequest(worker_id="w1", instance_id="i1")


class ScriptedLink(ControlLink):
    """Answers joins with what it is given, in turn; the last one for ever."""

    def __init__(self, *answers: float | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[sync_pb2.JoinWorkerRequest] = []

    async def join(self, request: sync_pb2.JoinWorkerRequest) -> float:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_lease_is_renewed_three_times_before_it_ends() -> None:
    link = ScriptedLink(0.09)
    keeping = asyncio.create_task(Lease(link, IDENTITY).keep())
    await asyncio.sleep(0.2)
    keeping.cancel()
    assert 4 <= len(link.requests) <= 8


async def test_a_control_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    lease = Lease(ScriptedLink(Unavailable("away"), Unavailable("away"), 10.0), IDENTITY)
    keeping = asyncio.create_task(lease.keep())
    async with asyncio.timeout(2):
        await lease.joined.wait()
    keeping.cancel()


async def test_a_refusal_ends_the_worker() -> None:
    lease = Lease(ScriptedLink(Incompatible("another embedder")), IDENTITY)
    with pytest.raises(Incompatible, match="another embedder"):
        await lease.keep()
    assert not lease.joined.is_set()


async def test_a_worker_waits_for_its_id_and_ends_when_it_has_lost_it() -> None:
    taken = WorkerIdTaken("w1", "other:1")
    link = ScriptedLink(taken, 0.03, taken)
    lease = Lease(link, IDENTITY)
    async with asyncio.timeout(2):
        with pytest.raises(WorkerIdTaken, match="belongs to the instance at other:1"):
            await lease.keep()
    assert lease.joined.is_set()
    assert [request.renewal for request in link.requests] == [False, False, True]


async def _joined(*answers: float | Exception) -> tuple[Lease, ScriptedLink]:
    link = ScriptedLink(10.0, *answers)
    lease = Lease(link, IDENTITY)
    keeping = asyncio.create_task(lease.keep())
    async with asyncio.timeout(2):
        await lease.joined.wait()
    keeping.cancel()
    return lease, link


async def test_draining_is_announced_under_the_same_identity() -> None:
    lease, link = await _joined(10.0)
    await lease.announce_draining()
    last = link.requests[-1]
    assert (last.worker_id, last.draining, last.renewal) == ("w1", True, True)
    assert not IDENTITY.draining


async def test_draining_without_control_is_no_error() -> None:
    lease, _ = await _joined(Unavailable("away"))
    await lease.announce_draining()


async def test_a_worker_that_never_joined_announces_nothing() -> None:
    link = ScriptedLink(10.0)
    await Lease(link, IDENTITY).announce_draining()
    assert link.requests == []


async def test_changes_come_over_the_wire_and_errors_come_back_as_ours() -> None:
    control = MemoryControl(page_size=3)
    server = RpcServer(SharedTokens(internal="secret"))
    server.add(sync_pb2.DESCRIPTOR, add_SyncServiceServicer_to_server, SyncServicer(control))
    port = await server.start("127.0.0.1:0")
    for number, text in enumerate(TEXTS):
        control.add(f"f{number}", text)
    user = control.at()
    async with open_channel(f"127.0.0.1:{port}", "secret") as channel:
        link = ControlLink(channel)
        pages = await link.list_changes(user.tenant_id, user.user_id, 2)
        assert [len(page.facts) for page in pages] == [3, 3]
        control.is_down = True
        with pytest.raises(Unavailable, match="control is away"):
            await link.list_changes(user.tenant_id, user.user_id, 0)
    await server.drain(0.0)
    async with open_channel(f"127.0.0.1:{port}", "secret") as channel:
        with pytest.raises(Unavailable):
            await ControlLink(channel).join(IDENTITY)


class IdleEngine(EngineHost):
    """Lives for ever, or dies at once."""

    def __init__(self, *, is_dead: bool = False) -> None:
        self._is_dead = is_dead

    async def watch(self) -> NoReturn:
        if not self._is_dead:
            await asyncio.Event().wait()
        raise Unavailable("the engine has died")


@pytest.mark.parametrize(
    ("answer", "is_dead", "error"),
    [(Incompatible("another embedder"), False, Incompatible), (10.0, True, Unavailable)],
)
async def test_a_worker_stops_when_it_is_refused_or_its_engine_dies(
    answer: float | Exception, is_dead: bool, error: type[Exception]
) -> None:
    server = RpcServer(SharedTokens(internal="secret"))
    await server.start("127.0.0.1:0", ready=False)
    lease = Lease(ScriptedLink(answer), IDENTITY)
    async with asyncio.timeout(5):
        with pytest.raises(error):
            await serve_until_end(server, lease, IdleEngine(is_dead=is_dead), 1.0)
