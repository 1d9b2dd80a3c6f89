"""Deletes and updates on a real engine, over real gRPC: what has seen them is gone, bit for bit.

One engine serves the module; each test has a user of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
import pytest
import pytest_asyncio

from inferscale_core.errors import AnswerWithdrawn
from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.recipes import recipe_by_name
from inferscale_core.rpc.pb.inferscale.v1 import common_pb2, worker_pb2
from inferscale_core.rpc.status import error_from
from inferscale_core.vllm_connector.events import EventKind
from services.worker.app import RunningEngine
from services.worker.engine.protocol import EngineOutput, EngineRequest
from tests.worker.real_worker import Chat, RealWorker, real_engine, real_worker

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

OLD_CODE = FactRef(FactId("f01"), 1)
TURNS = [
    "The office has moved",
    "To Harbour Street",
    "Who has the spare key",
    "It is in the drawer",
    "Robin will fetch it",
    "The alarm went off again",
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningEngine]:
    async with real_engine(tmp_path_factory.mktemp("models")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(engine: RunningEngine) -> AsyncIterator[RealWorker]:
    async with real_worker(engine) as worker:
        yield worker


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["window-5", "header-window-50"]
)
async def window_worker(
    engine: RunningEngine, request: pytest.FixtureRequest
) -> AsyncIterator[RealWorker]:
    """Encodes one fact at a time: sums over more rows may be rounded otherwise (by 5e-7 here)."""
    async with real_worker(engine, recipe_by_name(request.param), encode_batch=1) as worker:
        yield worker


async def test_after_a_delete_the_user_equals_one_who_never_had_the_fact(
    worker: RealWorker,
) -> None:
    user_id = "deleting"
    worker.fill(user_id)
    before = await worker.encode(user_id)
    dependants = {
        i for i, r in before.items() if "f01" in {fact.fact_id for fact in r.prefix_facts}
    }
    assert dependants
    worker.control.remove("f01", user_id)
    purged = await worker.forget(user_id, "f01")
    assert purged.user_cache == 1
    assert purged.arena_chunks == purged.dependants + 1 >= len(dependants) + 1
    after = await worker.encode(user_id)
    assert {r.already_resident for i, r in after.items() if i in dependants} == {False}
    logprobs = await worker.top_logprobs(user_id)

    await worker.forget(user_id, *after)
    worker.parts.users.drop(worker.control.at(user_id).scope)
    worker.control.user(user_id).removed.clear()
    fresh = await worker.encode(user_id)
    assert not any(result.already_resident for result in fresh.values())
    digests = {i: r.chunk_digest for i, r in fresh.items()}
    assert digests == {i: r.chunk_digest for i, r in after.items()}
    assert await worker.top_logprobs(user_id) == logprobs


async def test_chunks_that_saw_a_fact_are_others_than_those_that_did_not(
    worker: RealWorker,
) -> None:
    """Without this the test before could not fail."""
    worker.fill("saw")
    await worker.encode("saw")
    seen = await worker.top_logprobs("saw")
    worker.control.remove("f01", "saw")
    await worker.forget("saw", "f01")
    await worker.encode("saw")
    assert await worker.top_logprobs("saw") != seen


def fill_from_turns(worker: RealWorker, user_id: str, without: str = "") -> None:
    """Facts from four of the turns, each of which has the turns before it in its window."""
    for position, text in enumerate(TURNS):
        if f"t{position}" != without:
            worker.control.add_turn(f"t{position}", position, text, user_id)
    for position in (1, 3, 4, 5):
        turn_ids = (f"t{position}",)
        worker.control.add(f"f{position}", TURNS[position], user_id, turn_ids=turn_ids)


async def test_after_a_turn_is_deleted_the_user_equals_one_who_never_had_it(
    window_worker: RealWorker,
) -> None:
    """t2 stood in the windows of all facts behind it."""
    worker = window_worker
    # Each recipe's control counts versions from 1, and the engine that both share remembers them.
    recipe = worker.parts.rules.recipe.name
    user_id, other_id = f"deleted-{recipe}", f"never-{recipe}"
    fill_from_turns(worker, user_id)
    before = await worker.encode(user_id)
    saw = {i for i, result in before.items() if "t2" in result.prefix_turn_ids}
    assert saw == {"f3", "f4", "f5"}
    with_turn = await worker.top_logprobs(user_id)
    worker.control.remove("t2", user_id)
    purged = await worker.forget(user_id, turn_ids=["t2"])
    assert purged.arena_chunks == len(saw)
    after = await worker.encode(user_id)
    assert {i for i, result in after.items() if not result.already_resident} == saw
    assert all("t2" not in result.prefix_turn_ids for result in after.values())
    without_turn = await worker.top_logprobs(user_id)

    fill_from_turns(worker, other_id, without="t2")
    never = await worker.encode(other_id)
    assert not any(result.already_resident for result in never.values())
    assert await worker.top_logprobs(other_id) == without_turn
    assert with_turn != without_turn, "the turn must have shown"


class Held:
    """Stops the engine's request that encodes one fact revision, at one of two places.

    before   it has been planned, and the engine has not seen it
    after    the engine has stored the chunk, and its caller has not heard of it
    """

    def __init__(self, worker: RealWorker, fact: FactRef, place: str) -> None:
        self._stream = worker.running.host.stream
        self._reports = worker.running.reports
        self._fact = fact
        self._place = place
        self.key = ChunkKey("")
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.refusal = ""
        self.asked_for: list[set[ChunkKey]] = []
        """Keys that requests without a capture, which are chats, asked to inject."""

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        capture = request.params.capture
        if capture is None and request.params.forget is None:
            self.asked_for.append({span.key for span in request.params.spans})
        is_it = capture is not None and capture.fact == self._fact
        if capture is not None and is_it:
            self.key = capture.key
        if is_it and self._place == "before":
            await self._hold()
        async with aclosing(self._stream(request)) as outputs:
            async for output in outputs:
                yield output
        if is_it and self._place == "before":
            report = self._reports._by_handle[request.params.handle]
            event = await report.first_of({EventKind.CAPTURE_REFUSED}, 5)
            self.refusal = event.fields["reason"] if event else "none"
        if is_it and self._place == "after":
            await self._hold()

    async def _hold(self) -> None:
        self.reached.set()
        await self.go_on.wait()


@pytest.mark.parametrize("place", ["before", "after"])
async def test_an_update_while_the_old_revision_is_encoded_discards_what_comes_late(
    worker: RealWorker, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    user_id = f"racing-{place}"
    worker.fill(user_id)
    held = Held(worker, OLD_CODE, place)
    monkeypatch.setattr(worker.running.host, "stream", held.stream)

    async def encode() -> list[worker_pb2.EncodeResponse]:
        request = worker_pb2.EncodeRequest(user=worker.ref(user_id))
        return [result async for result in worker.stub.Encode(request)]

    encoding = asyncio.create_task(encode())
    await asyncio.wait_for(held.reached.wait(), 10)
    async with asyncio.timeout(5):
        while place == "after" and held.key not in worker.parts.mirror:
            await asyncio.sleep(0.01)
    worker.control.add("f01", "The alarm code is 9920", user_id)
    purged = await worker.forget(user_id, "f01")
    assert purged.arena_chunks == (1 if place == "after" else 0)

    await _sees_the_update(worker, user_id, common_pb2.SERVING_PREFILLED)
    held.go_on.set()
    late = [result for result in await encoding if result.fact.fact_id == "f01"]
    assert {result.fact.revision for result in late} == {2}
    assert held.refusal == ("fenced" if place == "before" else "")
    await _sees_the_update(worker, user_id, common_pb2.SERVING_INJECTED)
    assert len(held.asked_for) == 2
    assert all(held.key not in keys for keys in held.asked_for)

    results = await worker.encode(user_id)
    scope = worker.control.at(user_id).scope
    stored = {chunk.key.rpartition("/")[2] for chunk in worker.parts.mirror.of_scope(scope)}
    assert stored == {result.chunk_digest for result in results.values()}
    assert held.key.rpartition("/")[2] not in stored


async def _sees_the_update(worker: RealWorker, user_id: str, serving: int) -> None:
    chat = await worker.chat(user_id)
    [code] = [fact for fact in chat.served.facts if fact.memory_id == "f01"]
    assert (code.revision, code.text) == (2, "The alarm code is 9920")
    assert code.serving == serving


ENDLESS = common_pb2.Sampling(max_tokens=4096, min_tokens=4096)
SLOTS = 16
"""Of the engine: so many requests at once."""


@pytest.mark.parametrize("mode", [common_pb2.SERVING_MODE_INJECTED, common_pb2.SERVING_MODE_TEXT])
async def test_an_answer_that_streams_is_out_of_the_engine_when_the_delete_is_acknowledged(
    worker: RealWorker, mode: common_pb2.ServingMode
) -> None:
    user_id = f"streaming-{mode}"
    worker.fill(user_id)
    await worker.encode(user_id)
    stream = worker.stub.Generate(worker.question(user_id, sampling=ENDLESS, mode=mode))
    await _read_until(stream, "delta")
    worker.control.remove("f01", user_id)
    purged = await worker.forget(user_id, "f01")
    assert _num_in_engine(worker) == 0
    assert (purged.user_cache, purged.pending_chunks) == (1, 0)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        async for _ in stream:
            pass
    assert ended.value.code() is grpc.StatusCode.ABORTED
    assert isinstance(error_from(ended.value), AnswerWithdrawn)
    assert len(worker.running.reports) == 0
    facts = (await worker.chat(user_id, mode=mode)).served.facts
    assert "f01" not in {fact.memory_id for fact in facts}


async def test_a_chat_that_waits_in_the_engine_is_answered_without_what_was_deleted(
    worker: RealWorker,
) -> None:
    """All places of the engine are taken by others until the chat was planned again."""
    user_id = "waiting"
    worker.fill(user_id)
    await worker.encode(user_id)
    others = [
        worker.stub.Generate(worker.question("nobody", k=0, sampling=ENDLESS)) for _ in range(SLOTS)
    ]
    await asyncio.gather(*(_read_until(other, "delta") for other in others))
    asking = asyncio.create_task(worker.chat(user_id))
    await _until_in_engine(worker, SLOTS + 1)
    worker.control.remove("f01", user_id)
    forgetting = asyncio.create_task(worker.forget(user_id, "f01"))
    await _until_in_engine(worker, SLOTS + 2)
    for other in others:
        other.cancel()
    await forgetting
    chat: Chat = await asking
    first, second = (
        {fact.memory_id for fact in event.response.retrieved.facts}
        for event in chat.events
        if event.response.HasField("retrieved")
    )
    assert second == first - {"f01"} != first
    assert {fact.memory_id for fact in chat.served.facts} == second
    assert chat.done.usage.completion_tokens == 8
    await _until_in_engine(worker, 0)


async def _read_until(stream: Any, event: str) -> None:
    async for one in stream:
        if one.response.HasField(event):
            return


def _num_in_engine(worker: RealWorker) -> int:
    number: int = worker.running.host._llm.output_processor.get_num_unfinished_requests()
    return number


async def _until_in_engine(worker: RealWorker, number: int) -> None:
    async with asyncio.timeout(30):
        while _num_in_engine(worker) != number:
            await asyncio.sleep(0.01)
