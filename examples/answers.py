"""What one chat showed, and how a pair of them is compared."""

from __future__ import annotations

from dataclasses import dataclass

from inferscale_core.client.chat import ServedFact, Timings, Usage


@dataclass(frozen=True, slots=True)
class Asked:
    """One answered question. ttft_s: from the call to the first token, on the client's clock.

    Facts are in prompt order, best last, as they were really served.
    """

    answer: str
    facts: tuple[ServedFact, ...]
    usage: Usage
    timings: Timings
    ttft_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Pair:
    """The same question with the same facts, injected and as text."""

    k: int
    injected: Asked
    text: Asked

    @property
    def speedup(self) -> float:
        return self.text.ttft_s / self.injected.ttft_s

    def why_not_counted(self) -> str | None:
        """None when the two may be compared."""
        injected, text = self.injected.usage, self.text.usage
        num_facts = len(self.injected.facts)
        if injected.facts_injected < num_facts:
            return f"only {injected.facts_injected} of {num_facts} facts were resident"
        if injected.native_hit_tokens or text.native_hit_tokens:
            return "the engine's own prefix cache served a part"
        if injected.prompt_tokens != text.prompt_tokens:
            return "the two prompts differ"
        if text.injected_tokens:
            return "the text request was served from chunks"
        return None

    def as_row(self) -> dict[str, float]:
        """A row of `.demo/results.json`."""
        return {
            "k": self.k,
            "facts_injected": self.injected.usage.facts_injected,
            "tokens_injected": self.injected.usage.injected_tokens,
            "tokens_prefilled": self.injected.usage.prefilled_tokens,
            "ttft_injected_s": round(self.injected.ttft_s, 4),
            "ttft_text_s": round(self.text.ttft_s, 4),
        }
