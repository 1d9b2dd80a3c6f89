"""How long facts are in this worker's model, before they are stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from inferscale_core.prompt import PromptFormat
from inferscale_core.retrieval import ChunkRules


@dataclass(frozen=True, slots=True)
class Statement:
    """A fact that is not stored yet."""

    text: str
    occurred_at: datetime | None = None


class FactLengths:
    """Counts as encoding does: it is the same line, rendered and tokenised by the same format."""

    def __init__(self, prompt_format: PromptFormat, rules: ChunkRules) -> None:
        self._format = prompt_format
        self._rules = rules

    @property
    def max_fact_tokens(self) -> int:
        """A fact of more tokens is not encoded."""
        return self._rules.max_fact_tokens

    async def __call__(self, statements: Sequence[Statement]) -> list[int]:
        """One count each, in order. In a thread, since others are streaming."""
        return await asyncio.to_thread(lambda: [self._count(one) for one in statements])

    def _count(self, statement: Statement) -> int:
        return len(self._format.fact_ids(statement.text, statement.occurred_at))
