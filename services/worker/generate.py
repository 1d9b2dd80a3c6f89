"""A chat on this worker: facts found, how they are planned and really served, and the answer."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace

from inferscale_core.errors import AnswerWithdrawn
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.plans import Plan
from inferscale_core.prompt import ChatMessage
from inferscale_core.retrieval import UserSnapshot
from inferscale_core.telemetry import metrics, names
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.metrics import CacheMetrics
from inferscale_core.telemetry.tracing import annotate, record_steps
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.params import RequestParams
from services.worker.break_even import BreakEven
from services.worker.engine.mirror import DirectoryMirror
from services.worker.engine.protocol import (
    Engine,
    EngineOutput,
    EngineRequest,
    SamplingOptions,
)
from services.worker.engine.reports import Reports, RequestReport
from services.worker.open_chats import OpenChat, OpenChats
from services.worker.planner import ChatPlan, Planner
from services.worker.salts import CacheSalts
from services.worker.scoring import AnswerScorer, Likelihood, token_digest
from services.worker.served import ServedTokens, Serving, planned_servings, served_tokens
from services.worker.shadow.checks import ShadowChecks
from services.worker.users import UserAt, UserCache

_log = get_logger(__name__)

SERVED_WAIT_S = 1.0
"""For the engine's report of how a request was served, which is sent before its first token."""

COMPOSED_WAIT_S = 0.05
"""For the time that the injection took: sent with the first token, but on another socket."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """Of this answer; of these first tokens, or of the likeliest when there are none."""

    answer: str
    compared: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerateCommand:
    """inject: false is text mode. timed: nothing cached before may serve the request. text_facts:
    the best so many facts are prefilled as text; None takes the recipe's number."""

    user: UserAt
    messages: tuple[ChatMessage, ...]
    k: int
    sampling: SamplingOptions
    inject: bool = True
    timed: bool = False
    text_facts: int | None = None
    scoring: Scoring | None = None


@dataclass(frozen=True, slots=True)
class FactServing:
    """One retrieved fact, in prompt order."""

    fact: FactRef
    score: float
    num_tokens: int
    serving: Serving
    text: str


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds on this worker's clock; see the API's Timings for what each covers."""

    sync_ms: float
    embed_ms: float
    retrieve_ms: float
    plan_ms: float
    queue_ms: float = 0.0
    inject_ms: float = 0.0
    prefill_ms: float = 0.0
    first_token_ms: float = 0.0
    total_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Retrieved:
    """not_resident: facts that should have a chunk and have none. Of the question's
    `question_tokens` the last `searched_tokens` were searched for, both 0 when nothing was."""

    facts: tuple[FactServing, ...]
    memory_version: int
    not_resident: tuple[FactRef, ...]
    question_tokens: int
    searched_tokens: int


@dataclass(frozen=True, slots=True)
class Served:
    """As the engine decided; all prefilled when its report was lost."""

    facts: tuple[FactServing, ...]
    tokens: ServedTokens
    timings: Timings


@dataclass(frozen=True, slots=True)
class Delta:
    text: str


@dataclass(frozen=True, slots=True)
class Done:
    finish_reason: str
    tokens: ServedTokens
    completion_tokens: int
    timings: Timings


@dataclass(frozen=True, slots=True)
class Scored:
    """prompt_digest: names the prompt's tokens."""

    prompt_digest: str
    likelihood: Likelihood


ChatEvent = Retrieved | Scored | Served | Delta | Done


class Generate:
    """One `Retrieved`, a `Scored` if it was asked for, one `Served`, any number of `Delta`, one
    `Done`. Closing it early aborts.

    When something that the chat was given is deleted before its first token, it is planned again:
    another `Retrieved` and `Scored` take the place of the first ones.
    """

    def __init__(
        self,
        users: UserCache,
        planner: Planner,
        engine: Engine,
        reports: Reports,
        mirror: DirectoryMirror,
        salts: CacheSalts,
        break_even: BreakEven,
        chunk_metrics: CacheMetrics,
        shadow: ShadowChecks,
        open_chats: OpenChats,
    ) -> None:
        self._users = users
        self._planner = planner
        self._engine = engine
        self._reports = reports
        self._mirror = mirror
        self._salts = salts
        self._scorer = AnswerScorer(engine, reports)
        self._break_even = break_even
        self._chunk_metrics = chunk_metrics
        self._shadow = shadow
        self._open_chats = open_chats
        self._num_open = 0

    async def __call__(self, command: GenerateCommand) -> AsyncGenerator[ChatEvent, None]:
        """Raises InvalidInput when the prompt does not fit, Unavailable when control is away, and
        AnswerWithdrawn when something that it was given is deleted behind its first token."""
        self._num_open += 1
        try:
            async with contextlib.aclosing(self._chat(command)) as events:
                async for event in events:
                    yield event
        finally:
            self._num_open -= 1

    async def _chat(self, command: GenerateCommand) -> AsyncGenerator[ChatEvent, None]:
        arrived, has_answered = time.perf_counter(), False
        while True:
            began = time.perf_counter()
            snapshot = await self._users.at_least(command.user)
            sync_ms = _ms_since(began)
            with self._open_chats.open(snapshot) as chat:
                events = self._try(command, chat, sync_ms, arrived)
                try:
                    async with contextlib.aclosing(events):
                        async for event in events:
                            has_answered = has_answered or isinstance(event, Served)
                            yield event
                    return
                except AnswerWithdrawn:
                    if has_answered:
                        raise
                    _log.info("chat.planned_again")

    async def _try(
        self, command: GenerateCommand, chat: OpenChat, sync_ms: float, arrived: float
    ) -> AsyncGenerator[ChatEvent, None]:
        """Raises AnswerWithdrawn at any step; nothing of the chat is in the engine then."""
        planned, salt = await self._plan(command, chat)
        times = planned.times
        timings = Timings(sync_ms, times.embed_ms, times.retrieve_ms, times.plan_ms)
        yield _retrieved(chat.snapshot, planned)
        scoring = command.scoring
        if scoring is not None:
            yield await chat.run(lambda: self._score(scoring, planned.plan))
        async with contextlib.aclosing(
            self._answer(command, chat, planned, salt, timings, arrived)
        ) as answer:
            async for event in answer:
                yield event

    async def _score(self, scoring: Scoring, plan: Plan) -> Scored:
        answer_ids = self._planner.answer_ids(scoring.answer)
        likelihood = await self._scorer.likelihood(plan, answer_ids, scoring.compared)
        return Scored(token_digest(plan.token_ids), likelihood)

    async def _plan(self, command: GenerateCommand, chat: OpenChat) -> tuple[ChatPlan, str]:
        """The plan, which the chat keeps, and the salt that goes with it.

        When a delete or an update reached this worker while it planned, it plans again: what was
        forgotten here is then not asked for any more.
        """
        while True:
            snapshot = chat.snapshot
            num_published = self._mirror.num_published(snapshot.scope)
            planned = await asyncio.to_thread(
                self._planner.plan,
                snapshot,
                command.messages,
                command.k,
                inject=command.inject,
                min_injected_tokens=self._min_injected_tokens(),
                context_tokens=self._engine.max_model_len,
                text_facts=command.text_facts,
            )
            chat.check()
            newest = self._users.peek(snapshot.scope)
            if newest is None or newest.kv_epoch <= snapshot.kv_epoch:
                chat.plan = planned.plan
                return planned, self._salt(command, snapshot, planned.plan, num_published)
            chat.snapshot = newest

    def _min_injected_tokens(self) -> int:
        """An engine that answers others too has no time to spare: computing is never free then."""
        return self._break_even.min_tokens if self._num_open == 1 else 0

    async def _answer(
        self,
        command: GenerateCommand,
        chat: OpenChat,
        planned: ChatPlan,
        salt: str,
        timings: Timings,
        arrived: float,
    ) -> AsyncGenerator[ChatEvent, None]:
        plan = planned.plan
        request = self._request(command, plan, salt)
        served: Served | None = None
        sent_ns = time.time_ns()
        with self._reports.follow(request.params.handle) as report:
            stream = self._engine.stream(request)
            async with contextlib.aclosing(chat.outputs(stream)) as outputs:
                async for output in outputs:
                    if served is None:
                        timings = replace(timings, first_token_ms=_ms_since(arrived))
                        served = await _served(planned, report, output, timings)
                        chat.check()
                        _record(served, sent_ns)
                        if plan.spans:
                            self._count_lookups(plan, served.tokens)
                        if output.first is not None:
                            self._shadow.offer(
                                chat.snapshot, plan.token_ids, served.tokens, output.first
                            )
                        yield served
                    chat.check()
                    if output.text:
                        yield Delta(output.text)
        chat.check()
        assert served is not None, "a stream has at least one output"
        timings = replace(served.timings, total_ms=_ms_since(arrived))
        yield Done(output.finish_reason or "abort", served.tokens, output.num_tokens, timings)

    def _request(self, command: GenerateCommand, plan: Plan, salt: str) -> EngineRequest:
        room = self._engine.max_model_len - len(plan.token_ids)
        sampling = replace(
            command.sampling,
            max_tokens=min(command.sampling.max_tokens, room),
            min_tokens=min(command.sampling.min_tokens, room),
        )
        return EngineRequest(
            token_ids=plan.token_ids,
            params=RequestParams(handle=uuid.uuid4().hex, spans=plan.spans),
            cache_salt=salt,
            sampling=sampling,
            top_logprobs=self._shadow.top_logprobs(plan, timed=command.timed),
        )

    def _count_lookups(self, plan: Plan, tokens: ServedTokens) -> None:
        """A fact that had to be prefilled is a miss; one that was to be is none. The engine's own
        hits ask for no chunk."""
        self._chunk_metrics.hit(tokens.facts[Serving.INJECTED])
        prefilled = tokens.facts[Serving.PREFILLED]
        self._chunk_metrics.miss(max(0, prefilled - plan.num_text_facts))

    def _salt(
        self, command: GenerateCommand, snapshot: UserSnapshot, plan: Plan, num_published: int
    ) -> str:
        """num_published: before the plan was made. The salt stands for the chunks that the plan
        saw; when one was stored meanwhile nobody can tell, so the request shares with none."""
        if command.timed or num_published != self._mirror.num_published(snapshot.scope):
            return self._salts.once()
        return self._salts.shared(
            snapshot.scope,
            mode="injected" if plan.spans else "text",
            kv_epoch=snapshot.kv_epoch,
            num_published=num_published,
            num_text_facts=plan.num_text_facts if plan.spans else 0,
        )


def _retrieved(snapshot: UserSnapshot, chat: ChatPlan) -> Retrieved:
    missing = tuple(
        fact.fact
        for fact in chat.plan.facts
        if fact.key is None and snapshot.spec_of(fact.fact.fact_id) is not None
    )
    facts = _facts(chat, planned_servings(chat.plan))
    return Retrieved(
        facts,
        snapshot.memory_version,
        missing,
        question_tokens=chat.query.of_tokens if chat.query else 0,
        searched_tokens=chat.query.num_tokens if chat.query else 0,
    )


async def _served(
    chat: ChatPlan, report: RequestReport, output: EngineOutput, timings: Timings
) -> Served:
    """Put together what the engine reported of the request."""
    event = await report.first_of({EventKind.SERVED, EventKind.REJECTED}, SERVED_WAIT_S)
    if event is None or event.kind is EventKind.REJECTED:
        # Malformed parameters are prefilled; of a lost report we claim nothing better.
        _log.warning("chat.served_unknown", handle=report.handle, rejected=event is not None)
        tokens = served_tokens(chat.plan, 0, 0)
    else:
        fields = event.fields
        tokens = served_tokens(chat.plan, fields["native_tokens"], fields["injected_tokens"])
    inject_ms = 0.0
    if tokens.injected_tokens:
        composed = await report.first_of({EventKind.COMPOSED}, COMPOSED_WAIT_S)
        inject_ms = float(composed.fields["inject_ms"]) if composed else 0.0
    computed_ms = (output.first_token_s - output.scheduled_s) * 1e3
    timings = replace(
        timings,
        queue_ms=(output.scheduled_s - output.queued_s) * 1e3,
        inject_ms=inject_ms,
        prefill_ms=max(0.0, computed_ms - inject_ms),
    )
    return Served(_facts(chat, tokens.by_fact), tokens, timings)


def _facts(chat: ChatPlan, servings: tuple[Serving, ...]) -> tuple[FactServing, ...]:
    text_by_id = {fact.fact_id: fact.text for fact, _ in chat.ranked}
    return tuple(
        FactServing(
            fact=planned.fact,
            score=planned.score,
            num_tokens=len(planned.token_ids),
            serving=serving,
            text=text_by_id[planned.fact.fact_id],
        )
        for planned, serving in zip(chat.plan.facts, servings, strict=True)
    )


def _record(served: Served, sent_ns: int) -> None:
    timings, tokens = served.timings, served.tokens
    engine_steps: Mapping[str, float] = {
        names.QUEUE: timings.queue_ms,
        names.INJECT: timings.inject_ms,
        names.PREFILL: timings.prefill_ms,
    }
    record_steps(engine_steps, sent_ns)
    own_steps = {
        names.SYNC: timings.sync_ms,
        names.EMBED: timings.embed_ms,
        names.RETRIEVE: timings.retrieve_ms,
        names.PLAN: timings.plan_ms,
    }
    for step, duration_ms in {**own_steps, **engine_steps}.items():
        metrics.chat_step(step, duration_ms / 1e3)
    metrics.chat_served(
        tokens_by_serving={serving.value: n for serving, n in tokens.tokens.items()},
        facts_by_serving={serving.value: n for serving, n in tokens.facts.items()},
    )
    annotate(
        {
            names.TOKENS_INJECTED: tokens.injected_tokens,
            names.TOKENS_NATIVE_HIT: tokens.native_tokens,
            names.TOKENS_PREFILLED: tokens.prefilled_tokens,
        }
    )


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1e3
