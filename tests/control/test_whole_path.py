"""From AddMemory to the first token and on to the receipt of a delete, with nothing in place of a
real part: Postgres, control, the packaged embedder, a worker process, vLLM and our connector.

One worker serves the module; each test has a user of its own. The last test restarts it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from inferscale_core.client import (
    AsyncInferScale,
    ChatAnswer,
    EncodeState,
    NewMemory,
    Sampling,
    Serving,
    ServingMode,
)
from inferscale_core.embedding import load_embedder
from inferscale_core.settings import EmbedderSettings
from tests.control.harness import Control, Tenant, eventually, settings_for
from tests.control.worker_process import MODEL, WorkerProcess, save_model
from tests.fixtures_postgres import Database

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

SECRET = "Robin keeps a spare key at the office."
FACTS = [
    "Mira plays the cello.",
    SECRET,
    "The spare key of the cellar is lost.",
    "Robin works at the office on Mondays.",
    "Mira is allergic to peanuts.",
    "Robin has a dog called Odo.",
]
QUESTION = "Where is the spare key?"
SHORT = Sampling(temperature=0, max_tokens=4)


class Whole:
    def __init__(self, tenant: Tenant, worker: WorkerProcess) -> None:
        self.tenant = tenant
        self.worker = worker

    @property
    def client(self) -> AsyncInferScale:
        return self.tenant.client

    async def fill(self, user_id: str) -> dict[str, str]:
        """Ids by text, once every fact is encoded."""
        added = await self.client.batch_add_memories(user_id, [NewMemory(t) for t in FACTS])
        await self.encoded(user_id)
        return {i.memory.text: i.memory.memory_id for i in added.items if i.memory}

    async def encoded(self, user_id: str, *, within_s: float = 120) -> None:
        async def all_done() -> bool:
            self.worker.require_running()
            page = await self.client.list_memories(user_id)
            return all(memory.is_encoded for memory in page.memories)

        await eventually(all_done, within_s=within_s)

    async def ask(self, user_id: str, mode: ServingMode = ServingMode.INJECTED) -> ChatAnswer:
        return await self.client.chat(user_id, QUESTION, sampling=SHORT, mode=mode).answer()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(
    database_factory: object, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Whole]:
    folder = tmp_path_factory.mktemp("whole")
    embedder = load_embedder(EmbedderSettings(device="cpu"))
    database: Database = database_factory(embedder.identity.dimension)  # type: ignore[operator]
    settings = settings_for(database, delete_wait_s=5.0)
    settings = settings.model_copy(update={"embedder": EmbedderSettings(device="cpu")})
    async with AsyncExitStack() as stack:
        control = Control(settings, embedder)
        await control.start()
        stack.push_async_callback(control.stop)
        tenant = await control.tenant(models=[MODEL])
        worker = WorkerProcess(control.address, save_model(folder), folder / "worker.log")
        await worker.start()
        stack.push_async_callback(worker.kill)
        yield Whole(tenant, worker)


async def test_facts_that_were_added_are_injected(whole: Whole) -> None:
    memory_ids = await whole.fill("reading")
    injected = await whole.ask("reading")
    text = await whole.ask("reading", ServingMode.TEXT)
    assert injected.served is not None
    assert text.served is not None
    assert {f.memory_id for f in injected.served.facts} == set(memory_ids.values())
    assert {f.serving for f in injected.served.facts} == {Serving.INJECTED}
    assert {f.serving for f in text.served.facts} == {Serving.PREFILLED}
    assert injected.served.usage.prompt_tokens == text.served.usage.prompt_tokens
    assert text.served.usage.injected_tokens == 0
    assert 1 <= injected.done.usage.completion_tokens <= 4


async def test_a_fact_is_in_the_chat_that_follows_its_add(whole: Whole) -> None:
    await whole.fill("writing")
    added = await whole.client.add_memory("writing", "The spare key is under the mat.")
    answer = await whole.ask("writing")
    assert answer.retrieved is not None
    assert answer.retrieved.memory_version >= added.memory_version
    assert added.memory.memory_id in {f.memory_id for f in answer.retrieved.facts}


async def test_a_memory_says_where_its_chunk_is(whole: Whole) -> None:
    memory_ids = await whole.fill("placing")
    memory = await whole.client.get_memory("placing", memory_ids[SECRET])
    [status] = memory.encode_status
    assert (status.state, status.recipe) == (EncodeState.DONE, "progressive-32")
    [residency] = memory.residency
    assert residency.worker_id == "real-worker"
    assert residency.model_revision == status.model_revision


async def test_a_fact_too_long_for_the_model_alone_fails_with_the_reason_and_is_text(
    whole: Whole,
) -> None:
    """A long word is one token of MiniLM, and nearly one for each letter of the tiny model."""
    added = await whole.client.add_memory("lengthy", "responsibility " * 100)

    async def has_failed() -> bool:
        memory = await whole.client.get_memory("lengthy", added.memory.memory_id)
        return [(s.state, s.reason) for s in memory.encode_status] == [
            (EncodeState.FAILED, "too_long")
        ]

    assert await eventually(has_failed, within_s=30)
    answer = await whole.ask("lengthy")
    assert answer.served is not None
    assert [f.serving for f in answer.served.facts] == [Serving.PREFILLED]


async def test_after_an_update_no_chat_holds_the_old_text(whole: Whole) -> None:
    memory_ids = await whole.fill("updating")
    await whole.ask("updating")
    updated = await whole.client.update_memory(
        "updating", memory_ids[SECRET], "Robin keeps a spare key at the bakery."
    )
    assert updated.dependants_dropped > 0
    for _ in range(3):
        answer = await whole.ask("updating")
        assert answer.served is not None
        texts = {f.memory_id: (f.revision, f.text) for f in answer.served.facts}
        assert texts[memory_ids[SECRET]] == (2, "Robin keeps a spare key at the bakery.")
    await whole.encoded("updating")


async def test_a_deleted_fact_never_answers_again(whole: Whole) -> None:
    memory_ids = await whole.fill("deleting")
    first = await whole.ask("deleting")
    assert first.served is not None
    assert SECRET in {f.text for f in first.served.facts if f.serving is Serving.INJECTED}
    deleted = await whole.client.delete_memory("deleting", memory_ids[SECRET])
    assert deleted.receipt.is_purged, deleted.receipt
    counts = {line.holder: line.count for line in deleted.receipt.lines if line.worker_id}
    assert counts["user_cache"] == 1
    assert counts["arena"] >= 1 + len(deleted.receipt.dependant_memory_ids)
    await _never_answers(whole, "deleting", 10)
    await whole.encoded("deleting")
    await _never_answers(whole, "deleting", 10)

    await whole.worker.kill()
    await whole.worker.start()

    async def is_injected_again() -> bool:
        whole.worker.require_running()
        try:
            answer = await whole.ask("deleting")
        except Exception:
            return False
        assert answer.served is not None
        return answer.served.usage.facts_injected == len(FACTS) - 1

    assert await eventually(is_injected_again, within_s=180)
    await _never_answers(whole, "deleting", 5)
    assert await whole.worker.terminate() == 0


async def _never_answers(whole: Whole, user_id: str, times: int) -> None:
    for _ in range(times):
        answer = await whole.ask(user_id)
        assert answer.served is not None
        assert len(answer.served.facts) == len(FACTS) - 1
        assert SECRET not in {fact.text for fact in answer.served.facts}
