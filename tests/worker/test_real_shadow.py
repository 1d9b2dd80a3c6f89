"""Shadow checks on a real engine: what joint prefill and injection say of the same tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from inferscale_core.memory.recipes import RECIPES
from inferscale_core.rpc.pb.inferscale.v1 import common_pb2
from services.worker.engine.host import EngineHost
from tests.worker.conftest import RECIPE
from tests.worker.real_worker import RealWorker, real_engine, real_worker
from tests.worker.test_encode import TEXTS

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

ROUNDING = 1e-5
"""Nats that rounding alone makes of float32."""

ISOLATED = RECIPES["window-0"]


@dataclass
class Findings:
    """What a worker would count."""

    kl: list[float] = field(default_factory=list)
    agreed: list[bool] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def checked(self, kl: float, *, agrees: bool) -> None:
        self.kl.append(kl)
        self.agreed.append(agrees)

    def dropped(self, reason: str) -> None:
        self.reasons.append(reason)


Workers = dict[str, tuple[RealWorker, Findings]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workers(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Workers]:
    """By recipe, over one engine: every chat of theirs is checked. `plain`: none is."""
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(real_engine(tmp_path_factory.mktemp("models")))
        found: Workers = {}
        for name, recipe, share in (
            ("progressive", RECIPE, 1.0),
            ("isolated", ISOLATED, 1.0),
            ("plain", RECIPE, 0.0),
        ):
            worker = await stack.enter_async_context(
                real_worker(running, recipe, shadow_share=share)
            )
            findings = Findings()
            worker.parts.shadow._metrics = findings  # type: ignore[assignment]
            worker.parts.shadow.queue._dropped = findings.dropped
            await stack.enter_async_context(worker.parts.shadow.running())
            found[name] = worker, findings
        yield found


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_jointly_encoded_chunks_do_not_diverge(
    workers: Workers,
) -> None:
    """One fact, encoded behind the header and served so."""
    worker, findings = workers["progressive"]
    worker.fill("alone", TEXTS[:1])
    await worker.encode("alone")
    for _ in range(2):
        chat = await worker.chat("alone")
        assert chat.usage.facts_prefilled == 0
    await until(lambda: len(findings.kl) == 2)
    assert max(findings.kl) < ROUNDING
    assert findings.agreed == [True, True]


async def test_facts_that_were_encoded_alone_diverge(
    workers: Workers,
) -> None:
    worker, findings = workers["isolated"]
    worker.fill("several")
    await worker.encode("several")
    chat = await worker.chat("several")
    assert chat.usage.facts_injected == 12
    await until(lambda: findings.kl)
    assert findings.kl[0] > 100 * ROUNDING


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_a_sampled_chat_is_answered_as_one_that_is_not(
    workers: Workers, temperature: float
) -> None:
    sampling = common_pb2.Sampling(max_tokens=12, temperature=temperature, seed=7)
    texts = []
    for name in ("progressive", "plain"):
        worker, _ = workers[name]
        user_id = f"same-{temperature}"
        worker.fill(user_id)
        await worker.encode(user_id)
        texts.append((await worker.chat(user_id, timed=False, sampling=sampling)).text)
    assert texts[0] == texts[1]


async def test_a_call_ends_a_check_in_the_engine(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, findings = workers["progressive"]
    worker.fill("busy")
    await worker.encode("busy")
    await until(lambda: len(worker.parts.shadow.queue) == 0)
    begun, ended = asyncio.Event(), asyncio.Event()
    next_token = EngineHost.next_token

    async def watched(self: EngineHost, request: object, **options: object) -> object:
        begun.set()
        try:
            return await next_token(self, request, **options)  # type: ignore[arg-type]
        except asyncio.CancelledError:
            ended.set()
            raise

    monkeypatch.setattr(EngineHost, "next_token", watched)
    await worker.chat("busy")
    await asyncio.wait_for(begun.wait(), 10)
    num_checked, num_dropped = len(findings.kl), len(findings.reasons)
    chat = await worker.chat("busy", k=3)
    assert ended.is_set()
    assert chat.done.finish_reason
    assert findings.reasons[num_dropped:] == ["gave_way"]
    assert len(findings.kl) == num_checked
    # The engine has nothing left of it, and goes on serving.
    await until(lambda: len(findings.kl) == num_checked + 1)
