"""Whether facts are short enough for the models that will encode them.

Only a worker has a model's tokenizer, so a worker of each model is asked before the transaction.
Most facts are so short that no tokenizer could make too many tokens of them; for those nobody is.
Where no worker of a model answers, its count is left out: the fact is stored, since facts are never
lost to a cache, and if it is too long its encode job there says so.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from inferscale_core.errors import InferScaleError, InvalidInput, Unavailable
from inferscale_core.ids import TenantId, UserId, WorkerId
from inferscale_core.memory.facts import NewFact
from inferscale_core.memory.recipes import Recipe
from inferscale_core.telemetry.logs import get_logger
from services.control.worker_messages import TokenCounts
from services.control.workers import WorkerChannels, WorkerDirectory

COUNT_LIMIT_S = 3.0
"""A worker tokenises 3 MB of text a second on one busy CPU core (Qwen2.5's tokenizer), and what
passes the embedder's window is short: 500 facts of 1,500 letters, a full batch, took 0.25 s."""

MAX_WORKERS_TRIED = 2
"""Of one model, when the first does not answer although its lease still holds."""

SPARE_TOKENS = 8
"""What a tokenizer may add at the ends of a line, for example SentencePiece's first space."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Stated:
    """A fact, and how errors name the field that its text came in."""

    field: str
    fact: NewFact


@dataclass(frozen=True, slots=True)
class Destination:
    """Whose facts they become, and the models that are to encode them."""

    tenant_id: TenantId
    user_id: UserId
    models: tuple[str, ...]


class FactLengths:
    def __init__(
        self, directory: WorkerDirectory, channels: WorkerChannels, recipe: Recipe
    ) -> None:
        self._directory = directory
        self._channels = channels
        self._recipe = recipe

    async def problems(
        self, facts: Sequence[Stated], destination: Destination
    ) -> list[InvalidInput | None]:
        """For each fact why one of the models cannot encode it, with both numbers."""
        problems: list[InvalidInput | None] = [None] * len(facts)
        places = await self._doubtful(facts, destination)
        if not places:
            return problems
        doubtful = [facts[place].fact for place in places]
        answers = await asyncio.gather(
            *(self._count(doubtful, destination, model) for model in destination.models)
        )
        for model, counts in zip(destination.models, answers, strict=True):
            if counts is None:
                continue
            for place, num_tokens in zip(places, counts.num_tokens, strict=True):
                if num_tokens > counts.max_fact_tokens and problems[place] is None:
                    problems[place] = InvalidInput(
                        facts[place].field,
                        f"{num_tokens} tokens of model {model!r};"
                        f" it takes at most {counts.max_fact_tokens}",
                    )
        return problems

    async def _doubtful(self, facts: Sequence[Stated], destination: Destination) -> list[int]:
        """Where the facts stand that might be too long for some model that is served."""
        limit = await self._directory.max_fact_tokens(destination.models)
        if limit is None:
            return []
        lines = [self._recipe.render(one.fact.text, one.fact.occurred_at) for one in facts]
        return [place for place, line in enumerate(lines) if most_tokens(line) > limit]

    async def _count(
        self, facts: Sequence[NewFact], destination: Destination, model: str
    ) -> TokenCounts | None:
        """As the worker counts that will encode them, or the user's next one. None: no answer."""
        unreachable: set[WorkerId] = set()
        while len(unreachable) < MAX_WORKERS_TRIED:
            try:
                worker = await self._directory.owner(
                    destination.tenant_id, destination.user_id, model, avoiding=unreachable
                )
            except Unavailable:
                break
            try:
                client = self._channels.client(worker)
                return await client.count_tokens(facts, limit_s=COUNT_LIMIT_S)
            except InferScaleError as exc:
                _log.warning("lengths.unanswered", exc=exc, worker_id=worker.worker_id)
                unreachable.add(worker.worker_id)
        _log.warning("lengths.unknown", model=model, num_facts=len(facts))
        return None


def most_tokens(line: str) -> int:
    """No tokenizer makes more tokens than this of the line.

    A token covers a byte at least: of the line, or of what normalising it gives, which is never
    longer than its full compatibility decomposition.
    """
    decomposed = unicodedata.normalize("NFKD", line)
    return max(len(line.encode()), len(decomposed.encode())) + SPARE_TOKENS
