from __future__ import annotations

import asyncio
import inspect
import itertools
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from inferscale_core.client import (
    AsyncInferScale,
    AsyncOperator,
    ClientOptions,
    Delta,
    Done,
    InferScale,
    Operator,
    Quotas,
    Retrieved,
    RetryPolicy,
)
from inferscale_core.errors import (
    DeadlineExceeded,
    EngineError,
    InferScaleError,
    InvalidInput,
    PermissionDenied,
    StoreError,
    Unauthenticated,
    Unavailable,
)
from tests.rpc.conftest import Served
from tests.rpc.fakes import OPERATOR_TOKEN

QUICK = ClientOptions(retries=RetryPolicy(first_wait_s=0.01, max_wait_s=0.05))


@pytest.fixture
async def client(served: Served) -> AsyncIterator[AsyncInferScale]:
    async with AsyncInferScale(served.address, "key-of-acme", QUICK) as client:
        yield client


class Failing:
    """Raises `error` at the first `times` calls."""

    def __init__(self, error: BaseException, times: int) -> None:
        self._error = error
        self._left = times

    async def __call__(self) -> None:
        if self._left:
            self._left -= 1
            raise self._error


async def test_a_memory_is_added_with_all_that_was_said_of_it(
    served: Served, client: AsyncInferScale
) -> None:
    moment = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    added = await client.add_memory(
        "robin", "Robin has a cat.", occurred_at=moment, conversation_id="c-1", turn_ids=["t-1"]
    )
    tenant, request = served.memory.added[0]
    assert tenant == "acme"
    assert request.user_id == "robin"
    assert request.memory.occurred_at.ToDatetime(UTC) == moment
    assert (request.memory.conversation_id, list(request.memory.turn_ids)) == ("c-1", ["t-1"])
    assert (added.memory.text, added.memory_version) == ("Robin has a cat.", 1)
    assert added.memory.occurred_at is None


async def test_a_naive_time_is_utc(served: Served, client: AsyncInferScale) -> None:
    await client.add_memory("robin", "x", occurred_at=datetime(2026, 3, 1, 9, 30))
    request = served.memory.added[0][1]
    assert request.memory.occurred_at.ToDatetime(UTC) == datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize("error", [Unavailable("draining"), StoreError("no connection")])
async def test_a_mutation_is_repeated_with_its_request_id(
    served: Served, client: AsyncInferScale, error: InferScaleError
) -> None:
    served.memory.before = Failing(error, times=3)
    await client.add_memory("robin", "x")
    request_ids = [request.request_id for _, request in served.memory.added]
    assert len(request_ids) == 4
    assert len(set(request_ids)) == 1
    assert request_ids[0]


async def test_two_mutations_have_two_request_ids_and_a_given_one_is_kept(
    served: Served, client: AsyncInferScale
) -> None:
    await client.add_memory("robin", "x")
    await client.add_memory("robin", "x")
    await client.add_memory("robin", "x", request_id="mine")
    ids = [request.request_id for _, request in served.memory.added]
    assert len(set(ids)) == 3
    assert ids[2] == "mine"


@pytest.mark.parametrize("error", [InvalidInput("text", "empty"), EngineError("r-1 failed")])
async def test_what_would_fail_again_is_not_repeated(
    served: Served, client: AsyncInferScale, error: InferScaleError
) -> None:
    served.memory.before = Failing(error, times=1)
    with pytest.raises(type(error), match=str(error)):
        await client.add_memory("robin", "x")
    assert len(served.memory.added) == 1


async def test_a_server_that_stays_away_is_unavailable_after_the_last_attempt(
    served: Served,
) -> None:
    served.memory.before = Failing(Unavailable("draining"), times=100)
    options = ClientOptions(retries=RetryPolicy(max_attempts=4, first_wait_s=0.01))
    async with AsyncInferScale(served.address, "key-of-acme", options) as client:
        with pytest.raises(Unavailable):
            await client.add_memory("robin", "x")
    assert len(served.memory.added) == 4


async def test_the_deadline_bounds_all_attempts_together(served: Served) -> None:
    async def slow_failure() -> None:
        await asyncio.sleep(0.15)
        raise Unavailable("draining")

    served.memory.before = slow_failure
    options = ClientOptions(deadline_s=0.5, retries=RetryPolicy(100, 0.01, 0.02))
    started_at = asyncio.get_running_loop().time()
    async with AsyncInferScale(served.address, "key-of-acme", options) as client:
        with pytest.raises((Unavailable, DeadlineExceeded)):
            await client.add_memory("robin", "x")
    assert asyncio.get_running_loop().time() - started_at < 1.5
    assert 2 <= len(served.memory.added) <= 5


async def test_calls_survive_a_rolling_restart(served: Served, client: AsyncInferScale) -> None:
    async def short_work() -> None:
        await asyncio.sleep(0.02)

    served.memory.before = short_work
    stop = asyncio.Event()

    async def keep_calling(name: str) -> int:
        for count in itertools.count():
            if stop.is_set():
                return count
            await client.add_memory(name, "x", request_id=f"{name}-{count}")
            await client.get_memory(name, "m-1")
        raise AssertionError

    callers = [asyncio.create_task(keep_calling(f"user-{number}")) for number in range(8)]
    for _ in range(3):
        await asyncio.sleep(0.2)
        await served.restart(grace_s=0.05)
    await asyncio.sleep(0.2)
    stop.set()
    counts = await asyncio.gather(*callers)
    assert min(counts) > 3
    answered = {request.request_id for _, request in served.memory.added}
    assert len(answered) == sum(counts)


async def test_a_wrong_key_is_unauthenticated_at_once(served: Served) -> None:
    async with AsyncInferScale(served.address, "wrong", QUICK) as client:
        with pytest.raises(Unauthenticated):
            await client.get_memory("robin", "m-1")


async def test_an_address_where_nobody_listens_is_unavailable() -> None:
    options = ClientOptions(deadline_s=1, retries=RetryPolicy(max_attempts=3, first_wait_s=0.01))
    async with AsyncInferScale("127.0.0.1:1", "key", options) as client:
        with pytest.raises(Unavailable):
            await client.get_memory("robin", "m-1")


async def test_a_chat_gives_its_events_in_order(client: AsyncInferScale) -> None:
    events = [event async for event in client.chat("robin", "hello")]
    assert [type(event) for event in events] == [Retrieved, Delta, Delta, Delta, Done]


async def test_a_whole_answer_is_read_in_one_call(client: AsyncInferScale) -> None:
    answer = await client.chat("robin", "hello").answer()
    assert answer.text == "piece-0 piece-1 piece-2 "
    assert answer.done.finish_reason == "stop"
    assert answer.retrieved is not None
    assert answer.retrieved.worker_id == "acme"
    assert answer.served is None


async def test_leaving_a_chat_aborts_it(served: Served, client: AsyncInferScale) -> None:
    served.chat.num_deltas = 4096
    served.chat.pause = lambda: asyncio.sleep(0.01)
    async with client.chat("robin", "hello") as stream:
        async for event in stream:
            if isinstance(event, Delta):
                break
    await asyncio.wait_for(served.chat.closed.wait(), 5)
    assert served.chat.num_deltas_sent < 100


async def test_cancelling_the_reader_aborts_the_chat(
    served: Served, client: AsyncInferScale
) -> None:
    served.chat.num_deltas = 4096
    served.chat.pause = lambda: asyncio.sleep(0.01)
    got_one = asyncio.Event()

    async def read() -> None:
        async for _ in client.chat("robin", "hello"):
            got_one.set()

    reading = asyncio.create_task(read())
    await got_one.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await asyncio.wait_for(served.chat.closed.wait(), 5)
    assert served.chat.num_deltas_sent < 100


async def test_a_chat_starts_again_when_it_fails_before_its_first_delta(
    served: Served, client: AsyncInferScale
) -> None:
    served.chat.pause = Failing(Unavailable("draining"), times=2)
    answer = await client.chat("robin", "hello").answer()
    assert served.chat.num_started == 3
    assert answer.text == "piece-0 piece-1 piece-2 "


async def test_a_chat_never_starts_again_after_its_first_delta(
    served: Served, client: AsyncInferScale
) -> None:
    num_pauses = itertools.count()

    async def fail_at_the_second() -> None:
        if next(num_pauses) == 1:
            raise Unavailable("draining")

    served.chat.pause = fail_at_the_second
    received = []
    with pytest.raises(Unavailable):  # noqa: PT012
        async for event in client.chat("robin", "hello"):
            received.append(type(event))
    assert received == [Retrieved, Delta]
    assert served.chat.num_started == 1


async def test_the_operator_creates_a_tenant_and_a_tenant_cannot(served: Served) -> None:
    async with AsyncOperator(served.address, OPERATOR_TOKEN, QUICK) as operator:
        created = await operator.create_tenant("acme", ["tiny"], quotas=Quotas(10, 5))
    assert (created.tenant.models, created.api_key) == (("tiny",), "secret")
    async with AsyncOperator(served.address, "key-of-acme", QUICK) as tenant:
        with pytest.raises(PermissionDenied):
            await tenant.create_tenant("globex", ["tiny"])


@pytest.mark.parametrize(
    ("asynchronous", "blocking"), [(AsyncInferScale, InferScale), (AsyncOperator, Operator)]
)
def test_the_blocking_client_has_the_same_methods(asynchronous: type, blocking: type) -> None:
    def parameters(client: type) -> dict[str, list[inspect.Parameter]]:
        return {
            name: list(inspect.signature(function).parameters.values())
            for name, function in inspect.getmembers(client, inspect.isfunction)
            if not name.startswith("_")
        }

    assert parameters(asynchronous) == parameters(blocking)


async def test_the_blocking_client_works_from_a_thread(served: Served) -> None:
    def use() -> tuple[str, str, list[type]]:
        with InferScale(served.address, "key-of-acme", QUICK) as client:
            added = client.add_memory("robin", "Robin has a cat.")
            answer = client.chat("robin", "hello").answer()
            with client.chat("robin", "hello") as stream:
                events = [type(event) for event in stream]
            return added.memory.text, answer.text, events

    text, answer, events = await asyncio.to_thread(use)
    assert text == "Robin has a cat."
    assert answer == "piece-0 piece-1 piece-2 "
    assert events == [Retrieved, Delta, Delta, Delta, Done]


async def test_leaving_a_blocking_chat_aborts_it(served: Served) -> None:
    served.chat.num_deltas = 4096
    served.chat.pause = lambda: asyncio.sleep(0.01)

    def use() -> None:
        with (
            InferScale(served.address, "key-of-acme", QUICK) as client,
            client.chat("robin", "hello") as stream,
        ):
            next(stream)

    await asyncio.to_thread(use)
    await asyncio.wait_for(served.chat.closed.wait(), 5)
    assert served.chat.num_deltas_sent < 100


async def test_the_blocking_client_raises_the_same_errors(served: Served) -> None:
    def use() -> None:
        with InferScale(served.address, "wrong", QUICK) as client:
            client.get_memory("robin", "m-1")

    with pytest.raises(Unauthenticated):
        await asyncio.to_thread(use)


async def test_a_blocking_chat_that_nobody_closed_ends_with_its_client(served: Served) -> None:
    served.chat.num_deltas = 4096
    served.chat.pause = lambda: asyncio.sleep(0.01)

    def use() -> None:
        client = InferScale(served.address, "key-of-acme", QUICK)
        stream = client.chat("robin", "hello")
        next(stream)
        client.close()

    await asyncio.to_thread(use)
    await asyncio.wait_for(served.chat.closed.wait(), 5)
    assert served.chat.num_deltas_sent < 100


async def test_blocking_clients_of_one_process_work_side_by_side_without_a_word(
    served: Served,
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.rpc.client_process",
        served.address,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await asyncio.wait_for(process.communicate(), 60)
    # gRPC's own note that it does nothing about the fork is no traceback.
    lines = [line for line in stderr.decode().splitlines() if "absl::" not in line]
    assert [line for line in lines if "fork_posix.cc" not in line] == []
    assert stdout.decode().splitlines() == [
        "in a child: piece-0 piece-1 piece-2",
        "two at once: 60 1",
        "one closed: piece-0 piece-1 piece-2 1",
        "all closed: 0",
        "in a child: gRPC does not survive a fork: use no client before it, or start the process"
        " by spawn",
        "another: piece-0 piece-1 piece-2",
    ]


async def test_half_a_surrogate_pair_is_invalid_input_that_is_not_sent(
    served: Served, client: AsyncInferScale
) -> None:
    with pytest.raises(InvalidInput, match="lone surrogate at character 6") as refused:
        await client.add_memory("robin", "Robin \ud83d")
    assert refused.value.__suppress_context__
    with pytest.raises(InvalidInput, match="lone surrogate"):
        client.chat("robin", "hello \ud83d")
    with pytest.raises(InvalidInput, match="lone surrogate"):
        [memory async for memory in client.all_memories("\ud83d")]
    assert served.memory.added == []
    assert served.chat.num_started == 0
