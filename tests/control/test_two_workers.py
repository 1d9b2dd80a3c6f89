"""A delete that is asked about ever after, on two real workers of which one is started again.

Postgres, a control process and two worker processes with vLLM and our connector. With random
weights an answer says nothing of what the model knows; what it was given is told by the facts
retrieved, by how the engine served each, by the length of the prompt, and by the answer of a user
who never had the fact.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

from inferscale_core.client import AsyncInferScale, AsyncOperator, ChatAnswer, NewMemory, Serving
from inferscale_core.errors import InferScaleError, NotFound
from inferscale_core.ids import TenantId, UserId, WorkerId
from inferscale_core.memory.routing import owner_of
from tests.control.control_process import PACKAGED_DIMENSION, ControlProcess, environment
from tests.control.harness import NO_RETRY, OPERATOR_TOKEN, eventually
from tests.control.test_whole_path import FACTS, QUESTION, SECRET, SHORT
from tests.control.worker_process import MODEL, WorkerProcess, save_model
from tests.fixtures_postgres import Database

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

FIRST, SECOND = WorkerId("worker-first"), WorkerId("worker-second")
WITHOUT_SECRET = [text for text in FACTS if text != SECRET]


@dataclass
class Pair:
    client: AsyncInferScale
    control: ControlProcess
    tenant_id: TenantId
    first: WorkerProcess
    second: WorkerProcess

    def user_of_the_second(self, name: str) -> str:
        """A user whom the second worker serves as soon as it is there."""
        names = (f"{name}-{number}" for number in range(100))
        workers = (FIRST, SECOND)
        return next(n for n in names if owner_of(self.tenant_id, UserId(n), workers) == SECOND)

    async def fill(self, user_id: str, texts: list[str]) -> dict[str, str]:
        """Ids by text."""
        added = await self.client.batch_add_memories(user_id, [NewMemory(t) for t in texts])
        return {i.memory.text: i.memory.memory_id for i in added.items if i.memory}

    async def ask(self, user_id: str) -> ChatAnswer:
        return await self.client.chat(user_id, QUESTION, sampling=SHORT).answer()

    async def answered_from_kv(self, user_id: str, worker_id: WorkerId) -> ChatAnswer:
        """The first answer of this worker for which it computed no fact."""

        async def ask() -> ChatAnswer | None:
            try:
                answer = await self.ask(user_id)
            except InferScaleError:
                return None
            return answer if is_from_kv(answer) and worker_of(answer) == worker_id else None

        return await eventually(ask, within_s=30)

    async def started(self, worker: WorkerProcess, worker_id: WorkerId) -> None:
        """Returns when it has joined. Nothing is asked meanwhile: it needs the machine to start."""
        line = f"worker.joined worker_id={worker_id} "
        num_before = self.control.log.read_text().count(line)
        await worker.start()

        async def has_joined() -> bool:
            worker.require_running()
            return self.control.log.read_text().count(line) > num_before

        await eventually(has_joined, within_s=120)


def worker_of(answer: ChatAnswer) -> str:
    assert answer.retrieved is not None
    return answer.retrieved.worker_id


def is_from_kv(answer: ChatAnswer) -> bool:
    assert answer.served is not None
    return all(fact.serving is not Serving.PREFILLED for fact in answer.served.facts)


def prompt_tokens(answer: ChatAnswer) -> int:
    assert answer.served is not None
    return answer.served.usage.prompt_tokens


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(
    database_factory: Callable[..., Database], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pair]:
    """With the first worker started, and the second not yet."""
    folder = tmp_path_factory.mktemp("pair")
    settings = environment(
        database_factory(PACKAGED_DIMENSION), INFERSCALE_CONTROL__DELETE_WAIT_S="10"
    )
    control, model = ControlProcess(folder / "control.log", settings), save_model(folder)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(control.kill)
        address = await control.start()
        operator = await stack.enter_async_context(AsyncOperator(address, OPERATOR_TOKEN))
        created = await operator.create_tenant("acme", [MODEL])
        client = AsyncInferScale(address, created.api_key, NO_RETRY)
        await stack.enter_async_context(client)
        workers = [
            WorkerProcess(
                address,
                model,
                folder / f"{name}.log",
                INFERSCALE_WORKER__WORKER_ID=name,
                # A core for each: engines that share cores wait for each other's threads.
                VLLM_CPU_OMP_THREADS_BIND=core,
            )
            for name, core in ((FIRST, "0"), (SECOND, "1"))
        ]
        for worker in workers:
            stack.push_async_callback(worker.kill)
        pair = Pair(client, control, TenantId(created.tenant.tenant_id), *workers)
        await pair.started(pair.first, FIRST)
        yield pair


async def test_a_deleted_fact_is_in_no_answer_of_either_worker(pair: Pair) -> None:
    user_id, other_id = pair.user_of_the_second("robin"), pair.user_of_the_second("never")
    memory_ids = await pair.fill(user_id, FACTS)
    await pair.fill(other_id, WITHOUT_SECRET)
    # The first worker serves the user until the second is there. Then both hold its KV.
    await pair.answered_from_kv(user_id, FIRST)
    await pair.started(pair.second, SECOND)
    before = await pair.answered_from_kv(user_id, SECOND)
    assert before.served is not None
    num_secret_tokens = {f.text: f.num_tokens for f in before.served.facts}[SECRET]

    deleted = await pair.client.delete_memory(user_id, memory_ids[SECRET])
    assert deleted.receipt.is_purged, deleted.receipt
    num_dependants = len(deleted.receipt.dependant_memory_ids)
    for worker_id in (FIRST, SECOND):
        lines = [line for line in deleted.receipt.lines if line.worker_id == worker_id]
        counts = {line.holder: line.count for line in lines}
        assert set(counts) == {"user_cache", "arena", "host", "disk"}
        assert counts["user_cache"] == 1
        assert counts["arena"] >= 1 + num_dependants > 1
    with pytest.raises(NotFound):
        await pair.client.delete_memory(user_id, memory_ids[SECRET])

    async def never_answers(times: int, worker_id: WorkerId, *, first_since: bool = False) -> None:
        """first_since: the worker has not answered since the delete, so nothing that its engine
        still has cached of this very prompt may serve it."""
        for number in range(times):
            answer = await pair.ask(user_id)
            assert worker_of(answer) == worker_id
            assert answer.retrieved is not None
            assert answer.served is not None
            for facts in (answer.retrieved.facts, answer.served.facts):
                assert sorted(fact.text for fact in facts) == sorted(WITHOUT_SECRET)
            assert prompt_tokens(answer) == prompt_tokens(before) - num_secret_tokens
            usage = answer.served.usage
            if first_since and number == 0:
                assert usage.native_hit_tokens == 0

    await never_answers(5, SECOND, first_since=True)
    again = await pair.answered_from_kv(user_id, SECOND)
    never = await pair.answered_from_kv(other_id, SECOND)
    assert (again.text, prompt_tokens(again)) == (never.text, prompt_tokens(never))
    await never_answers(5, SECOND)

    await pair.second.kill()
    await never_answers(5, FIRST, first_since=True)
    await pair.started(pair.second, SECOND)
    restarted = await pair.answered_from_kv(user_id, SECOND)
    assert restarted.text == never.text
    await never_answers(5, SECOND)
