"""Chats: what is refused, who serves them, what they see, and how they end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from inferscale_core.client import ChatMessage, Retrieved, Sampling, Scoring, ServingMode
from inferscale_core.errors import (
    AnswerWithdrawn,
    EngineError,
    InferScaleError,
    InvalidInput,
    Unavailable,
)
from inferscale_core.rpc.channel import open_channel
from inferscale_core.rpc.pb.inferscale.v1 import chat_pb2, common_pb2, worker_pb2
from inferscale_core.rpc.pb.inferscale.v1.chat_pb2_grpc import ChatServiceStub
from tests.control.fake_worker import FakeWorker, delta, endless
from tests.control.harness import Control, Tenant, eventually


@pytest.fixture
async def worker(control: Control, tenant: Tenant) -> FakeWorker:
    return await control.worker(tenant.model)


async def test_a_chat_streams_what_its_worker_says(tenant: Tenant, worker: FakeWorker) -> None:
    added = await tenant.client.add_memory("mira", "Mira has a dog.")
    answer = await tenant.client.chat("mira", "Any pets?").answer()
    assert answer.text == "Mira has a dog.\n"
    assert answer.done.finish_reason == "stop"
    assert answer.retrieved is not None
    assert [fact.memory_id for fact in answer.retrieved.facts] == [added.memory.memory_id]
    assert answer.retrieved.worker_id == worker.worker_id


async def test_the_worker_is_asked_what_the_client_asked(
    tenant: Tenant, worker: FakeWorker
) -> None:
    await tenant.client.add_memory("mira", "Mira has a dog.")
    await tenant.client.chat(
        "mira",
        [ChatMessage("system", "Be brief."), ChatMessage("user", "Any pets?")],
        k=7,
        sampling=Sampling(temperature=0.5, max_tokens=9, seed=3, stop=["."]),
        mode=ServingMode.TEXT,
        timed=True,
        text_facts=3,
        scoring=Scoring("A dog.", [5, 7]),
    ).answer()
    [request] = worker.generate_requests
    assert [message.role for message in request.messages] == ["system", "user"]
    assert (request.k, request.timed, request.text_facts) == (7, True, 3)
    assert request.mode == common_pb2.SERVING_MODE_TEXT
    assert (request.scoring.answer, [*request.scoring.compared_token_ids]) == ("A dog.", [5, 7])
    assert (request.sampling.max_tokens, request.sampling.seed) == (9, 3)
    assert list(request.sampling.stop) == ["."]
    assert (request.user.tenant_id, request.user.user_id) == (tenant.tenant_id, "mira")
    assert (request.user.memory_version, request.user.kv_epoch) == (1, 0)


async def test_k_defaults_to_20_and_may_be_0(tenant: Tenant, worker: FakeWorker) -> None:
    await tenant.client.chat("mira", "Hello?").answer()
    await tenant.client.chat("mira", "Hello?", k=0).answer()
    assert [request.k for request in worker.generate_requests] == [20, 0]
    has_number = worker.generate_requests[0].HasField("text_facts")
    assert not has_number, "the recipe says how many facts go as text"


async def test_a_chat_after_an_update_sees_nothing_older(
    tenant: Tenant, worker: FakeWorker
) -> None:
    added = await tenant.client.add_memory("mira", "The code is 4471.")
    await tenant.encoded("mira", added.memory.memory_id)
    await tenant.client.update_memory("mira", added.memory.memory_id, "The code is 4472.")
    answer = await tenant.client.chat("mira", "Which code?").answer()
    assert answer.text == "The code is 4472.\n"
    user = worker.generate_requests[-1].user
    assert (user.memory_version, user.kv_epoch) == (2, 1)


async def test_a_chat_after_a_delete_sees_nothing_of_the_fact(
    control: Control, tenant: Tenant, worker: FakeWorker
) -> None:
    second = await control.worker(tenant.model)
    added = await tenant.client.add_memory("mira", "The code is 4471.")
    await tenant.encoded("mira", added.memory.memory_id)
    assert "4471" in (await tenant.client.chat("mira", "Which code?").answer()).text
    await tenant.client.delete_memory("mira", added.memory.memory_id)
    for draining in (worker, second):
        await draining.join(draining=True)
        for _ in range(10):
            assert (await tenant.client.chat("mira", "Which code?").answer()).text == ""
        await draining.join()
    assert {bool(w.generate_requests) for w in (worker, second)} == {True}


async def test_facts_that_had_no_chunk_are_encoded_for_the_next_chat(
    tenant: Tenant, worker: FakeWorker
) -> None:
    added = await tenant.client.add_memory("mira", "Mira has a dog.")
    await tenant.encoded("mira", added.memory.memory_id)
    held = worker.users[f"{tenant.tenant_id}/mira"]
    held.chunks.clear()
    await tenant.client.chat("mira", "Any pets?").answer()

    async def is_encoded() -> bool:
        return bool(held.chunks)

    assert await eventually(is_encoded)


async def test_a_user_stays_with_one_worker(control: Control, tenant: Tenant) -> None:
    workers = [await control.worker(tenant.model) for _ in range(3)]
    for number in range(12):
        for _ in range(3):
            await tenant.client.chat(f"user-{number}", "Hello?").answer()
    for worker in workers:
        users = [request.user.user_id for request in worker.generate_requests]
        assert all(len(list(group)) == 3 for _, group in itertools.groupby(users))
    assert sum(bool(worker.generate_requests) for worker in workers) > 1


async def test_a_draining_worker_gets_no_new_chat(
    control: Control, tenant: Tenant, worker: FakeWorker
) -> None:
    await worker.join(draining=True)
    with pytest.raises(Unavailable, match=f"no worker of model '{tenant.model}' is available"):
        await tenant.client.chat("mira", "Hello?").answer()
    second = await control.worker(tenant.model)
    await tenant.client.chat("mira", "Hello?").answer()
    assert len(second.generate_requests) == 1


async def test_a_chat_passes_over_a_worker_that_does_not_answer(
    control: Control, tenant: Tenant
) -> None:
    workers = [await control.worker(tenant.model) for _ in range(2)]
    await tenant.client.chat("mira", "Hello?").answer()
    [owner] = [worker for worker in workers if worker.generate_requests]
    await owner.stop()
    answer = await tenant.client.chat("mira", "Hello?").answer()
    assert answer.retrieved is not None
    assert answer.retrieved.worker_id != owner.worker_id


async def test_a_chat_that_has_begun_is_not_begun_again_elsewhere(
    control: Control, tenant: Tenant
) -> None:
    workers = [await control.worker(tenant.model) for _ in range(2)]

    async def breaks(
        request: worker_pb2.GenerateRequest,
    ) -> AsyncIterator[worker_pb2.GenerateResponse]:
        yield delta("So")
        raise Unavailable("the engine stops")

    for worker in workers:
        worker.on_generate = breaks
    with pytest.raises(Unavailable):
        await tenant.client.chat("mira", "Hello?").answer()
    assert sum(len(worker.generate_requests) for worker in workers) == 1


async def test_a_worker_whose_lease_is_over_gets_no_chat(control: Control, tenant: Tenant) -> None:
    await control.worker(tenant.model)
    control.app.parts.directory.lease_s = 0.2
    await asyncio.sleep(0.3)
    control.app.parts.directory.refresh_soon()
    with pytest.raises(Unavailable):
        await tenant.client.chat("mira", "Hello?").answer()


@pytest.mark.parametrize(
    "error", [EngineError("request 7 failed"), AnswerWithdrawn("memory 'm-7' was deleted")]
)
async def test_what_ends_an_answer_reaches_the_client_as_itself(
    tenant: Tenant, worker: FakeWorker, error: InferScaleError
) -> None:
    async def fails(
        request: worker_pb2.GenerateRequest,
    ) -> AsyncIterator[worker_pb2.GenerateResponse]:
        yield delta("It is in ")
        raise error

    worker.on_generate = fails
    with pytest.raises(type(error), match=str(error)):
        await tenant.client.chat("mira", "Hello?").answer()


async def test_a_client_that_leaves_ends_the_workers_request(
    tenant: Tenant, worker: FakeWorker
) -> None:
    worker.on_generate = endless
    async with tenant.client.chat("mira", "Hello?") as chat:
        await anext(chat)
        await anext(chat)

    async def was_cancelled() -> bool:
        return worker.cancelled == 1

    assert await eventually(was_cancelled, within_s=2)


async def test_a_deadline_of_the_client_ends_the_workers_request(
    control: Control, tenant: Tenant, worker: FakeWorker
) -> None:
    worker.on_generate = endless
    async with _stub(control, tenant) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            async for _ in stub.Chat(_request(), timeout=0.3):
                pass
    assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    async def was_cancelled() -> bool:
        return worker.cancelled == 1

    assert await eventually(was_cancelled, within_s=2)


async def test_a_model_that_the_tenant_has_not_is_refused_with_those_it_has(
    control: Control,
) -> None:
    tenant = await control.tenant(models=["alpha", "beta"])
    with pytest.raises(InvalidInput, match="'gamma' is not one of this tenant's: alpha, beta"):
        await tenant.client.chat("mira", "Hello?", model="gamma").answer()


async def test_a_named_model_is_the_one_that_answers(control: Control) -> None:
    tenant = await control.tenant(models=["first-model", "second-model"])
    first = await control.worker("first-model")
    second = await control.worker("second-model")
    await tenant.client.chat("mira", "Hello?").answer()
    await tenant.client.chat("mira", "Hello?", model="second-model").answer()
    assert (len(first.generate_requests), len(second.generate_requests)) == (1, 1)


async def test_a_version_above_the_users_is_refused(tenant: Tenant, worker: FakeWorker) -> None:
    await tenant.client.add_memory("mira", "Mira has a dog.")
    with pytest.raises(InvalidInput, match="9 is above the user's version 1"):
        await tenant.client.chat("mira", "Hello?", min_memory_version=9).answer()
    events = [e async for e in tenant.client.chat("mira", "Hello?", min_memory_version=1)]
    assert isinstance(events[0], Retrieved)
    assert events[0].memory_version >= 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"user_id": ""}, "user_id"),
        ({"user_id": "u" * 257}, "user_id"),
        ({"k": 201}, "k"),
        ({"k": 5, "text_facts": 6}, "text_facts"),
        ({"text_facts": 21}, "text_facts"),
        ({"messages": []}, "messages"),
        ({"messages": [common_pb2.Message(role="user", content="x")] * 201}, "messages"),
        ({"messages": [common_pb2.Message(role="tool", content="x")]}, "messages[0].role"),
        ({"messages": [common_pb2.Message(role="assistant", content="x")]}, "messages[0].role"),
        ({"messages": [common_pb2.Message(role="user")]}, "messages[0].content"),
        ({"sampling": common_pb2.Sampling(temperature=2.1)}, "sampling.temperature"),
        ({"sampling": common_pb2.Sampling(temperature=float("nan"))}, "sampling.temperature"),
        ({"sampling": common_pb2.Sampling(top_p=0)}, "sampling.top_p"),
        ({"sampling": common_pb2.Sampling(top_p=1.5)}, "sampling.top_p"),
        ({"sampling": common_pb2.Sampling(top_p=float("nan"))}, "sampling.top_p"),
        ({"sampling": common_pb2.Sampling(max_tokens=0)}, "sampling.max_tokens"),
        ({"sampling": common_pb2.Sampling(max_tokens=4097)}, "sampling.max_tokens"),
        ({"sampling": common_pb2.Sampling(max_tokens=4, min_tokens=5)}, "sampling.min_tokens"),
        ({"sampling": common_pb2.Sampling(stop=["x"] * 9)}, "sampling.stop"),
        ({"sampling": common_pb2.Sampling(stop=[""])}, "sampling.stop[0]"),
        ({"mode": 77}, "mode"),
        ({"scoring": chat_pb2.Scoring()}, "scoring.answer"),
        ({"scoring": chat_pb2.Scoring(answer="x" * 2_001)}, "scoring.answer"),
        (
            {"scoring": chat_pb2.Scoring(answer="x", compared_token_ids=[1] * 129)},
            "scoring.compared_token_ids",
        ),
    ],
)
async def test_a_request_out_of_range_is_refused_by_field(
    control: Control, tenant: Tenant, worker: FakeWorker, changes: dict[str, Any], field: str
) -> None:
    async with _stub(control, tenant) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async for _ in stub.Chat(_request(**changes), timeout=5):
                pass
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(refused.value.details()).startswith(f"{field}: ")
    assert worker.generate_requests == []


def _request(**changes: Any) -> chat_pb2.ChatRequest:
    fields: dict[str, Any] = {
        "user_id": "mira",
        "messages": [common_pb2.Message(role="user", content="Hello?")],
    }
    return chat_pb2.ChatRequest(**{**fields, **changes})


class _stub:
    """The generated stub, for what the client library does not let through."""

    def __init__(self, control: Control, tenant: Tenant) -> None:
        self._channel = open_channel(control.address, tenant.api_key)

    async def __aenter__(self) -> ChatServiceStub:
        return ChatServiceStub(self._channel)

    async def __aexit__(self, *exc: object) -> None:
        await self._channel.close(None)
