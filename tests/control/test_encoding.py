"""Encode jobs: queued with the write, run on the owner, never recorded when they come too late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from inferscale_core.client import EncodeState, NewMemory
from inferscale_core.rpc.pb.inferscale.v1 import common_pb2, worker_pb2
from inferscale_core.telemetry import names
from tests.control.fake_worker import FakeWorker
from tests.control.harness import Control, Tenant, eventually
from tests.fixtures_postgres import Database
from tests.telemetry_capture import captured


@pytest.fixture
async def worker(control: Control, tenant: Tenant) -> FakeWorker:
    return await control.worker(tenant.model)


async def test_a_fact_is_pending_until_its_worker_has_encoded_it(
    tenant: Tenant, worker: FakeWorker
) -> None:
    go_on = asyncio.Event()

    async def held(request: worker_pb2.EncodeRequest) -> AsyncIterator[worker_pb2.EncodeResponse]:
        await go_on.wait()
        async for response in worker.encode(request):
            yield response

    worker.on_encode = held
    added = await tenant.client.add_memory("mira", "Mira has a dog.")
    [status] = added.memory.encode_status
    assert status.state is EncodeState.PENDING
    go_on.set()
    memory = await tenant.encoded("mira", added.memory.memory_id)
    [status] = memory.encode_status
    assert (status.state, status.reason, status.num_tokens) == (EncodeState.DONE, "", 4)
    assert (status.model_revision, status.recipe) == (f"{tenant.model}@1", "progressive-32")


async def test_each_model_of_the_tenant_encodes_the_fact(control: Control) -> None:
    tenant = await control.tenant(models=["small-a", "small-b"])
    await control.worker("small-a")
    await control.worker("small-b")
    added = await tenant.client.add_memory("mira", "Mira has a dog.")
    memory = await tenant.encoded("mira", added.memory.memory_id)
    assert [status.model_revision for status in memory.encode_status] == ["small-a@1", "small-b@1"]


async def test_a_fact_that_cannot_be_encoded_says_why(tenant: Tenant, worker: FakeWorker) -> None:
    async def too_long(
        request: worker_pb2.EncodeRequest,
    ) -> AsyncIterator[worker_pb2.EncodeResponse]:
        async for response in worker.encode(request):
            response.state = common_pb2.ENCODE_STATE_FAILED
            response.reason = "too_long"
            yield response

    worker.on_encode = too_long
    added = await tenant.client.add_memory("mira", "Mira has a dog.")

    async def has_failed() -> bool:
        memory = await tenant.client.get_memory("mira", added.memory.memory_id)
        [status] = memory.encode_status
        return (status.state, status.reason) == (EncodeState.FAILED, "too_long")

    assert await eventually(has_failed)


async def test_facts_added_before_any_worker_exist_are_encoded_when_one_joins(
    control: Control, tenant: Tenant
) -> None:
    added = await tenant.client.batch_add_memories("mira", [NewMemory("One."), NewMemory("Two.")])
    await control.worker(tenant.model)
    for item in added.items:
        assert item.memory is not None
        await tenant.encoded("mira", item.memory.memory_id)


async def test_a_job_waits_for_a_worker_that_is_away(tenant: Tenant, worker: FakeWorker) -> None:
    await worker.stop()
    added = await tenant.client.add_memory("mira", "Mira has a dog.")
    await asyncio.sleep(0.3)
    await worker.start()
    await worker.join()
    await tenant.encoded("mira", added.memory.memory_id)


async def test_a_stream_that_breaks_is_taken_up_and_keeps_what_it_gave(
    tenant: Tenant, worker: FakeWorker, database: Database
) -> None:
    async def breaks(request: worker_pb2.EncodeRequest) -> AsyncIterator[worker_pb2.EncodeResponse]:
        worker.on_encode = worker.encode
        async for response in worker.encode(request):
            yield response
            raise RuntimeError("the engine is gone")

    worker.on_encode = breaks
    added = await tenant.client.batch_add_memories("mira", [NewMemory("One."), NewMemory("Two.")])
    memories = [item.memory for item in added.items if item.memory]
    for memory in memories:
        await tenant.encoded("mira", memory.memory_id)
    assert len(worker.encode_requests) == 2


async def test_a_result_of_the_old_revision_is_discarded(
    tenant: Tenant, worker: FakeWorker
) -> None:
    """The update lands while the old revision is being encoded; its result comes afterwards."""
    started, go_on = asyncio.Event(), asyncio.Event()

    async def late(request: worker_pb2.EncodeRequest) -> AsyncIterator[worker_pb2.EncodeResponse]:
        worker.on_encode = worker.encode
        results = [response async for response in worker.encode(request)]
        started.set()
        await go_on.wait()
        for result in results:
            yield result

    worker.on_encode = late
    added = await tenant.client.add_memory("mira", "The code is 4471.")
    await started.wait()
    updated = await tenant.client.update_memory("mira", added.memory.memory_id, "The code is 4472.")
    [status] = updated.memory.encode_status
    assert status.state is EncodeState.PENDING
    go_on.set()
    memory = await tenant.encoded("mira", added.memory.memory_id)
    assert memory.revision == 2
    assert [r.user.kv_epoch for r in worker.encode_requests[:2]] == [0, 1]
    assert [r.user.memory_version for r in worker.encode_requests[:2]] == [1, 2]


async def test_a_result_that_saw_a_deleted_fact_is_discarded(
    tenant: Tenant, worker: FakeWorker
) -> None:
    """B was encoded behind A when A is deleted: the edge must not come back to life."""
    code = await tenant.client.add_memory("mira", "The alarm code is 4471.")
    await tenant.encoded("mira", code.memory.memory_id)
    started, go_on = asyncio.Event(), asyncio.Event()

    async def late(request: worker_pb2.EncodeRequest) -> AsyncIterator[worker_pb2.EncodeResponse]:
        worker.on_encode = worker.encode
        results = [response async for response in worker.encode(request)]
        started.set()
        await go_on.wait()
        for result in results:
            yield result

    worker.on_encode = late
    serviced = await tenant.client.add_memory("mira", "The alarm was serviced in May.")
    await started.wait()
    await tenant.client.delete_memory("mira", code.memory.memory_id)
    go_on.set()
    await tenant.encoded("mira", serviced.memory.memory_id)
    held = worker.users[f"{tenant.tenant_id}/mira"]
    assert list(held.chunks[serviced.memory.memory_id].prefix_facts) == []


async def test_a_dropped_fact_says_so_until_it_is_encoded_again(
    tenant: Tenant, worker: FakeWorker
) -> None:
    code = await tenant.client.add_memory("mira", "The alarm code is 4471.")
    serviced = await tenant.client.add_memory("mira", "The alarm was serviced in May.")
    await tenant.encoded("mira", serviced.memory.memory_id)
    go_on = asyncio.Event()

    async def held(request: worker_pb2.EncodeRequest) -> AsyncIterator[worker_pb2.EncodeResponse]:
        await go_on.wait()
        async for response in worker.encode(request):
            yield response

    worker.on_encode = held
    await tenant.client.delete_memory("mira", code.memory.memory_id)
    memory = await tenant.client.get_memory("mira", serviced.memory.memory_id)
    [status] = memory.encode_status
    assert (status.state, status.reason) == (EncodeState.DROPPED, "saw_deleted")
    go_on.set()
    await tenant.encoded("mira", serviced.memory.memory_id)


async def test_a_worker_that_has_restarted_encodes_its_users_again(
    tenant: Tenant, worker: FakeWorker
) -> None:
    added = await tenant.client.add_memory("mira", "Mira has a dog.")
    await tenant.encoded("mira", added.memory.memory_id)
    await worker.stop()
    await worker.start()
    await worker.join()

    async def is_held() -> bool:
        held = worker.users.get(f"{tenant.tenant_id}/mira")
        return held is not None and added.memory.memory_id in held.chunks

    assert await eventually(is_held)


async def test_the_encode_span_is_linked_to_the_add_that_caused_it(
    tenant: Tenant, worker: FakeWorker
) -> None:
    with captured() as capture:

        async def own_jobs() -> list[ReadableSpan]:
            """Jobs that earlier tests left behind run as well, with spans of their own."""
            own = {names.TENANT_ID: tenant.tenant_id}.items()
            return [span for span in capture.spans(names.ENCODE) if own <= span.attributes.items()]

        await tenant.client.add_memory("mira", "Mira has a dog.")
        [encode] = await eventually(own_jobs)
        [add] = capture.spans(names.ADD_MEMORY)
    assert [link.context.trace_id for link in encode.links] == [add.context.trace_id]
    assert [link.context.span_id for link in encode.links] == [add.context.span_id]
    assert "dog" not in capture.everything()
