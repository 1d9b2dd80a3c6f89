"""The exact tokens of a request, and for each span whether it is injected or prefilled.

    [ header | fact … fact (injected, best-ranked last) | fact … fact (text) | tail ]
      ╰────────── spans, from token 0 on ─────────────╯   ╰───── always prefilled ──╯

As text go facts that are not resident, and the best ones where that many are asked for so.
Text mode uses the same tokens in the same order and lists no spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inferscale_core.ids import ChunkKey
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Span, Spans


@dataclass(frozen=True, slots=True)
class PlannedFact:
    """One retrieved fact in prompt order. `key` is None when it is not resident. is_text: it is to
    be prefilled, resident or not."""

    fact: FactRef
    token_ids: tuple[int, ...]
    score: float
    key: ChunkKey | None
    is_text: bool = False

    @property
    def injected_key(self) -> ChunkKey | None:
        """None when the fact is prefilled as text."""
        return None if self.is_text else self.key


@dataclass(frozen=True, slots=True)
class Plan:
    """token_ids: the whole prompt. spans: what may be injected, contiguous from token 0."""

    token_ids: tuple[int, ...]
    spans: Spans
    header_tokens: int
    facts: tuple[PlannedFact, ...]

    @classmethod
    def of(cls, token_ids: Sequence[int], spans: Iterable[Span] = ()) -> Plan:
        """A prompt without a header and facts of its own."""
        return cls(tuple(token_ids), Spans.of(spans), header_tokens=0, facts=())

    @property
    def num_text_facts(self) -> int:
        """Facts that are prefilled because it was asked for."""
        return sum(fact.is_text for fact in self.facts)

    @property
    def injected_facts(self) -> tuple[FactRef, ...]:
        """Facts whose chunk the plan means to inject."""
        if not self.spans:
            return ()
        return tuple(fact.fact for fact in self.facts if fact.injected_key)

    @property
    def num_span_tokens(self) -> int:
        return self.spans.num_tokens


def plan_prompt(
    header: tuple[Span, Sequence[int]],
    facts: Sequence[PlannedFact],
    tail: Sequence[int],
    *,
    inject: bool,
) -> Plan:
    """Order what is injected first, then the others; keep the ranking (best last) within each.

    `tail` must hold at least one token: the engine needs one to compute.
    """
    assert tail, "the tail holds at least the generation prompt"
    header_span, header_ids = header
    injected = [fact for fact in facts if fact.injected_key]
    ordered = injected + [fact for fact in facts if not fact.injected_key]
    token_ids = [*header_ids]
    for fact in ordered:
        token_ids.extend(fact.token_ids)
    token_ids.extend(tail)
    return Plan(
        token_ids=tuple(token_ids),
        spans=_spans(header_span, injected) if inject else Spans.of(()),
        header_tokens=len(header_ids),
        facts=tuple(ordered),
    )


def _spans(header: Span, injected: Sequence[PlannedFact]) -> Spans:
    keys = [header.key, *(fact.key for fact in injected if fact.key)]
    counts = [header.num_tokens, *(len(fact.token_ids) for fact in injected)]
    return Spans(keys, counts)
