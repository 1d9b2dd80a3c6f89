"""How a request was really served: the engine's counts laid over the plan's token ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from inferscale_core.memory.plans import Plan


class Serving(Enum):
    """The values name it in metrics."""

    INJECTED = "injected"
    NATIVE_HIT = "native_hit"
    PREFILLED = "prefilled"


@dataclass(frozen=True, slots=True)
class ServedTokens:
    """Tokens of the prompt by way of serving; `by_fact` is in the plan's order of facts.

    0        native_tokens     + injected_tokens            num_prompt_tokens
    ╞═ native hit ═╪══════ injected ══════╪═════ prefilled ════════╡
    """

    num_prompt_tokens: int
    native_tokens: int
    injected_tokens: int
    by_fact: tuple[Serving, ...]

    @property
    def prefilled_tokens(self) -> int:
        return self.num_prompt_tokens - self.native_tokens - self.injected_tokens

    @property
    def tokens(self) -> Mapping[Serving, int]:
        return {
            Serving.INJECTED: self.injected_tokens,
            Serving.NATIVE_HIT: self.native_tokens,
            Serving.PREFILLED: self.prefilled_tokens,
        }

    @property
    def facts(self) -> Mapping[Serving, int]:
        counts = Counter(self.by_fact)
        return {serving: counts[serving] for serving in Serving}


def planned_servings(plan: Plan) -> tuple[Serving, ...]:
    """What the plan means for each of its facts, before the engine has decided."""
    is_injecting = bool(plan.spans)
    return tuple(
        Serving.INJECTED if is_injecting and fact.injected_key else Serving.PREFILLED
        for fact in plan.facts
    )


def served_tokens(plan: Plan, native_tokens: int, injected_tokens: int) -> ServedTokens:
    """A fact that lies partly in the native hit and partly in the injection counts as injected;
    one of which any token was computed counts as prefilled."""
    supplied = native_tokens + injected_tokens
    by_fact = []
    end = plan.header_tokens
    for fact in plan.facts:
        end += len(fact.token_ids)
        if end <= native_tokens:
            by_fact.append(Serving.NATIVE_HIT)
        elif end <= supplied:
            by_fact.append(Serving.INJECTED)
        else:
            by_fact.append(Serving.PREFILLED)
    return ServedTokens(len(plan.token_ids), native_tokens, injected_tokens, tuple(by_fact))
