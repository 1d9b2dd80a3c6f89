"""Chats that were served from chunks, prefilled once more as text and compared.

A share of chats asks for log-probabilities of its first token, which changes nothing of its answer.
When the worker is idle, the very same token ids go to the engine as text, with a salt used once,
and what joint prefill says first is compared. A call that comes meanwhile ends the check at once;
what the engine is in the middle of, one step, it finishes first.

Prompts stay in memory, see `SampleQueue`. What leaves is a divergence and counts.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

from inferscale_core.ids import UserScope
from inferscale_core.memory.plans import Plan
from inferscale_core.retrieval import UserSnapshot
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.metrics import ShadowMetrics
from inferscale_core.vllm_connector.params import RequestParams
from services.worker.activity import Activity
from services.worker.engine.protocol import ONE_TOKEN, Engine, EngineRequest, NextToken
from services.worker.salts import CacheSalts
from services.worker.served import ServedTokens, Serving
from services.worker.shadow.divergence import divergence
from services.worker.shadow.queue import Sample, SampleQueue
from services.worker.users import UserCache

_log = get_logger(__name__)

SERVED_TOP = 20
"""Likeliest first tokens of a chat whose log-probabilities are kept. As many as vLLM gives by
default; they hold nearly all of the probability."""

COMPARED_TOP = 100
"""Of joint prefill, so that the tokens of the chat are nearly all among them."""

SETTLE_S = 0.2
"""Idle for so long before a check begins: callers that ask one question after the other are not to
find one in their way each time."""


@dataclass(frozen=True, slots=True)
class _Check:
    """The one that runs: of this user, with this request."""

    scope: UserScope
    joint: asyncio.Task[NextToken]


class ShadowChecks:
    """Samples chats while they are served, and checks them one at a time in `run`."""

    def __init__(
        self,
        engine: Engine,
        users: UserCache,
        activity: Activity,
        metrics: ShadowMetrics,
        share: float,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """share: of chats, 0 to 1."""
        self._engine = engine
        self._users = users
        self._activity = activity
        self._metrics = metrics
        self._share = share
        self._draw = draw
        self._checked: _Check | None = None
        self.queue = SampleQueue(metrics.dropped)

    def top_logprobs(self, plan: Plan, *, timed: bool) -> int:
        """How many a chat is to ask for: 0 when it is not sampled. A timed one never is."""
        if timed or not plan.spans or not plan.facts or self._draw() >= self._share:
            return 0
        return SERVED_TOP

    def offer(
        self,
        snapshot: UserSnapshot,
        token_ids: tuple[int, ...],
        tokens: ServedTokens,
        first: NextToken,
    ) -> None:
        """A sampled chat whose first token is there; passed by when no fact came from a chunk."""
        if tokens.facts[Serving.PREFILLED] == len(tokens.by_fact):
            return
        sample = Sample(snapshot.scope, snapshot.kv_epoch, token_ids, first)
        if self._is_current(sample):
            self.queue.put(sample)
        else:
            self._metrics.dropped("forgotten")

    async def forget(self, scope: UserScope) -> None:
        """From the return on nothing of the user waits, and no check of it is in the engine."""
        self.queue.forget(scope)
        if self._checked is not None and self._checked.scope == scope:
            self._checked.joint.cancel()
            await asyncio.gather(self._checked.joint, return_exceptions=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """`run` beside the block; with a share of 0 nothing runs."""
        if not self._share:
            yield
            return
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            await self.queue.filled()
            await self._activity.idle_for(SETTLE_S)
            await self._check_next()

    async def _check_next(self) -> None:
        """In a frame of its own, which keeps no prompt until the next one comes."""
        sample = self.queue.take()
        if sample is None:
            return
        if self._is_current(sample):
            await self._check(sample)
        else:
            self._metrics.dropped("forgotten")

    def _is_current(self, sample: Sample) -> bool:
        """False when a delete or an update has reached this worker since, also by another way than
        `forget` or while the chat was in the engine."""
        held = self._users.peek(sample.scope)
        return held is not None and held.kv_epoch == sample.kv_epoch

    async def _check(self, sample: Sample) -> None:
        check = asyncio.create_task(self._joint(sample))
        call = asyncio.create_task(self._activity.busy())
        self._checked = _Check(sample.scope, check)
        try:
            await asyncio.wait({check, call}, return_when=asyncio.FIRST_COMPLETED)
            if call.done() or check.cancelled():
                self._metrics.dropped("gave_way" if call.done() else "forgotten")
                return
            found = divergence(check.result(), sample.first)
            self._metrics.checked(found.kl, agrees=found.agrees)
        except Exception as exc:
            # Of no consequence to anybody who is served. Not the message: it may be the engine's.
            _log.warning("shadow.check_failed", error=type(exc).__name__)
            self._metrics.dropped("failed")
        finally:
            for task in (check, call):
                task.cancel()
            await asyncio.gather(check, call, return_exceptions=True)
            self._checked = None

    async def _joint(self, sample: Sample) -> NextToken:
        params = RequestParams(uuid.uuid4().hex)
        request = EngineRequest(sample.token_ids, params, CacheSalts.once(), ONE_TOKEN)
        return await self._engine.next_token(request, top=COMPARED_TOP)
