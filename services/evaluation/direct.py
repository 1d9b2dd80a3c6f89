"""Asking an engine in one process: the worker's own parts, without services and a database.

All users of the data set are encoded side by side, wave by wave, and hundreds of questions are in
the engine at once, each with its answer's tokens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from inferscale_core.errors import EngineError
from inferscale_core.ids import TenantId
from inferscale_core.memory.plans import Plan
from inferscale_core.memory.recipes import Recipe
from inferscale_core.prompt import PromptFormat, Tokenizer
from inferscale_core.retrieval import UserSnapshot
from inferscale_core.settings import EmbedderSettings, WorkerSettings
from services.evaluation.asking import Asking
from services.evaluation.at_once import ask_all
from services.evaluation.dataset import Conversation, Part, Question
from services.evaluation.memory_source import PreparedMemory
from services.evaluation.prepared import Prepared, PreparedVectors
from services.evaluation.progress import Progress
from services.evaluation.scores import Answered, EncodeCost, FirstTokens, score_question
from services.worker.app import RunningEngine, WorkerParts, build_parts, search_device
from services.worker.planner import Planner
from services.worker.scoring import AnswerScorer, token_digest
from services.worker.users import UserAt


@dataclass(frozen=True, slots=True)
class Ask:
    """One question with its prompt, as injected plan and as the same tokens in text mode."""

    conversation: str
    number: int
    question: Question
    injected: Plan
    text: Plan


class DirectDriver:
    """One recipe on one running engine. `encode` first; `close` gives its chunks back.

    part: of the questions; None means all.
    """

    def __init__(
        self,
        running: RunningEngine,
        prepared: Prepared,
        recipe: Recipe,
        tokenizer: Tokenizer,
        asking: Asking,
        *,
        at_once: int,
        part: Part | None = None,
    ) -> None:
        self._running = running
        self._prepared = prepared
        self._asking = asking
        self._at_once = at_once
        self._places = None if part is None else part.places(prepared.conversations)
        self._memory = PreparedMemory(prepared, recipe, TenantId(f"evaluation-{recipe.hash}"))
        self._format = PromptFormat(tokenizer, recipe)
        self._embedder = PreparedVectors(prepared)
        self._parts = self._build(recipe)
        self._scorer = AnswerScorer(running.host, running.reports)

    def _build(self, recipe: Recipe) -> WorkerParts:
        running = self._running
        return build_parts(
            # Text mode and injection are compared: none may be chosen for being faster.
            WorkerSettings(min_injected_tokens=0, encode_batch=self._at_once),
            running.host,
            running.model,
            recipe,
            self._format,
            self._embedder,
            self._memory,
            running.mirror,
            running.reports,
            device=search_device(EmbedderSettings(device="cpu")),
        )

    async def encode(self) -> EncodeCost:
        """Every fact of every user. Raises EngineError for a fact that got no chunk."""
        await self._parts.header.ensure()
        users = self._memory.users()
        started = time.perf_counter()
        total = sum(len(c.facts) for c in self._prepared.conversations)
        with Progress(f"encode {self._parts.rules.recipe.name}", total) as progress:
            await asyncio.gather(*(self._encode_user(user, progress) for user in users))
        seconds = time.perf_counter() - started
        snapshots = [await self._parts.users.at_least(user) for user in users]
        return EncodeCost(
            facts=total,
            forwarded_tokens=sum(map(_forwarded_tokens, snapshots)),
            waves=max((s.depth for one in snapshots for s in one.specs.values()), default=0),
            seconds=round(seconds, 3),
        )

    async def ask_text(self, asks: Sequence[Ask]) -> list[Answered]:
        """In text mode, with the first tokens that other ways are compared with."""
        with Progress("ask as text", len(asks)) as progress:
            return await ask_all(asks, self._ask_text, progress, self._at_once)

    async def ask_injected(
        self, asks: Sequence[Ask], compared: Sequence[FirstTokens]
    ) -> list[Answered]:
        """With every fact injected, compared with these first tokens, and the same tokens as they
        are now."""
        pairs = list(zip([ask.injected for ask in asks], asks, compared, strict=True))
        with Progress(f"ask {self._parts.rules.recipe.name}", len(pairs)) as progress:
            return await ask_all(pairs, self._ask_compared, progress, self._at_once)

    async def ask_text_again(
        self, asks: Sequence[Ask], compared: Sequence[FirstTokens]
    ) -> list[Answered]:
        """How far text mode is from itself, in other batches and served by no cache."""
        pairs = list(zip([ask.text for ask in asks], asks, compared, strict=True))[::-1]
        with Progress("ask as text again", len(pairs)) as progress:
            answered = await ask_all(pairs, self._ask_compared, progress, self._at_once)
        return answered[::-1]

    async def asks(self, k: int) -> list[Ask]:
        """Every question of the part.

        Raises EngineError when one of the facts found for it has no chunk.
        """
        snapshots: dict[str, UserSnapshot] = {
            user.user_id: await self._parts.users.at_least(user) for user in self._memory.users()
        }
        planner = Planner(
            self._embedder,
            self._format,
            self._parts.rules,
            self._running.mirror,
        )
        return await asyncio.to_thread(lambda: list(self._asks(planner, snapshots, k)))

    async def close(self) -> None:
        """Forget all that was encoded, so that the arena is free for the next recipe."""
        for user in self._memory.users():
            await self._parts.forget(user, self._memory.fact_ids(user), (), ())

    async def _encode_user(self, user: UserAt, progress: Progress) -> None:
        async for result in self._parts.encode(user):
            if result.reason is not None:
                raise EngineError(
                    f"fact {result.fact.fact_id} of {user.user_id!r} was not encoded: "
                    f"{result.reason}"
                )
            progress.step()

    def _asks(
        self,
        planner: Planner,
        snapshots: Mapping[str, UserSnapshot],
        k: int,
    ) -> Iterator[Ask]:
        room = self._running.host.max_model_len
        for conversation in self._prepared.conversations:
            snapshot = snapshots[conversation.name]
            for number, question in enumerate(conversation.questions):
                if not self._is_asked(conversation, number):
                    continue
                messages = self._asking.messages(question)
                plans = [
                    planner.plan(
                        snapshot,
                        messages,
                        k,
                        inject=inject,
                        min_injected_tokens=0,
                        context_tokens=room,
                    ).plan
                    for inject in (True, False)
                ]
                _check_plans(*plans, num_text=self._parts.rules.recipe.text_facts)
                yield Ask(conversation.name, number, question, *plans)

    def _is_asked(self, conversation: Conversation, number: int) -> bool:
        return self._places is None or (conversation.name, number) in self._places

    async def _ask_text(self, ask: Ask) -> Answered:
        seen = await self._scorer.score(
            ask.text, self._answer_ids(ask), self._asking.max_tokens, stop=self._asking.stop
        )
        prompt = token_digest(ask.text.token_ids)
        score = score_question(ask.conversation, ask.number, ask.question, prompt, seen, None)
        return Answered(score, seen.first.logprobs, seen.said)

    async def _ask_compared(self, asked: tuple[Plan, Ask, FirstTokens]) -> Answered:
        plan, ask, compared = asked
        seen = await self._scorer.score(
            plan,
            self._answer_ids(ask),
            self._asking.max_tokens,
            stop=self._asking.stop,
            compared=tuple(compared),
        )
        prompt = token_digest(plan.token_ids)
        score = score_question(ask.conversation, ask.number, ask.question, prompt, seen, compared)
        first = {token_id: seen.first.logprobs[token_id] for token_id in compared}
        return Answered(score, first, seen.said)

    def _answer_ids(self, ask: Ask) -> tuple[int, ...]:
        return self._format.answer_ids(ask.question.answer)


def _check_plans(injected: Plan, text: Plan, *, num_text: int) -> None:
    """Raises EngineError unless both are the same tokens and all facts but `num_text` injected."""
    missing = sum(fact.key is None for fact in injected.facts)
    if not injected.spans or missing > min(num_text, len(injected.facts)):
        raise EngineError(f"{missing} of {len(injected.facts)} facts have no chunk")
    if injected.token_ids != text.token_ids:
        raise EngineError("the prompts of injected and text mode differ")


def _forwarded_tokens(snapshot: UserSnapshot) -> int:
    """Tokens that the model computes to encode a user: facts, and what stands before them as
    text."""
    total = 0
    for spec in snapshot.specs.values():
        total += len(snapshot.facts[spec.fact.fact_id].token_ids)
        total += sum(len(turn.token_ids) for turn in snapshot.prefix_turns(spec))
        if not spec.prefix_keys:
            total += sum(len(snapshot.facts[ref.fact_id].token_ids) for ref in spec.prefix_facts)
    return total
