"""What is seen while a question is asked twice: who waits for what, and for how long."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from examples.asking import NotComparable, ask_pair
from examples.progress import Steps
from examples.view import AnswerView, PairView
from inferscale_core.client import (
    ChatEvent,
    Delta,
    Done,
    Served,
    ServedFact,
    Serving,
    ServingMode,
    Timings,
    Usage,
)

NO_TIME = Timings(*[0.0] * 9)
FIRST_TOKEN_S = 0.15


class SlowClient:
    """Answers "Bologna." some time after each question. facts_resident: of the one there is."""

    def __init__(self, facts_resident: int = 1) -> None:
        self._facts_resident = facts_resident

    def chat(self, user_id: str, question: str, *, mode: ServingMode, **_: Any) -> Any:
        return self._events(mode)

    def _events(self, mode: ServingMode) -> Iterator[ChatEvent]:
        injected = self._facts_resident if mode is ServingMode.INJECTED else 0
        usage = Usage(
            prompt_tokens=40,
            injected_tokens=30 * injected,
            native_hit_tokens=0,
            prefilled_tokens=40 - 30 * injected,
            completion_tokens=0,
            facts_injected=injected,
            facts_native_hit=0,
            facts_prefilled=1 - injected,
        )
        time.sleep(FIRST_TOKEN_S)
        fact = ServedFact("id", 1, 0.7, 30, Serving.INJECTED, "Freja marries in Bologna.")
        yield Served((fact,), usage, NO_TIME)
        yield Delta("Bologna.")
        yield Done("stop", replace(usage, completion_tokens=2), NO_TIME)


def asked(*, terminal: bool, answer: bool) -> str:
    output = io.StringIO()
    console = Console(file=output, width=100, force_terminal=terminal, no_color=True)
    view = (AnswerView if answer else PairView)(console, Steps(console))
    ask_pair(SlowClient(), "mira", "Where?", k=1, onlooker=view)  # type: ignore[arg-type]
    return output.getvalue()


@pytest.mark.parametrize("answer", [True, False], ids=["question", "sweep"])
@pytest.mark.parametrize("way", ["injected", "as text"])
def test_each_half_says_in_a_plain_log_that_it_waits_and_then_how_long(
    way: str, answer: bool
) -> None:
    shown = asked(terminal=False, answer=answer)
    found = re.search(
        rf"^  … First token, {way}$.*?^  ✓ First token, {way} +(\d+\.\d) s", shown, re.M | re.S
    )
    assert found, shown
    assert float(found[1]) >= 0.1
    assert "✓" not in found[0].partition("✓")[0]


@pytest.mark.parametrize("way", ["injected", "as text"])
def test_each_half_moves_in_a_terminal_while_it_waits(way: str) -> None:
    shown = asked(terminal=True, answer=True)
    waiting, _, after = shown.partition(f"✓ First token, {way}")
    assert f"First token, {way}" in waiting
    assert after


def test_an_answer_is_whole_before_the_text_half_begins() -> None:
    shown = asked(terminal=False, answer=True)
    before, _, _ = shown.partition("… First token, as text")
    assert before.endswith("Bologna.\n     0.2 s, tokens: 2\n  ")


def test_a_pair_that_never_counts_says_so_each_time_and_then_gives_up() -> None:
    output = io.StringIO()
    console = Console(file=output, width=100)
    client: Any = SlowClient(facts_resident=0)
    with pytest.raises(NotComparable, match="only 0 of 1 facts were resident"):
        ask_pair(client, "mira", "Where?", k=1, onlooker=PairView(console, Steps(console)))
    assert output.getvalue().count("not counted, asked again: only 0 of 1") == 3
