"""The exact tokens of a request, and for each span whether it is injected or prefilled.

    [ header | fact … fact (resident, best-ranked last) | fact … fact (text) | tail ]
      ╰────────── spans, from token 0 on ─────────────╯   ╰───── always prefilled ──╯

Text mode uses the same tokens in the same order and lists no spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from inferscale_core.ids import ChunkKey
from inferscale_core.memory.facts import FactRef


@dataclass(frozen=True, slots=True)
class PlannedFact:
    """One retrieved fact in prompt order. `key` is None when it is prefilled as text."""

    fact: FactRef
    token_ids: tuple[int, ...]
    score: float
    key: ChunkKey | None


class Span(NamedTuple):
    """`num_tokens` prompt tokens whose KV the chunk `key` holds.

    A tuple, since the engine's scheduler makes one for every fact of every request.
    """

    key: ChunkKey
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """token_ids: the whole prompt. spans: what may be injected, contiguous from token 0."""

    token_ids: tuple[int, ...]
    spans: tuple[Span, ...]
    header_tokens: int
    facts: tuple[PlannedFact, ...]

    @property
    def num_span_tokens(self) -> int:
        return sum(span.num_tokens for span in self.spans)


def plan_prompt(
    header: tuple[Span, Sequence[int]],
    facts: Sequence[PlannedFact],
    tail: Sequence[int],
    *,
    inject: bool,
) -> Plan:
    """Order resident facts first, then the others; keep the ranking (best last) within each.

    `tail` must hold at least one token: the engine needs one to compute.
    """
    assert tail, "the tail holds at least the generation prompt"
    header_span, header_ids = header
    ordered = [fact for fact in facts if fact.key] + [fact for fact in facts if not fact.key]
    spans = [header_span, *(Span(f.key, len(f.token_ids)) for f in ordered if f.key)]
    token_ids = [*header_ids]
    for fact in ordered:
        token_ids.extend(fact.token_ids)
    token_ids.extend(tail)
    return Plan(
        token_ids=tuple(token_ids),
        spans=tuple(spans) if inject else (),
        header_tokens=len(header_ids),
        facts=tuple(ordered),
    )
