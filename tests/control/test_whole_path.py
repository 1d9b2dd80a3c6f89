"""From AddMemory to the first token and on to the receipt of a delete, with nothing in place of a
real part: Postgres, a control process, the packaged embedder, a worker process, vLLM and our
connector, which export their traces over OTLP.

One worker serves the module; each test has a user of its own. The last test restarts it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from inferscale_core.client import (
    AsyncInferScale,
    AsyncOperator,
    ChatAnswer,
    Delta,
    Done,
    EncodeState,
    Memory,
    NewMemory,
    Sampling,
    Serving,
    ServingMode,
)
from inferscale_core.errors import AnswerWithdrawn, InvalidInput
from inferscale_core.memory.recipes import DEFAULT_RECIPE
from inferscale_core.telemetry import names
from tests.control.control_process import PACKAGED_DIMENSION, ControlProcess, environment
from tests.control.harness import NO_RETRY, OPERATOR_TOKEN, eventually
from tests.control.worker_process import MODEL, WorkerProcess, save_model
from tests.fixtures_postgres import Database
from tests.otlp_collector import Collector, Exported, collecting
from tests.telemetry_capture import captured

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
MAX_USERS_CACHED = 2
TOO_LONG = "responsibility " * 100
"""A long word is one token of MiniLM, and nearly one for each letter of the tiny model."""
TOO_EARLY_TO_COUNT = "early"
"""The user to whom it is added before the worker has joined."""

Step = tuple[str, str]
"""Service and name of a span."""
CLIENT = ("client", "inferscale.v1.ChatService/Chat")
CHAT = ("inferscale-control", "inferscale.v1.ChatService/Chat")
GENERATE = ("inferscale-worker", "inferscale.v1.WorkerService/Generate")
SYNC = ("inferscale-worker", names.SYNC)
LIST_CHANGES = ("inferscale-control", "inferscale.v1.SyncService/ListChanges")
STEPS = (names.EMBED, names.RETRIEVE, names.PLAN, names.QUEUE, names.INJECT, names.PREFILL)
PARENT_IN_A_CHAT = {
    CHAT: CLIENT,
    GENERATE: CHAT,
    SYNC: GENERATE,
    LIST_CHANGES: SYNC,
    **{("inferscale-worker", step): GENERATE for step in STEPS},
    ("inferscale-worker", names.EMBED): ("inferscale-worker", names.RETRIEVE),
}
ADD = ("inferscale-control", names.ADD_MEMORY)
ENCODE = ("inferscale-control", names.ENCODE)
WAVE = ("inferscale-worker", names.ENCODE_WAVE)


def step_of(span: Exported) -> Step:
    return span.service, span.name


class Whole:
    def __init__(
        self,
        client: AsyncInferScale,
        control: ControlProcess,
        worker: WorkerProcess,
        collector: Collector,
    ) -> None:
        self.client = client
        self.control = control
        self.worker = worker
        self.collector = collector

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

    async def exported(self, trace_id: str, wanted: Collection[Step]) -> list[Exported]:
        """The trace's spans, once those that are wanted have come."""

        async def have_come() -> list[Exported] | None:
            spans = [span for span in self.collector.spans if span.trace_id == trace_id]
            return spans if {step_of(span) for span in spans}.issuperset(wanted) else None

        return await eventually(have_come)

    async def job_caused_by(self, cause: Exported) -> Exported:
        """The attempt that encoded; those before it found no worker yet."""

        async def has_come() -> Exported | None:
            link = (cause.trace_id, cause.span_id)
            encoded = {span.trace_id for span in self.collector.spans if step_of(span) == WAVE}
            jobs = [span for span in self.collector.spans if link in span.links]
            return next((job for job in jobs if job.trace_id in encoded), None)

        return await eventually(has_come)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(
    database_factory: Callable[..., Database], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Whole]:
    folder = tmp_path_factory.mktemp("whole")
    database = database_factory(PACKAGED_DIMENSION)
    async with AsyncExitStack() as stack:
        collector = stack.enter_context(collecting())
        exporting = {
            "INFERSCALE_TELEMETRY__OTLP_ENDPOINT": collector.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        }
        control = ControlProcess(
            folder / "control.log",
            environment(database, INFERSCALE_CONTROL__DELETE_WAIT_S="30", **exporting),
        )
        stack.push_async_callback(control.kill)
        address = await control.start()
        operator = await stack.enter_async_context(AsyncOperator(address, OPERATOR_TOKEN))
        created = await operator.create_tenant("acme", [MODEL])
        client = AsyncInferScale(address, created.api_key, NO_RETRY)
        await stack.enter_async_context(client)
        await client.add_memory(TOO_EARLY_TO_COUNT, TOO_LONG)
        worker = WorkerProcess(
            address,
            save_model(folder),
            folder / "worker.log",
            INFERSCALE_WORKER__MAX_USERS_CACHED=str(MAX_USERS_CACHED),
            **exporting,
        )
        await worker.start()
        stack.push_async_callback(worker.kill)
        yield Whole(client, control, worker, collector)


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
    assert (status.state, status.recipe) == (EncodeState.DONE, DEFAULT_RECIPE.name)
    [residency] = memory.residency
    assert residency.worker_id == "real-worker"
    assert residency.model_revision == status.model_revision


async def test_a_fact_too_long_for_the_model_alone_is_refused_by_the_workers_count(
    whole: Whole,
) -> None:
    """One that was added before any worker could count fails visibly, with the same numbers."""
    user_id = TOO_EARLY_TO_COUNT

    async def has_failed() -> Memory | None:
        [memory] = (await whole.client.list_memories(user_id)).memories
        [status] = memory.encode_status
        return memory if status.state is EncodeState.FAILED else None

    memory = await eventually(has_failed, within_s=120)
    [status] = memory.encode_status
    assert status.num_tokens > 512
    assert status.reason == f"too_long: {status.num_tokens} tokens; at most 512 fit"
    answer = await whole.ask(user_id)
    assert answer.served is not None
    assert [f.serving for f in answer.served.facts] == [Serving.PREFILLED]

    with pytest.raises(InvalidInput) as refused:
        await whole.client.add_memory("late", TOO_LONG)
    assert refused.value.field == "memory.text"
    assert refused.value.problem == (
        f"{status.num_tokens} tokens of model {MODEL!r}; it takes at most 512"
    )


async def test_one_trace_runs_from_the_clients_chat_to_the_first_token(whole: Whole) -> None:
    """Other users push the facts out of the worker's cache of users, so that it has to sync."""
    with captured() as capture:
        await whole.client.add_memory("traced", SECRET)
        (adding,) = capture.spans("inferscale.v1.MemoryService/AddMemory")
    await whole.encoded("traced")
    for n in range(MAX_USERS_CACHED):
        await whole.ask(f"passing-{n}")
    with captured() as capture:
        answer = await whole.client.chat("traced", QUESTION, k=1, sampling=SHORT).answer()
        (chatting,) = await capture.all_spans(CLIENT[1], 1)
    assert answer.served is not None
    assert [fact.serving for fact in answer.served.facts] == [Serving.INJECTED]

    spans = await whole.exported(_hex(chatting.context.trace_id, 32), PARENT_IN_A_CHAT)
    step_by_id = {span.span_id: step_of(span) for span in spans}
    step_by_id[_hex(chatting.context.span_id, 16)] = CLIENT
    parents = [(step_of(span), step_by_id[span.parent_id]) for span in spans]
    assert sorted(parents) == sorted(PARENT_IN_A_CHAT.items())
    for span in spans:
        assert chatting.start_time <= span.start_ns <= span.end_ns <= chatting.end_time, span

    added = await whole.exported(_hex(adding.context.trace_id, 32), [ADD])
    [cause] = [span for span in added if step_of(span) == ADD]
    job = await whole.job_caused_by(cause)
    assert (step_of(job), job.parent_id) == (ENCODE, "")


async def test_no_text_is_exported_or_logged(whole: Whole) -> None:
    await whole.fill("quiet")
    await whole.ask("quiet")

    async def have_come() -> bool:
        exported = whole.collector.everything()
        return '"quiet"' in exported and names.CHAT_FACTS in exported

    await eventually(have_come)
    logs = whole.control.log.read_text() + whole.worker.log.read_text()
    for text in (QUESTION, *FACTS):
        assert text not in whole.collector.everything()
        assert text not in logs


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


async def test_an_answer_that_streams_is_ended_by_the_delete_and_the_client_is_told_why(
    whole: Whole,
) -> None:
    """The engine crawls until the answer has begun, and stands still from before the delete until
    it has ended. An answer that had come to its own end all the same, on a machine too busy to show
    it here, says nothing."""
    for user_id in ("streaming", "streaming-again", "streaming-once-more"):
        if await _is_ended_by_the_delete(whole, user_id):
            break
    else:
        pytest.fail("each of three answers was out before the delete")
    await _never_answers(whole, user_id, 1)


async def _is_ended_by_the_delete(whole: Whole, user_id: str) -> bool:
    """False when the answer came to its own end."""
    memory_ids = await whole.fill(user_id)
    endless = Sampling(temperature=0, max_tokens=4096, min_tokens=4096)
    reason = ""
    async with whole.client.chat(user_id, QUESTION, sampling=endless) as chat:
        with whole.worker.engine_slowed():
            while not isinstance(await anext(chat), Delta):
                pass
        with whole.worker.engine_stopped():
            deleting = asyncio.create_task(whole.client.delete_memory(user_id, memory_ids[SECRET]))
            try:
                async with asyncio.timeout(200):
                    [*_, last] = [event async for event in chat]
            except AnswerWithdrawn as withdrawn:
                reason = str(withdrawn)
    deleted = await deleting
    assert deleted.receipt.is_purged, deleted.receipt
    if reason:
        assert memory_ids[SECRET] in reason
        return True
    assert isinstance(last, Done), last
    assert last.finish_reason == "length"
    return False


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


def _hex(number: int, digits: int) -> str:
    return format(number, f"0{digits}x")
