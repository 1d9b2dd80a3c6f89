"""How likely the model finds an answer behind a plan, and what it says itself.

Log-probabilities of a prompt do not exist where it was injected. So an answer is scored token by
token: each is looked up as the next token behind the plan and the answer's tokens before it. The
requests of one plan share a salt, so that all but the first find the plan in the engine's cache.
What each was served from is checked, since a fact that was prefilled would be scored as text.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from inferscale_core.errors import EngineError
from inferscale_core.memory.plans import Plan
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.params import RequestParams
from services.worker.engine.protocol import (
    MAX_LOGPROBS,
    Engine,
    EngineRequest,
    NextToken,
    SamplingOptions,
)
from services.worker.engine.reports import Reports
from services.worker.salts import CacheSalts

SERVED_WAIT_S = 30.0
"""For the engine's report, which comes before a request's first token; the engine may be full."""

COMPARED_TOKENS = 100
"""Likeliest first tokens of which two plans are compared; the rest counts as one."""


@dataclass(frozen=True, slots=True)
class Likelihood:
    """first: the first token behind the plan. answer_logprobs: of each token of a given answer."""

    first: NextToken
    answer_logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PlanScore:
    """said: what the model answers itself, greedily. The others as in `Likelihood`."""

    first: NextToken
    answer_logprobs: tuple[float, ...]
    said: str


class AnswerScorer:
    """Asks one engine. Any number of scores at once."""

    def __init__(self, engine: Engine, reports: Reports) -> None:
        self._engine = engine
        self._reports = reports

    async def likelihood(
        self, plan: Plan, answer_ids: Sequence[int], compared: Sequence[int] = ()
    ) -> Likelihood:
        """compared: first tokens to look at, in place of the likeliest.

        Raises EngineError when the plan was served in another way than it says.
        """
        salt = CacheSalts.once()
        first = await self._first(plan, answer_ids, salt, compared)
        return Likelihood(first, await self._answer_logprobs(plan, answer_ids, salt, first))

    async def score(
        self,
        plan: Plan,
        answer_ids: Sequence[int],
        max_tokens: int,
        *,
        stop: tuple[str, ...] = (),
        compared: Sequence[int] = (),
        num_computed_before: int = 0,
    ) -> PlanScore:
        """max_tokens, stop: of what the model says itself. num_computed_before: leading tokens of
        a text plan that a request of their own computes, for the engine's prefix cache. The rest as
        in `likelihood`."""
        salt = CacheSalts.once()
        if num_computed_before:
            await self._next(Plan.of(plan.token_ids[:num_computed_before]), (), salt, ())
        # The first one computes the plan; the others find it in the cache.
        first = await self._first(plan, answer_ids, salt, compared)
        logprobs, said = await asyncio.gather(
            self._answer_logprobs(plan, answer_ids, salt, first),
            self._say(plan, salt, SamplingOptions(max_tokens=max_tokens, stop=stop)),
        )
        return PlanScore(first, logprobs, said)

    async def _first(
        self, plan: Plan, answer_ids: Sequence[int], salt: str, compared: Sequence[int]
    ) -> NextToken:
        """With the answer's own first token, where there is room for it."""
        if compared and len(compared) < MAX_LOGPROBS:
            compared = list(dict.fromkeys((*compared, *answer_ids[:1])))
        return await self._next(plan, (), salt, compared)

    async def _answer_logprobs(
        self, plan: Plan, answer_ids: Sequence[int], salt: str, first: NextToken
    ) -> tuple[float, ...]:
        """first: what is known of the answer's first token without asking again."""
        tokens = await asyncio.gather(
            *(
                self._answer_token(plan, answer_ids, place, salt, first)
                for place in range(len(answer_ids))
            )
        )
        pairs = zip(tokens, answer_ids, strict=True)
        return tuple(token.logprobs[wanted] for token, wanted in pairs)

    async def _answer_token(
        self, plan: Plan, answer_ids: Sequence[int], place: int, salt: str, first: NextToken
    ) -> NextToken:
        if place == 0 and answer_ids[0] in first.logprobs:
            return first
        return await self._next(plan, answer_ids[:place], salt, answer_ids[place : place + 1])

    async def _next(
        self, plan: Plan, behind: Sequence[int], salt: str, token_ids: Sequence[int]
    ) -> NextToken:
        request = self._request(plan, behind, salt, SamplingOptions(max_tokens=1))
        with self._reports.follow(request.params.handle) as report:
            token = await self._engine.next_token(request, top=COMPARED_TOKENS, token_ids=token_ids)
            served = await report.first_of(_DECIDED, SERVED_WAIT_S) if plan.spans else None
        if plan.spans:
            _check_served(plan, served.fields if served else {})
        return token

    async def _say(self, plan: Plan, salt: str, sampling: SamplingOptions) -> str:
        request = self._request(plan, (), salt, sampling)
        with self._reports.follow(request.params.handle) as report:
            texts = [output.text async for output in self._engine.stream(request)]
            served = await report.first_of(_DECIDED, SERVED_WAIT_S) if plan.spans else None
        if plan.spans:
            _check_served(plan, served.fields if served else {})
        return "".join(texts)

    def _request(
        self, plan: Plan, behind: Sequence[int], salt: str, sampling: SamplingOptions
    ) -> EngineRequest:
        params = RequestParams(handle=uuid.uuid4().hex, spans=plan.spans)
        return EngineRequest((*plan.token_ids, *behind), params, salt, sampling)


_DECIDED = frozenset({EventKind.SERVED, EventKind.REJECTED})


def _check_served(plan: Plan, fields: dict[str, object]) -> None:
    native, injected = fields.get("native_tokens", 0), fields.get("injected_tokens", 0)
    assert isinstance(native, int)
    assert isinstance(injected, int)
    if native + injected < plan.num_span_tokens:
        raise EngineError(
            f"of {plan.num_span_tokens} tokens to inject the engine supplied {native + injected}"
        )


def token_digest(token_ids: Sequence[int]) -> str:
    """The same for the same tokens only."""
    return hashlib.sha256(",".join(map(str, token_ids)).encode()).hexdigest()[:16]
