"""The service as a whole: slow embedding, lost connections, clients that vanish, restarts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from pydantic import SecretStr

from inferscale_core.client import ChannelOptions, ClientOptions, RetryPolicy
from inferscale_core.embedding import EmbedderIdentity
from inferscale_core.errors import (
    Incompatible,
    InferScaleError,
    Unavailable,
    Unsupported,
)
from inferscale_core.rpc.pb.inferscale.v1 import worker_pb2
from inferscale_core.settings import WrongSettings
from inferscale_core.telemetry import names
from services.control.app import ControlApp
from tests.control.fake_embedder import FakeEmbedder
from tests.control.fake_worker import delta, done, endless
from tests.control.harness import Control, Tenant, eventually, settings_for
from tests.fixtures_postgres import Database
from tests.telemetry_capture import captured


@pytest.fixture
async def small_control(database: Database) -> AsyncIterator[Control]:
    """With two database connections."""
    settings = settings_for(database)
    pool_of_two = settings.database.model_copy(update={"pool_size": 2})
    control = Control(settings.model_copy(update={"database": pool_of_two}), FakeEmbedder())
    await control.start()
    yield control
    await control.stop()


async def test_slow_embedding_holds_no_connection(small_control: Control) -> None:
    tenant = await small_control.tenant()
    stored = await tenant.client.add_memory("mira", "Mira has a dog.")
    small_control.embedder.hold()
    adds = [
        asyncio.create_task(tenant.client.add_memory("mira", f"Fact number {n}."))
        for n in range(20)
    ]
    await asyncio.sleep(0.1)
    reads = [tenant.client.get_memory("mira", stored.memory.memory_id) for _ in range(25)]
    reads += [tenant.client.list_memories("mira") for _ in range(25)]
    async with asyncio.timeout(5):
        await asyncio.gather(*reads)
    assert not any(add.done() for add in adds)
    small_control.embedder.release()
    versions = [(await add).memory_version for add in adds]
    assert sorted(versions) == list(range(2, 22))


async def test_more_calls_than_the_embedder_can_take_are_refused(control: Control) -> None:
    tenant = await control.tenant()
    control.app.parts.pool._max_waiting = 2
    control.embedder.hold()
    waiting = [asyncio.create_task(tenant.client.add_memory("mira", t)) for t in ("One.", "Two.")]
    await asyncio.sleep(0.1)
    with pytest.raises(Unavailable, match="2 calls wait for the embedder"):
        await tenant.client.add_memory("mira", "Three.")
    control.embedder.release()
    await asyncio.gather(*waiting)


async def test_the_call_after_every_connection_was_killed_works(
    control: Control, database: Database
) -> None:
    tenant = await control.tenant()
    await control.worker(tenant.model)
    added = await tenant.client.add_memory("mira", "Mira has a dog.")
    load = [
        asyncio.create_task(tenant.client.get_memory("mira", added.memory.memory_id))
        for _ in range(40)
    ]
    await asyncio.sleep(0.02)
    with database.admin() as connection:
        killed = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
    assert killed
    outcomes = await asyncio.gather(*load, return_exceptions=True)
    assert all(
        isinstance(outcome, Unavailable)
        for outcome in outcomes
        if isinstance(outcome, BaseException)
    )
    again = await tenant.client.add_memory("mira", "Mira has a cat.")
    await tenant.encoded("mira", again.memory.memory_id)


async def test_a_client_that_pings_as_often_as_allowed_is_not_cut_off(control: Control) -> None:
    tenant = await control.tenant()
    worker = await control.worker(tenant.model)

    async def slow(
        request: worker_pb2.GenerateRequest,
    ) -> AsyncIterator[worker_pb2.GenerateResponse]:
        await asyncio.sleep(2.2)
        yield delta("Yes.")
        yield done()

    worker.on_generate = slow
    options = ClientOptions(
        retries=RetryPolicy(max_attempts=1), channel=ChannelOptions(ping_interval_s=0.2)
    )
    client = control.client(tenant.api_key, options)
    assert (await client.chat("mira", "Are you there?").answer()).text == "Yes."
    assert len(worker.generate_requests) == 1


_VANISHING_CLIENT = """
import asyncio, sys
from inferscale_core.client import AsyncInferScale

async def main():
    client = AsyncInferScale(sys.argv[1], sys.argv[2])
    async for _ in client.chat("mira", "Hello?"):
        print("streaming", flush=True)

asyncio.run(main())
"""


async def test_a_client_process_that_dies_ends_its_request(control: Control) -> None:
    tenant = await control.tenant()
    worker = await control.worker(tenant.model)
    worker.on_generate = endless
    client = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _VANISHING_CLIENT,
        control.address,
        tenant.api_key,
        stdout=asyncio.subprocess.PIPE,
    )
    assert client.stdout is not None
    assert await client.stdout.readline() == b"streaming\n"
    client.kill()
    await client.communicate()

    async def was_cancelled() -> bool:
        return worker.cancelled == 1

    assert await eventually(was_cancelled, within_s=5)


async def test_clients_do_not_see_a_restart(database: Database) -> None:
    control = Control(settings_for(database), FakeEmbedder())
    await control.start()
    tenant = await control.tenant()
    client = control.client(tenant.api_key, ClientOptions())
    stop = asyncio.Event()
    written: list[str] = []

    async def write(writer: int) -> None:
        number = 0
        while not stop.is_set():
            added = await client.add_memory("mira", f"Fact {number} of {writer}.")
            written.append(added.memory.memory_id)
            number += 1

    writers = [asyncio.create_task(write(writer)) for writer in range(4)]
    await _more_than(written, 10)
    await control.app.server.drain(1.0)
    await control.app.stop()
    count = len(written)
    address = f"127.0.0.1:{control.port}"
    control.app = ControlApp(settings_for(database, listen=address), FakeEmbedder())
    await control.start()
    await _more_than(written, count + 10)
    stop.set()
    await asyncio.gather(*writers)
    stored = {memory.memory_id async for memory in client.all_memories("mira", page_size=500)}
    assert stored == set(written)
    assert len(written) == len(set(written))
    await control.stop()


async def test_a_job_that_a_restart_cuts_off_is_done_by_the_next_process(
    database: Database,
) -> None:
    control = Control(settings_for(database), FakeEmbedder())
    await control.start()
    tenant = await control.tenant()
    worker = await control.worker(tenant.model)
    begun = asyncio.Event()

    async def never(request: worker_pb2.EncodeRequest) -> AsyncIterator[worker_pb2.EncodeResponse]:
        worker.on_encode = worker.encode
        begun.set()
        await asyncio.sleep(60)
        yield worker_pb2.EncodeResponse()

    worker.on_encode = never
    added = await tenant.client.add_memory("mira", "Mira has a dog.")
    await begun.wait()
    await control.app.server.drain(0)
    await control.app.stop()
    address = f"127.0.0.1:{control.port}"
    control.app = ControlApp(settings_for(database, listen=address), FakeEmbedder())
    await control.start()
    tenant.client = control.client(tenant.api_key, ClientOptions())
    await tenant.encoded("mira", added.memory.memory_id)
    await control.stop()


async def test_readiness_drops_before_streams_end_and_all_end_within_the_grace(
    control: Control,
) -> None:
    tenant = await control.tenant()
    worker = await control.worker(tenant.model)
    finish = asyncio.Event()

    async def until_told(
        request: worker_pb2.GenerateRequest,
    ) -> AsyncIterator[worker_pb2.GenerateResponse]:
        yield delta("Well, ")
        if request.user.user_id.startswith("patient"):
            async for response in endless(request):
                yield response
        await finish.wait()
        yield delta("yes.")
        yield done()

    worker.on_generate = until_told
    users = [f"{kind}-{n}" for kind in ("brief", "patient") for n in range(10)]
    streams = [asyncio.create_task(_text(tenant, user)) for user in users]

    async def all_are_open() -> bool:
        return len(worker.generate_requests) == 20

    await eventually(all_are_open)
    async with grpc.aio.insecure_channel(control.address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        started_at = asyncio.get_running_loop().time()
        draining = asyncio.create_task(control.app.server.drain(2.0, notice_s=0.2))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert not any(stream.done() for stream in streams)
        finish.set()
        outcomes = await asyncio.gather(*streams)
        watch.cancel()
        await draining
    assert asyncio.get_running_loop().time() - started_at < 2.7
    assert outcomes[:10] == ["Well, yes."] * 10
    assert outcomes[10:] == ["unavailable"] * 10
    assert worker.cancelled == 10


async def test_health_and_reflection_need_no_credential(control: Control) -> None:
    async with grpc.aio.insecure_channel(control.address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="inferscale.v1.MemoryService")
        )
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        [response] = [r async for r in stub.ServerReflectionInfo(iter([request]))]
    services = {service.name for service in response.list_services_response.service}
    assert {
        f"inferscale.v1.{name}Service" for name in ("Memory", "Chat", "Tenant", "Sync")
    } <= services


async def test_serving_more_users_adds_no_series_of_metrics(control: Control) -> None:
    tenant = await control.tenant()
    await control.worker(tenant.model)

    async def serve(user_id: str) -> None:
        added = await tenant.client.add_memory(user_id, "Mira has a dog.")
        await tenant.client.chat(user_id, "Any pets?").answer()
        await tenant.client.search_memories(user_id, "pets")
        await tenant.encoded(user_id, added.memory.memory_id)
        await tenant.client.delete_memory(user_id, added.memory.memory_id)

    with captured() as capture:
        for number in range(3):
            await serve(f"first-{number}")
        await tenant.client.list_memories("first-0")
        before = capture.values()
        await asyncio.gather(*(serve(f"later-{number}") for number in range(12)))
        for start in range(0, 5_000, 50):
            users = [f"reader-{number}" for number in range(start, start + 50)]
            await asyncio.gather(*(tenant.client.list_memories(user_id) for user_id in users))
        after = capture.values()
    assert set(after) == set(before)
    for label in ("first-", "later-", "reader-", tenant.tenant_id):
        assert label not in str(after)
    method = (names.RPC_METHOD, "inferscale.v1.MemoryService/ListMemories")
    listed = (names.RPC_SERVER_DURATION, (method, (names.RPC_STATUS, "OK")))
    assert after[listed] - before[listed] == 5_000


def test_an_embedder_of_another_dimension_is_refused_with_both_numbers(
    database: Database,
) -> None:
    embedder = FakeEmbedder(EmbedderIdentity("words", "1", 384))
    settings = settings_for(database)
    with pytest.raises(Incompatible, match="384 dimensions, the settings say 8"):
        ControlApp(settings, embedder)


async def test_a_database_of_another_dimension_is_refused_with_both_numbers(
    database_factory: Callable[..., Database],
) -> None:
    app = ControlApp(settings_for(database_factory(16)), FakeEmbedder())
    with pytest.raises(Unsupported, match=r"16 dimensions.* 8"):
        await app.start()
    await app.stop()


@pytest.mark.parametrize("missing", ["internal_token", "database"])
def test_settings_that_are_missing_are_named(database: Database, missing: str) -> None:
    settings = settings_for(database)
    without = {
        "internal_token": {
            "control": settings.control.model_copy(update={"internal_token": SecretStr("")})
        },
        "database": {"database": settings.database.model_copy(update={"url": None})},
    }[missing]
    with pytest.raises(WrongSettings, match=rf"INFERSCALE_\w*{missing.upper()}\w* must be set"):
        ControlApp(settings.model_copy(update=without), FakeEmbedder())


async def _text(tenant: Tenant, user_id: str) -> str:
    """Of the answer, or the code of the error that ended it."""
    try:
        return (await tenant.client.chat(user_id, "Hello?").answer()).text
    except InferScaleError as exc:
        return exc.code


async def _more_than(items: list[str], count: int) -> None:
    async def is_more() -> bool:
        return len(items) > count

    await eventually(is_more, within_s=20)
