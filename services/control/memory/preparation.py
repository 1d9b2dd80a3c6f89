"""From a statement to the vector it is found by, before any transaction begins.

What is embedded is the line that a prompt will hold, so retrieval and serving see the same text.

Two limits in tokens apply. The embedder's window is counted exactly, by its own tokenizer. The
recipe's limit is in tokens of a served model, whose tokenizer control does not have: the embedder's
count stands in for it here, and a fact that passes and is still too long for a model fails its
encode job there with reason `too_long`; it is then served as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inferscale_core.errors import InvalidInput
from inferscale_core.memory.facts import NewFact
from inferscale_core.memory.recipes import Recipe
from inferscale_core.store import Embedding
from services.control.embedding_pool import Embedded, EmbeddingPool, TooLong


@dataclass(frozen=True, slots=True)
class Stated:
    """A fact, and how errors name the field that its text came in."""

    field: str
    fact: NewFact


class FactPreparation:
    def __init__(self, pool: EmbeddingPool, recipe: Recipe) -> None:
        self._pool = pool
        self._recipe = recipe

    async def vectors(
        self, facts: Sequence[Stated], *, max_fact_tokens: int | None
    ) -> list[Embedding | InvalidInput]:
        """One vector or reason for each fact. `max_fact_tokens`: of the strictest worker known."""
        recipe_limit = max_fact_tokens or self._recipe.max_fact_tokens
        lines = [self._recipe.render(s.fact.text, s.fact.occurred_at) for s in facts]
        limit = min(self._pool.max_tokens, recipe_limit)
        outcomes = await self._pool.embed(lines, max_tokens=limit)
        return [
            self._checked(stated.field, outcome, recipe_limit)
            for stated, outcome in zip(facts, outcomes, strict=True)
        ]

    async def vector(self, stated: Stated, *, max_fact_tokens: int | None) -> Embedding:
        """Raises InvalidInput with the number of tokens and the limit."""
        [outcome] = await self.vectors([stated], max_fact_tokens=max_fact_tokens)
        if isinstance(outcome, InvalidInput):
            raise outcome
        return outcome

    async def query_vector(self, query: str) -> Embedding:
        """Raises InvalidInput when the embedder would have ignored the query's end."""
        [outcome] = await self._pool.embed([query], max_tokens=self._pool.max_tokens)
        checked = self._checked("query", outcome, self._pool.max_tokens)
        if isinstance(checked, InvalidInput):
            raise checked
        return checked

    def _checked(
        self, field: str, outcome: Embedded, recipe_limit: int
    ) -> Embedding | InvalidInput:
        if isinstance(outcome, InvalidInput):
            return InvalidInput(field, f"cannot be embedded: {outcome.problem}")
        if not isinstance(outcome, TooLong):
            return outcome
        if outcome.num_tokens > self._pool.max_tokens:
            window = self._pool.max_tokens
            problem = f"{outcome.num_tokens} tokens; the embedder's window is {window}"
        else:
            problem = f"about {outcome.num_tokens} tokens; the recipe takes {recipe_limit}"
        return InvalidInput(field, problem)
