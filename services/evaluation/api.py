"""Asking a service: the data set is stored and asked through the public API, as applications do.

Every conversation is a user of its own. A chat is asked twice, as text and injected, with a salt of
its own each time, and says with its answer how likely the given one is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inferscale_core.client import (
    AsyncInferScale,
    ChatAnswer,
    ChatMessage,
    EncodeState,
    NewMemory,
    Sampling,
    Scored,
    Scoring,
    ServingMode,
    Turn,
)
from inferscale_core.errors import EngineError, Unavailable
from services.evaluation.asking import Asking
from services.evaluation.at_once import ask_all
from services.evaluation.dataset import Conversation, Question
from services.evaluation.progress import Progress
from services.evaluation.scores import Answered, FirstTokens, score_question
from services.worker.engine.protocol import NextToken
from services.worker.scoring import PlanScore

BATCH = 200
"""Facts or turns in one call."""

ENCODED_WITHIN_S = 3600.0
LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Pair:
    """One question, asked both ways."""

    text: Answered
    injected: Answered


@dataclass(frozen=True, slots=True)
class Asked:
    """What answered, as it states itself."""

    model_revision: str
    recipe: str
    pairs: tuple[Pair, ...]


class ApiDriver:
    """One tenant's service. `store` first.

    prefix: of user ids, so that several runs may share a tenant. text_facts: best facts as text.
    """

    def __init__(
        self,
        client: AsyncInferScale,
        conversations: Sequence[Conversation],
        asking: Asking,
        *,
        prefix: str,
        at_once: int,
        model: str | None = None,
        text_facts: int | None = None,
    ) -> None:
        self._client = client
        self._conversations = conversations
        self._asking = asking
        self._prefix = prefix
        self._at_once = at_once
        self._model = model
        self._text_facts = text_facts

    async def store(self) -> None:
        """Turns, then the facts that name them; returns when every fact is encoded. What is there
        already is not stored again. Raises EngineError for a fact that cannot be encoded."""
        with Progress("store", len(self._conversations)) as progress:
            for conversation in self._conversations:
                await self._store(conversation)
                progress.step()
        await self._wait_until_encoded()

    async def ask(self, k: int) -> Asked:
        """Every question. Raises EngineError when a fact was not injected."""
        asks = list(self._asks())
        found: list[tuple[str, str]] = []

        async def one(ask: tuple[Conversation, int, Question]) -> Pair:
            conversation, number, question = ask
            text = await self._chat(conversation, question, k, ServingMode.TEXT, ())
            compared = _scored(text).first
            seen = await self._chat(
                conversation, question, k, ServingMode.INJECTED, tuple(compared)
            )
            self._check(seen, min(k, len(conversation.facts)))
            assert seen.retrieved is not None
            found.append((seen.retrieved.model_revision, seen.retrieved.recipe))
            return Pair(
                _answered(conversation, number, question, text, None),
                _answered(conversation, number, question, seen, compared),
            )

        with Progress(f"ask k={k}", len(asks)) as progress:
            pairs = await ask_all(asks, one, progress, self._at_once)
        if len(set(found)) != 1:
            raise EngineError(f"the questions were answered by several: {sorted(set(found))}")
        return Asked(*found[0], tuple(pairs))

    async def _store(self, conversation: Conversation) -> None:
        user_id = self._user_id(conversation)
        stored = [memory async for memory in self._client.all_memories(user_id, page_size=500)]
        if len(stored) == len(conversation.facts):
            return
        for begin in range(0, len(conversation.turns), BATCH):
            turns = conversation.turns[begin : begin + BATCH]
            await self._client.append_turns(
                user_id,
                conversation.name,
                [Turn(turn.speaker, turn.text, None, turn.turn_id) for turn in turns],
            )
        for begin in range(0, len(conversation.facts), BATCH):
            facts = conversation.facts[begin : begin + BATCH]
            added = await self._client.batch_add_memories(
                user_id,
                [
                    NewMemory(
                        fact.text,
                        fact.occurred_at,
                        conversation.name if fact.turn_ids else None,
                        fact.turn_ids,
                    )
                    for fact in facts
                ],
            )
            for item in added.items:
                if item.error is not None:
                    raise item.error

    async def _wait_until_encoded(self) -> None:
        total = sum(len(conversation.facts) for conversation in self._conversations)
        started = time.monotonic()
        shown = 0
        with Progress("encode", total) as progress:
            while shown < total:
                done = sum([await self._num_encoded(c) for c in self._conversations])
                for _ in range(done - shown):
                    progress.step()
                shown = max(shown, done)
                if time.monotonic() - started > ENCODED_WITHIN_S:
                    raise Unavailable(f"{done} of {total} facts were encoded in an hour")
                if shown < total:
                    await asyncio.sleep(LOOK_EVERY_S)

    async def _num_encoded(self, conversation: Conversation) -> int:
        done = 0
        async for memory in self._client.all_memories(self._user_id(conversation), page_size=500):
            for status in memory.encode_status:
                if status.state is EncodeState.FAILED:
                    raise EngineError(f"memory {memory.memory_id} was not encoded: {status.reason}")
            done += memory.is_encoded
        return done

    async def _chat(
        self,
        conversation: Conversation,
        question: Question,
        k: int,
        mode: ServingMode,
        compared: tuple[int, ...],
    ) -> ChatAnswer:
        return await self._client.chat(
            self._user_id(conversation),
            [ChatMessage(m.role, m.content) for m in self._asking.messages(question)],
            k=k,
            sampling=Sampling(
                temperature=0.0, max_tokens=self._asking.max_tokens, stop=self._asking.stop
            ),
            model=self._model,
            mode=mode,
            timed=True,
            text_facts=self._text_facts,
            scoring=Scoring(question.answer, compared),
        ).answer()

    def _check(self, answer: ChatAnswer, num_facts: int) -> None:
        """Raises EngineError unless every fact but those asked for as text was injected."""
        assert answer.served is not None
        usage = answer.served.usage
        wanted = num_facts - min(num_facts, self._text_facts or 0)
        if usage.facts_injected != wanted:
            raise EngineError(
                f"{usage.facts_injected} of {wanted} facts were injected; the worker needs "
                "min_injected_tokens 0, and its recipe and this run the same text_facts"
            )

    def _asks(self) -> Iterator[tuple[Conversation, int, Question]]:
        for conversation in self._conversations:
            for number, question in enumerate(conversation.questions):
                yield conversation, number, question

    def _user_id(self, conversation: Conversation) -> str:
        return f"{self._prefix}-{conversation.name}"


def _answered(
    conversation: Conversation,
    number: int,
    question: Question,
    answer: ChatAnswer,
    compared: FirstTokens | None,
) -> Answered:
    scored = _scored(answer)
    first = NextToken(scored.top_token_id, scored.first)
    seen = PlanScore(first, scored.answer, answer.text)
    score = score_question(
        conversation.name, number, question, scored.prompt_digest, seen, compared
    )
    return Answered(score, scored.first, answer.text)


def _scored(answer: ChatAnswer) -> Scored:
    if answer.scored is None:
        raise EngineError("the service did not score an answer: it is older than this command")
    return answer.scored
