"""From a question to the exact tokens of its prompt."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from inferscale_core.embedding import DeviceEmbedder, TextEnd, text_end
from inferscale_core.errors import InvalidInput
from inferscale_core.memory.plans import Plan, PlannedFact, plan_prompt
from inferscale_core.memory.spans import Span
from inferscale_core.prompt import ChatMessage, PromptFormat
from inferscale_core.retrieval import ChunkRules, FactEntry, UserSnapshot
from inferscale_core.retrieval.questions import QuestionSearch
from inferscale_core.telemetry import names
from inferscale_core.telemetry.tracing import record_steps, span
from services.worker.engine.mirror import DirectoryMirror

Ranked = list[tuple[FactEntry, float]]
"""Facts with their cosine similarity to the question, most similar first."""


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """embed_ms: until the device was told to embed; on a GPU retrieve_ms holds what that takes."""

    embed_ms: float
    retrieve_ms: float
    plan_ms: float


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """plan.facts are in prompt order. query: what they were searched for, None when nothing was."""

    plan: Plan
    ranked: Ranked
    query: TextEnd | None
    times: PlanTimes


class Planner:
    """Pure but for the embedder. Slow calls: run it in a thread."""

    def __init__(
        self,
        embedder: DeviceEmbedder,
        prompt_format: PromptFormat,
        rules: ChunkRules,
        mirror: DirectoryMirror,
    ) -> None:
        self._embedder = embedder
        self._search = QuestionSearch(embedder)
        self._format = prompt_format
        self._header = Span(rules.header_key, rules.header_tokens)
        self._mirror = mirror
        self._text_facts = rules.recipe.text_facts

    def plan(
        self,
        snapshot: UserSnapshot,
        messages: Sequence[ChatMessage],
        k: int,
        *,
        inject: bool,
        min_injected_tokens: int,
        context_tokens: int,
        text_facts: int | None = None,
    ) -> ChatPlan:
        """Find the k facts nearest to the end of the last message, and lay out the prompt.

        text_facts: the best so many are prefilled as text; None takes the recipe's number.
        Text mode (`inject` false) gives the same tokens in the same order, and so does memory of
        less than `min_injected_tokens`. Raises InvalidInput when they leave no room for an answer
        in the model's context.
        """
        started = time.perf_counter()
        query, embedded = None, started
        ranked: Ranked = []
        with span(names.RETRIEVE, {names.FACT_COUNT: len(snapshot.facts)}):
            if k and snapshot.facts:
                query, ranked, embedded = self._retrieve(snapshot, messages[-1].content, k)
        retrieved = time.perf_counter()
        with span(names.PLAN, {names.CHUNK_COUNT: len(ranked)}) as current:
            min_tokens = min_injected_tokens if inject else math.inf
            num_text = self._text_facts if text_facts is None else text_facts
            plan = self._lay_out(snapshot, ranked, messages, min_tokens, num_text)
            current.set_attribute(names.TOKEN_COUNT, len(plan.token_ids))
        if len(plan.token_ids) >= context_tokens:
            raise InvalidInput(
                "messages",
                f"the prompt takes {len(plan.token_ids)} tokens with its {len(ranked)} facts, "
                f"and the model's context has {context_tokens}",
            )
        times = (started, embedded, retrieved, time.perf_counter())
        steps = [(after - before) * 1e3 for before, after in itertools.pairwise(times)]
        return ChatPlan(plan, ranked, query, PlanTimes(*steps))

    def answer_ids(self, text: str) -> tuple[int, ...]:
        """The tokens of an answer behind a plan."""
        return self._format.answer_ids(text)

    def _retrieve(self, snapshot: UserSnapshot, text: str, k: int) -> tuple[TextEnd, Ranked, float]:
        """What was searched for, what was found, and when by the clock it was embedded."""
        start_ns, started = time.time_ns(), time.perf_counter()
        query = text_end(self._embedder, text)
        found = self._search.nearest(query.text, snapshot.vectors, k)
        record_steps({names.EMBED: (found.embedded - started) * 1e3}, start_ns)
        ranked = [(snapshot.facts[fact_id], score) for fact_id, score in found.facts]
        return query, ranked, found.embedded

    def _lay_out(
        self,
        snapshot: UserSnapshot,
        ranked: Ranked,
        messages: Sequence[ChatMessage],
        min_tokens: float,
        num_text: int,
    ) -> Plan:
        facts = [
            self._planned(snapshot, fact, score, is_text=rank < num_text)
            for rank, (fact, score) in enumerate(ranked)
        ][::-1]
        header = (self._header, self._format.header_ids)
        stored = [len(fact.token_ids) for fact in facts if fact.injected_key]
        num_stored = self._header.num_tokens + sum(stored)
        tail = self._format.tail_ids(messages)
        return plan_prompt(header, facts, tail, inject=num_stored >= min_tokens)

    def _planned(
        self, snapshot: UserSnapshot, fact: FactEntry, score: float, *, is_text: bool
    ) -> PlannedFact:
        spec = snapshot.spec_of(fact.fact_id)
        is_resident = spec is not None and spec.key in self._mirror
        key = spec.key if spec is not None and is_resident else None
        return PlannedFact(fact.ref, fact.token_ids, score, key, is_text)
