"""A delete that finds chats on their way: none goes on with what it was given and is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from inferscale_core.errors import AnswerWithdrawn, Unavailable
from inferscale_core.ids import FactId, TurnId
from inferscale_core.memory.recipes import Recipe
from services.worker.engine.protocol import EngineRequest, NextToken, SamplingOptions
from services.worker.forget import Purged
from services.worker.generate import ChatEvent, Delta, Done, Retrieved, Scored, Scoring, Served
from services.worker.planner import ChatPlan
from services.worker.served import Serving
from tests.worker.conftest import FakeWorker, MakeWorker
from tests.worker.test_encode import encode, fill
from tests.worker.test_forget import forget
from tests.worker.test_generate import QUESTION, chat, command, served_of, servings

LONG = SamplingOptions(max_tokens=50)


def is_chat(request: EngineRequest) -> bool:
    return request.params.capture is None and request.params.forget is None


def chats_of(worker: FakeWorker) -> list[EngineRequest]:
    return [request for request in worker.engine.requests if is_chat(request)]


def commands_of(worker: FakeWorker) -> list[EngineRequest]:
    return [request for request in worker.engine.requests if request.params.forget]


def retrieved_of(events: list[ChatEvent]) -> list[Retrieved]:
    return [event for event in events if isinstance(event, Retrieved)]


def fact_ids(retrieved: Retrieved) -> set[str]:
    return {fact.fact.fact_id for fact in retrieved.facts}


def ask(worker: FakeWorker, **fields: Any) -> AsyncGenerator[ChatEvent, None]:
    return worker.parts.generate(command(worker, **{"sampling": LONG, **fields}))


async def read_until(events: AsyncGenerator[ChatEvent, None], kind: type) -> list[ChatEvent]:
    read: list[ChatEvent] = []
    while not read or not isinstance(read[-1], kind):
        read.append(await anext(events))
    return read


async def until_asked(worker: FakeWorker, number: int) -> None:
    """So many chats are in the engine, or were."""
    async with asyncio.timeout(10):
        while len(chats_of(worker)) < number:
            await asyncio.sleep(0)


async def in_engine(worker: FakeWorker, **fields: Any) -> asyncio.Task[list[ChatEvent]]:
    """A chat that the engine has been given and does not schedule while it is held."""
    number = len(chats_of(worker)) + 1
    worker.engine.hold.clear()
    asking = asyncio.create_task(chat(worker, **fields))
    await until_asked(worker, number)
    return asking


async def forget_held(worker: FakeWorker, *identifiers: str) -> Purged:
    """A forget that the engine is let answer once all that it withdraws has left."""
    forgetting = asyncio.create_task(forget(worker, *identifiers))
    async with asyncio.timeout(10):
        while not commands_of(worker):
            await asyncio.sleep(0)
    worker.engine.hold.set()
    return await forgetting


async def test_a_chat_without_its_first_token_is_planned_again_without_the_fact(
    worker: FakeWorker,
) -> None:
    fill(worker)
    await encode(worker)
    asking = await in_engine(worker, k=20)
    [first] = chats_of(worker)
    worker.control.remove("f0")
    await forget_held(worker, "f0")
    events = await asking
    before, after = retrieved_of(events)
    assert "f0" in fact_ids(before)
    assert fact_ids(after) == fact_ids(before) - {"f0"}
    assert after.memory_version == worker.control.user().version > before.memory_version
    assert [type(event) for event in events[-5:]] == [Served, Delta, Delta, Delta, Done]
    assert {fact.fact.fact_id for fact in served_of(events).facts} == fact_ids(after)
    assert worker.engine.aborted == [first.params.handle]


async def test_it_has_left_the_engine_before_the_engine_is_told_to_forget(
    worker: FakeWorker,
) -> None:
    fill(worker)
    await encode(worker)
    asking = await in_engine(worker)
    aborted_before: list[str] = []

    def note(request: EngineRequest) -> None:
        if request.params.forget:
            aborted_before.extend(worker.engine.aborted)

    worker.engine.before = note
    [first] = chats_of(worker)
    worker.control.remove("f0")
    await forget_held(worker, "f0")
    await asking
    assert aborted_before == [first.params.handle]


@pytest.mark.parametrize("inject", [True, False], ids=["injected", "text"])
async def test_a_chat_that_streams_ends_with_an_error_of_its_own(
    worker: FakeWorker, inject: bool
) -> None:
    """Its reader waits for the next token when the delete comes."""
    fill(worker)
    await encode(worker)
    worker.engine.talk.clear()
    events = ask(worker, inject=inject)
    await read_until(events, Delta)
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    worker.control.remove("f0")
    await forget(worker, "f0")
    [request] = chats_of(worker)
    assert worker.engine.aborted == [request.params.handle]
    with pytest.raises(AnswerWithdrawn, match="'f0' was deleted"):
        await waiting
    assert len(worker.reports) == 0


async def test_a_reader_that_does_not_read_keeps_nothing_in_the_engine(worker: FakeWorker) -> None:
    """Such as a client that is slower than the engine: the delete does not wait for it."""
    fill(worker)
    await encode(worker)
    async with aclosing(ask(worker)) as events:
        await read_until(events, Delta)
        worker.control.remove("f0")
        await forget(worker, "f0")
        [request] = chats_of(worker)
        assert worker.engine.aborted == [request.params.handle]
        with pytest.raises(AnswerWithdrawn):
            await anext(events)


async def test_nothing_of_the_answer_comes_after_the_delete_also_when_the_engine_had_ended_it(
    worker: FakeWorker,
) -> None:
    fill(worker)
    async with aclosing(ask(worker, sampling=SamplingOptions(max_tokens=2))) as events:
        await read_until(events, Delta)
        await anext(events)
        worker.control.remove("f0")
        await forget(worker, "f0")
        with pytest.raises(AnswerWithdrawn):
            await anext(events)


async def test_a_chat_that_was_given_a_chunk_that_saw_the_fact_is_withdrawn_too(
    worker: FakeWorker,
) -> None:
    fill(worker)
    await encode(worker)
    snapshot = worker.parts.users.peek(worker.control.at().scope)
    assert snapshot is not None
    readers = snapshot.readers_of(frozenset([FactId("f1")]), frozenset())
    question = replace(QUESTION, content="Where is the office?")
    async with aclosing(ask(worker, k=1, messages=(question,))) as events:
        given = fact_ids(retrieved_of(await read_until(events, Served))[0])
        assert "f1" not in given
        assert given & readers
        worker.control.remove("f1")
        await forget(worker, "f1")
        with pytest.raises(AnswerWithdrawn):
            await read_until(events, Done)


async def test_as_text_what_had_seen_the_fact_says_nothing_of_it(worker: FakeWorker) -> None:
    """The text of a dependant is its own: only its chunk holds what it saw."""
    fill(worker)
    await encode(worker)
    question = replace(QUESTION, content="Where is the office?")
    async with aclosing(ask(worker, k=1, messages=(question,), inject=False)) as events:
        await read_until(events, Served)
        worker.control.remove("f1")
        await forget(worker, "f1")
        assert isinstance((await read_until(events, Done))[-1], Done)
    assert worker.engine.aborted == []


async def test_planned_again_it_takes_what_had_seen_the_fact_as_text(worker: FakeWorker) -> None:
    fill(worker)
    await encode(worker)
    asking = await in_engine(worker, k=20)
    worker.control.remove("f1")
    await forget_held(worker, "f1")
    served = served_of(await asking)
    assert Serving.PREFILLED in servings(served)
    [_, again] = chats_of(worker)
    wanted = worker.parts.users.peek(worker.control.at().scope)
    assert wanted is not None
    keys = {spec.key for spec in wanted.specs.values()} | {worker.parts.rules.header_key}
    assert {span.key for span in again.params.spans} <= keys


async def test_an_update_lets_an_answer_end_as_it_began(worker: FakeWorker) -> None:
    fill(worker)
    await encode(worker)
    async with aclosing(ask(worker)) as events:
        await read_until(events, Delta)
        worker.control.add("f0", "Robin keeps a spare key at home")
        await forget(worker, "f0")
        await read_until(events, Done)
    assert worker.engine.aborted == []


async def test_chats_that_were_not_given_it_go_on(worker: FakeWorker) -> None:
    """Another user's, and one of the same user whose prompt holds neither it nor a reader."""
    fill(worker)
    fill(worker, "kim")
    await encode(worker)
    nothing = ask(worker, k=0)
    other = ask(worker, user=worker.control.at("kim"))
    for events in (nothing, other):
        await read_until(events, Delta)
    worker.control.remove("f0")
    await forget(worker, "f0")
    for events in (nothing, other):
        await read_until(events, Done)
    assert worker.engine.aborted == []


async def test_a_chat_that_comes_after_the_delete_is_not_disturbed_by_asking_again(
    worker: FakeWorker,
) -> None:
    """As the job does that asks a holder which did not answer in time."""
    fill(worker)
    await encode(worker)
    worker.control.remove("f0")
    await worker.parts.users.at_least(worker.control.at())
    async with aclosing(ask(worker, k=20)) as events:
        await read_until(events, Delta)
        await forget(worker, "f0")
        await read_until(events, Done)
    assert worker.engine.aborted == []


async def test_a_deleted_turn_withdraws_what_a_chunk_that_saw_it_was_given_to(
    make_worker: MakeWorker,
) -> None:
    worker = make_worker(Recipe("turns", num_turns=2, max_fact_tokens=120))
    for position, text in enumerate(["The office has moved", "To Harbour Street"]):
        worker.control.add_turn(f"t{position}", position, text)
        worker.control.add(f"f{position}", text, turn_ids=(f"t{position}",))
    await encode(worker)
    async with aclosing(ask(worker)) as events:
        await read_until(events, Delta)
        worker.control.remove("t0")
        await worker.parts.forget(worker.control.at(), [], [], [TurnId("t0")])
        with pytest.raises(AnswerWithdrawn, match="turn 't0' was deleted"):
            await read_until(events, Done)


async def test_a_chat_that_is_being_planned_does_not_go_on_with_a_copy_that_was_dropped(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control is away, so that nobody can say what the user has left."""
    fill(worker)
    await encode(worker)
    loop, planner = asyncio.get_running_loop(), worker.parts.generate._planner
    plan = planner.plan

    def plan_while_it_is_removed(*args: Any, **fields: Any) -> ChatPlan:
        worker.control.remove("f0")
        worker.control.is_down = True
        asyncio.run_coroutine_threadsafe(forget(worker, "f0"), loop).result(5)
        return plan(*args, **fields)

    monkeypatch.setattr(planner, "plan", plan_while_it_is_removed)
    with pytest.raises(Unavailable):
        await chat(worker)
    assert chats_of(worker) == []


async def test_a_chat_whose_user_is_not_cached_any_more_is_found(worker: FakeWorker) -> None:
    fill(worker)
    await encode(worker)
    async with aclosing(ask(worker)) as events:
        await read_until(events, Delta)
        worker.parts.users.drop(worker.control.at().scope)
        worker.control.remove("f0")
        await forget(worker, "f0")
        with pytest.raises(AnswerWithdrawn):
            await anext(events)


async def test_a_chat_that_is_being_scored_is_planned_and_scored_again(worker: FakeWorker) -> None:
    fill(worker)
    await encode(worker)
    logprobs = dict.fromkeys(range(512), -6.2)
    worker.engine.says = lambda request: NextToken(7, logprobs)
    asking = await in_engine(worker, scoring=Scoring("at"))
    number = worker.engine.num_running
    worker.control.remove("f0")
    await forget_held(worker, "f0")
    kinds = [type(event) for event in await asking]
    assert kinds[:4] == [Retrieved, Retrieved, Scored, Served]
    assert len(worker.engine.aborted) == number
    assert worker.engine.num_running == 0


async def test_a_client_that_leaves_at_the_same_moment_is_cancelled(worker: FakeWorker) -> None:
    """The cancellation that ends its wait for the engine is not taken for the delete's."""
    fill(worker)
    await encode(worker)
    asking = await in_engine(worker)
    worker.control.remove("f0")
    forgetting = asyncio.create_task(forget(worker, "f0"))
    async with asyncio.timeout(10):
        while asking.cancelling() == 0:
            await asyncio.sleep(0)
    asking.cancel()
    worker.engine.hold.set()
    await forgetting
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(chats_of(worker)) == 1
    assert len(worker.reports) == 0


async def test_a_check_of_a_chat_that_was_given_it_has_left_the_engine(
    make_worker: MakeWorker,
) -> None:
    from inferscale_core.settings import WorkerSettings

    worker = make_worker(settings=WorkerSettings(shadow_share=1.0))
    fill(worker)
    await encode(worker)
    await chat(worker)
    sample = worker.parts.shadow.queue.take()
    assert sample is not None
    worker.engine.hold.clear()
    checking = asyncio.create_task(worker.parts.shadow._check(sample))
    await until_asked(worker, 2)
    worker.control.remove("f0")
    await forget_held(worker, "f0")
    assert worker.engine.aborted == [chats_of(worker)[-1].params.handle]
    await checking


@pytest.mark.parametrize("num_tokens", [1, 4])
async def test_whenever_the_delete_comes_no_answer_goes_on_with_the_fact(
    make_worker: MakeWorker, num_tokens: int
) -> None:
    """It comes after each number of events and, behind the last one read, of turns of the loop."""
    outcomes = set()
    for num_events in range(num_tokens + 4):
        for num_turns in range(8):
            worker = make_worker()
            fill(worker)
            await encode(worker)
            outcomes.add(await _outcome(worker, num_tokens, num_events, num_turns))
    assert {"without", "before"} <= outcomes


async def _outcome(worker: FakeWorker, num_tokens: int, num_events: int, num_turns: int) -> str:
    read: list[ChatEvent] = []

    async def reading() -> None:
        sampling = SamplingOptions(max_tokens=num_tokens)
        async for event in worker.parts.generate(command(worker, sampling=sampling)):
            read.append(event)

    asking = asyncio.create_task(reading())
    while len(read) < num_events and not asking.done():
        await asyncio.sleep(0)
    for _ in range(num_turns):
        await asyncio.sleep(0)
    worker.control.remove("f0")
    await forget(worker, "f0")
    before = len(read)
    try:
        await asking
    except AnswerWithdrawn:
        assert len(read) == before
        return "withdrawn"
    tries = retrieved_of(read)
    if "f0" in fact_ids(tries[-1]):
        assert len(read) == before
        return "before"
    assert isinstance(read[-1], Done)
    return "planned again" if len(tries) > 1 else "without"
