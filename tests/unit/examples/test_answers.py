"""Only pairs that may be compared are counted, and the demo shows what they say."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from examples.answers import Asked, Pair
from examples.progress import Steps
from examples.view import AnswerView, show_bars, show_pair, show_sweep
from inferscale_core.client import Served, ServedFact, Serving, Timings, Usage

NO_TIME = Timings(*[0.0] * 9)


def asked(*, num_facts: int = 20, injected: int, prefilled: int, ttft_s: float) -> Asked:
    fact = ServedFact("id", 1, 0.7, 30, Serving.INJECTED, "On 1 May 2025: Mira [likes] soup.\n")
    facts_injected = num_facts if injected else 0
    usage = Usage(
        prompt_tokens=injected + prefilled,
        injected_tokens=injected,
        native_hit_tokens=0,
        prefilled_tokens=prefilled,
        completion_tokens=1,
        facts_injected=facts_injected,
        facts_native_hit=0,
        facts_prefilled=num_facts - facts_injected,
    )
    return Asked("soup", (fact,) * num_facts, usage, NO_TIME, ttft_s, ttft_s)


@pytest.fixture
def pair() -> Pair:
    return Pair(
        20,
        injected=asked(injected=620, prefilled=42, ttft_s=2.0),
        text=asked(injected=0, prefilled=662, ttft_s=11.0),
    )


def test_a_pair_with_every_fact_resident_counts(pair: Pair) -> None:
    assert pair.why_not_counted() is None
    assert pair.speedup == 5.5
    assert pair.as_row() == {
        "k": 20,
        "facts_injected": 20,
        "tokens_injected": 620,
        "tokens_prefilled": 42,
        "ttft_injected_s": 2.0,
        "ttft_text_s": 11.0,
    }


def test_a_fact_that_was_not_resident_spoils_the_pair(pair: Pair) -> None:
    usage = replace(pair.injected.usage, facts_injected=19)
    spoilt = replace(pair, injected=replace(pair.injected, usage=usage))
    assert spoilt.why_not_counted() == "only 19 of 20 facts were resident"


@pytest.mark.parametrize("side", ["injected", "text"])
def test_a_hit_of_the_engines_own_cache_spoils_the_pair(pair: Pair, side: str) -> None:
    one: Asked = getattr(pair, side)
    usage = replace(one.usage, native_hit_tokens=16)
    spoilt = replace(pair, **{side: replace(one, usage=usage)})
    assert "prefix cache" in (spoilt.why_not_counted() or "")


def test_prompts_of_different_length_spoil_the_pair(pair: Pair) -> None:
    usage = replace(pair.text.usage, prompt_tokens=663)
    spoilt = replace(pair, text=replace(pair.text, usage=usage))
    assert spoilt.why_not_counted() == "the two prompts differ"


def test_everything_fits_into_80_columns_without_a_terminal(pair: Pair) -> None:
    output = io.StringIO()
    console = Console(file=output, width=80)
    show_pair(console, pair)
    show_sweep(console, [pair, replace(pair, k=50)])
    show_bars(console, [pair, replace(pair, k=50)])
    shown = output.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "5.5x faster" in shown
    assert "11.00 s" in shown
    assert "…" not in shown


def test_a_streamed_answer_keeps_its_words_and_its_brackets(pair: Pair) -> None:
    output = io.StringIO()
    console = Console(file=output, width=60)
    view = AnswerView(console, Steps(console))
    view.served(Served(pair.injected.facts, pair.injected.usage, NO_TIME))
    pieces = ["You", " like", " [really]", " good", " soup", ",", "\n", "Mira", "."] * 5
    for piece in pieces:
        view.text(piece)
    view.answered(pair.injected)
    shown, _, took = output.getvalue().rpartition("\n     ")
    assert max(map(len, shown.splitlines())) <= 60
    assert "and 17 more" in shown
    answer = " ".join(shown.partition("more")[2].split())
    assert answer == " ".join("".join(pieces).split())
    assert took == "2.0 s, tokens: 1\n"
