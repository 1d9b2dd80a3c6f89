"""Shadow checks: which chats are checked, when, and that nothing of them stays or leaves."""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass

import pytest
import pytest_asyncio

from inferscale_core.errors import EngineError
from inferscale_core.ids import FactId
from inferscale_core.settings import WorkerSettings
from inferscale_core.telemetry import names
from services.worker.activity import Activity
from services.worker.engine.protocol import EngineRequest, NextToken
from services.worker.shadow import checks, queue
from services.worker.shadow.divergence import divergence
from services.worker.shadow.queue import Sample
from tests.telemetry_capture import Capture, captured
from tests.worker.conftest import FakeWorker, MakeWorker
from tests.worker.test_encode import encode, fill
from tests.worker.test_generate import chat

SETTLE_S = 0.02
HALF = math.log(0.5)


@pytest.fixture(autouse=True)
def _short_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SETTLE_S", SETTLE_S)


@pytest.fixture
def telemetry() -> Iterator[Capture]:
    with captured() as capture:
        yield capture


@dataclass
class Counts:
    """Checks by outcome since this was made."""

    capture: Capture
    before: dict[str, float]

    @classmethod
    def since_now(cls, capture: Capture) -> Counts:
        return cls(capture, _by_outcome(capture))

    def __call__(self) -> dict[str, int]:
        now = _by_outcome(self.capture)
        more = {outcome: int(n - self.before.get(outcome, 0)) for outcome, n in now.items()}
        return {outcome: n for outcome, n in more.items() if n}


def _by_outcome(capture: Capture) -> dict[str, float]:
    return {
        dict(labels)[names.OUTCOME]: value
        for (name, labels), value in capture.values().items()
        if name == names.SHADOW_CHECKS
    }


@pytest.fixture
def counts(telemetry: Capture) -> Counts:
    return Counts.since_now(telemetry)


@pytest_asyncio.fixture
async def worker(make_worker: MakeWorker) -> AsyncIterator[FakeWorker]:
    """With all its facts encoded; every chat is sampled and checks run."""
    worker = make_worker(settings=WorkerSettings(shadow_share=1.0))
    fill(worker)
    await encode(worker)
    worker.engine.requests.clear()
    async with worker.parts.shadow.running():
        yield worker


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.002)


def checked_requests(worker: FakeWorker) -> list[EngineRequest]:
    """Those that no chat made."""
    return [r for r in worker.engine.requests if not r.params.spans and r.params.forget is None]


async def test_an_idle_engine_prefills_the_very_same_tokens_with_a_salt_of_its_own(
    worker: FakeWorker, counts: Counts
) -> None:
    await chat(worker)
    await until(lambda: counts() == {"agreed": 1})
    served, shadow = worker.engine.requests
    assert served.params.spans
    assert shadow.params.spans == ()
    assert shadow.token_ids == served.token_ids
    assert shadow.cache_salt != served.cache_salt
    assert shadow.sampling.max_tokens == 1
    assert len(worker.parts.shadow.queue) == 0


async def test_divergence_and_agreement_are_exported_by_model_and_recipe(
    worker: FakeWorker, telemetry: Capture, counts: Counts
) -> None:
    spread, sure = NextToken(1, {1: HALF, 2: HALF}), NextToken(2, {1: math.log(0.1), 2: -0.1})
    worker.engine.says = lambda request: sure if request.params.spans else spread
    await chat(worker)
    await until(lambda: counts() == {"differed": 1})
    labels = ((names.MODEL, "tiny"), (names.RECIPE, "test"))
    assert telemetry.values()[names.SHADOW_KL, labels] >= 1


async def test_the_share_decides_how_many_chats_are_sampled(make_worker: MakeWorker) -> None:
    worker = make_worker(settings=WorkerSettings(shadow_share=0.25))
    fill(worker)
    await encode(worker)
    draws = iter([0.0, 0.24, 0.25, 0.99])
    worker.parts.shadow._draw = lambda: next(draws)
    for _ in range(4):
        await chat(worker)
    asked = [
        r.top_logprobs for r in worker.engine.requests if r.params.spans and not r.params.capture
    ]
    assert asked == [checks.SERVED_TOP, checks.SERVED_TOP, 0, 0]
    assert len(worker.parts.shadow.queue) == 2


async def test_by_default_no_chat_is_sampled_and_nothing_runs(make_worker: MakeWorker) -> None:
    worker = make_worker()
    fill(worker)
    await encode(worker)
    async with worker.parts.shadow.running():
        tasks = asyncio.all_tasks()
        await chat(worker)
    assert worker.engine.requests[-1].top_logprobs == 0
    assert len(worker.parts.shadow.queue) == 0
    assert tasks == {asyncio.current_task()}


async def test_chats_that_chunks_served_nothing_of_are_not_checked(
    worker: FakeWorker,
) -> None:
    await chat(worker, inject=False)
    await chat(worker, timed=True)
    await chat(worker, k=0)
    for key in {spec.key for spec in _specs(worker)}:
        worker.engine.lose(key)
    await chat(worker)
    assert len(worker.parts.shadow.queue) == 0


async def test_nothing_is_checked_while_a_call_is_open(worker: FakeWorker) -> None:
    with worker.parts.activity.open():
        await chat(worker)
        await asyncio.sleep(5 * SETTLE_S)
        assert checked_requests(worker) == []
        assert len(worker.parts.shadow.queue) == 1
    await until(lambda: checked_requests(worker))


async def test_a_check_waits_until_calls_have_been_away_for_a_while(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "SETTLE_S", 0.1)
    await chat(worker)
    for _ in range(10):
        await asyncio.sleep(0.03)
        with worker.parts.activity.open():
            pass
    assert checked_requests(worker) == []
    await until(lambda: checked_requests(worker))


async def test_a_call_that_comes_aborts_the_check_and_it_is_not_taken_up_again(
    worker: FakeWorker, counts: Counts
) -> None:
    await chat(worker)
    worker.engine.hold.clear()
    await until(lambda: checked_requests(worker))
    (shadow,) = checked_requests(worker)
    with worker.parts.activity.open():
        await until(lambda: shadow.params.handle in worker.engine.aborted)
        assert worker.engine.num_running == 0
    worker.engine.hold.set()
    await asyncio.sleep(5 * SETTLE_S)
    assert counts() == {"gave_way": 1}
    assert checked_requests(worker) == [shadow]


async def test_a_forget_leaves_no_prompt_of_the_user_behind(
    worker: FakeWorker, counts: Counts
) -> None:
    with worker.parts.activity.open():
        await chat(worker)
        await chat(worker)
        fill(worker, "kim")
        await encode(worker, "kim")
        await chat(worker, user=worker.control.at("kim"), k=2)
        (prompt,) = {r.token_ids for r in worker.engine.requests[:2]}
        assert prompt in _prompts_in_memory()
        worker.control.remove("f0")
        await worker.parts.forget(worker.control.at(), [FactId("f0")], [], [])
        worker.engine.requests.clear()
        assert [s.scope for s in _prompts_in_memory().values()] == [worker.control.at("kim").scope]
    await until(lambda: counts().get("agreed"))
    assert counts() == {"forgotten": 2, "agreed": 1}
    assert prompt not in {r.token_ids for r in checked_requests(worker)}


async def test_a_forget_ends_the_check_that_runs(worker: FakeWorker) -> None:
    await chat(worker)
    worker.engine.hold.clear()
    await until(lambda: checked_requests(worker))
    (shadow,) = checked_requests(worker)
    worker.control.remove("f0")
    with worker.parts.activity.open():  # As the servicer does.
        forgetting = asyncio.create_task(
            worker.parts.forget(worker.control.at(), [FactId("f0")], [], [])
        )
        await until(lambda: shadow.params.handle in worker.engine.aborted)
        worker.engine.hold.set()
        await forgetting
    worker.engine.requests.clear()
    assert _prompts_in_memory() == {}


async def test_a_chat_that_was_in_the_engine_when_its_fact_was_updated_is_not_kept(
    worker: FakeWorker, counts: Counts
) -> None:
    with worker.parts.activity.open():
        worker.engine.hold.clear()
        chatting = asyncio.create_task(chat(worker))
        await until(lambda: worker.engine.num_running)
        worker.control.add("f0", "Robin keeps a spare key at home")
        forgetting = asyncio.create_task(
            worker.parts.forget(worker.control.at(), [FactId("f0")], [], [])
        )
        await until(lambda: worker.engine.num_running == 2)
        worker.engine.hold.set()
        await asyncio.gather(chatting, forgetting)
        worker.engine.requests.clear()
        assert _prompts_in_memory() == {}
    assert counts() == {"forgotten": 1}


async def test_a_delete_that_came_with_the_changes_alone_is_respected(
    worker: FakeWorker, counts: Counts
) -> None:
    with worker.parts.activity.open():
        await chat(worker)
        worker.control.remove("f0")
        await worker.parts.users.at_least(worker.control.at())
    await until(counts)
    assert counts() == {"forgotten": 1}
    assert checked_requests(worker) == []


async def test_the_oldest_of_too_many_prompts_goes(
    worker: FakeWorker, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MAX_QUEUED", 2)
    with worker.parts.activity.open():
        for k in (1, 2, 3):
            await chat(worker, k=k)
        kept = [sample.token_ids for sample in _prompts_in_memory().values()]
        assert sorted(kept) == sorted(r.token_ids for r in worker.engine.requests[1:])
        assert counts() == {"crowded_out": 1}


async def test_a_busy_worker_keeps_no_prompt_for_long(
    worker: FakeWorker, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MAX_AGE_S", 0.03)
    with worker.parts.activity.open():
        await chat(worker)
        assert len(worker.parts.shadow.queue) == 1
        await until(counts)
        assert _prompts_in_memory() == {}
    assert counts() == {"too_old": 1}


async def test_a_check_that_fails_is_counted_and_the_next_one_runs(
    worker: FakeWorker, telemetry: Capture, counts: Counts
) -> None:
    def fail(request: EngineRequest) -> None:
        if not request.params.spans:
            raise EngineError("The spare key of Robin")

    worker.engine.before = fail
    await chat(worker)
    await until(lambda: counts() == {"failed": 1})
    worker.engine.before = lambda request: None
    await chat(worker)
    await until(lambda: counts() == {"failed": 1, "agreed": 1})
    assert "spare key" not in telemetry.everything()


async def test_nothing_of_a_prompt_is_in_spans_metrics_or_logs(
    worker: FakeWorker, telemetry: Capture, counts: Counts
) -> None:
    await chat(worker)
    (served,) = worker.engine.requests
    await until(counts)
    everything = telemetry.everything()
    assert "spare key" not in everything
    assert ", ".join(map(str, served.token_ids[:8])) not in everything
    assert "token_ids" not in repr(Sample(worker.control.at().scope, 0, (1, 2), NextToken(1, {})))


async def test_an_answer_is_the_same_whether_its_chat_is_sampled(
    worker: FakeWorker, make_worker: MakeWorker
) -> None:
    other = make_worker()
    fill(other)
    await encode(other)
    sampled, plain = await chat(worker), await chat(other)
    assert [type(event) for event in sampled] == [type(event) for event in plain]
    assert worker.engine.requests[-1].sampling == other.engine.requests[-1].sampling
    assert worker.engine.requests[-1].token_ids == other.engine.requests[-1].token_ids


async def test_a_client_that_leaves_before_the_end_leaves_a_sample_all_the_same(
    worker: FakeWorker,
) -> None:
    from tests.worker.test_generate import command

    with worker.parts.activity.open():
        async with aclosing(worker.parts.generate(command(worker))) as events:
            await anext(events)
            await anext(events)
        assert len(worker.parts.shadow.queue) == 1


async def test_activity_is_idle_only_between_calls() -> None:
    activity = Activity()
    await asyncio.wait_for(activity.idle_for(0.01), 1)
    with activity.open():
        with activity.open():
            pass
        await asyncio.wait_for(activity.busy(), 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(activity.idle_for(0.0), 0.03)
    await asyncio.wait_for(activity.idle_for(0.01), 1)


def test_equal_distributions_do_not_diverge() -> None:
    token = NextToken(1, {1: HALF, 2: math.log(0.3), 3: math.log(0.2)})
    assert divergence(token, token).kl == pytest.approx(0, abs=1e-9)
    assert divergence(token, token).agrees


def test_divergence_is_that_of_joint_prefill_over_the_common_tokens_and_the_rest() -> None:
    joint = NextToken(1, {1: math.log(0.6), 2: math.log(0.2), 3: math.log(0.1)})
    injected = NextToken(2, {1: math.log(0.3), 2: math.log(0.5), 9: math.log(0.15)})
    found = divergence(joint, injected)
    rest = 0.2 * math.log(0.2 / 0.2)
    assert found.kl == pytest.approx(0.6 * math.log(2) + 0.2 * math.log(0.2 / 0.5) + rest)
    assert not found.agrees


def test_distributions_without_a_common_token_are_one_lump() -> None:
    assert divergence(NextToken(1, {1: HALF}), NextToken(2, {2: HALF})).kl == 0


def _specs(worker: FakeWorker) -> list[object]:
    snapshot = worker.parts.users.peek(worker.control.at().scope)
    assert snapshot is not None
    return list(snapshot.specs.values())


def _prompts_in_memory() -> dict[tuple[int, ...], Sample]:
    """Every sample that this process still holds, waiting or not."""
    gc.collect()
    return {s.token_ids: s for s in gc.get_objects() if isinstance(s, Sample)}
