"""From a statement to the vector it is found by, before any transaction begins.

What is embedded is the line that a prompt will hold, so retrieval and serving see the same text.

Two limits in tokens apply: the embedder's window, counted here by its own tokenizer, and for each
model what it can encode, counted by a worker that has the model's tokenizer (`lengths`).
"""

from __future__ import annotations

from collections.abc import Sequence

from inferscale_core.errors import InvalidInput
from inferscale_core.memory.recipes import Recipe
from inferscale_core.store import Embedding
from services.control.embedding_pool import Embedded, EmbeddingPool, TooLong
from services.control.memory.lengths import Destination, FactLengths, Stated


class FactPreparation:
    def __init__(self, pool: EmbeddingPool, recipe: Recipe, lengths: FactLengths) -> None:
        self._pool = pool
        self._recipe = recipe
        self._lengths = lengths

    async def vectors(
        self, facts: Sequence[Stated], destination: Destination
    ) -> list[Embedding | InvalidInput]:
        """One vector or reason for each fact."""
        vectors = await self._embedded(facts)
        fitting = [place for place, one in enumerate(vectors) if not isinstance(one, InvalidInput)]
        problems = await self._lengths.problems([facts[place] for place in fitting], destination)
        for place, problem in zip(fitting, problems, strict=True):
            if problem is not None:
                vectors[place] = problem
        return vectors

    async def vector(self, stated: Stated, destination: Destination) -> Embedding:
        """Raises InvalidInput with the number of tokens and the limit."""
        [outcome] = await self.vectors([stated], destination)
        if isinstance(outcome, InvalidInput):
            raise outcome
        return outcome

    async def query_vector(self, query: str) -> Embedding:
        """Raises InvalidInput when the embedder would have ignored the query's end."""
        [outcome] = await self._pool.embed([query], max_tokens=self._pool.max_tokens)
        checked = self._checked("query", outcome)
        if isinstance(checked, InvalidInput):
            raise checked
        return checked

    async def _embedded(self, facts: Sequence[Stated]) -> list[Embedding | InvalidInput]:
        lines = [self._recipe.render(one.fact.text, one.fact.occurred_at) for one in facts]
        outcomes = await self._pool.embed(lines, max_tokens=self._pool.max_tokens)
        return [
            self._checked(stated.field, outcome)
            for stated, outcome in zip(facts, outcomes, strict=True)
        ]

    def _checked(self, field: str, outcome: Embedded) -> Embedding | InvalidInput:
        if isinstance(outcome, InvalidInput):
            return InvalidInput(field, f"cannot be embedded: {outcome.problem}")
        if isinstance(outcome, TooLong):
            window = self._pool.max_tokens
            return InvalidInput(
                field, f"{outcome.num_tokens} tokens; the embedder's window is {window}"
            )
        return outcome
