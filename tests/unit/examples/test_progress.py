"""Progress is readable where there is no terminal."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from examples import progress
from examples.progress import Steps, shorten_line


def test_without_a_terminal_a_step_is_a_line_before_and_a_line_after() -> None:
    output = io.StringIO()
    with Steps(Console(file=output)).step("Load the model") as step:
        step.say("half of it", 0.5)
        step.say("3.1 GB")
    before, after = output.getvalue().splitlines()
    assert before == "  … Load the model"
    assert after.startswith("  ✓ Load the model")
    assert after.endswith("0.0 s  3.1 GB")


@pytest.mark.parametrize(
    ("said", "shown"), [("12 of 58 facts", "12 of 58 facts (0 s)"), ("", "still going on (0 s)")]
)
def test_a_long_step_shows_where_it_is_though_it_says_nothing_new(
    monkeypatch: pytest.MonkeyPatch, said: str, shown: str
) -> None:
    monkeypatch.setattr(progress, "PLAIN_LINE_EVERY_S", 0.01)
    output = io.StringIO()
    with Steps(Console(file=output)).step("Encode") as step:
        step.say(said, 0.2)
        deadline = time.monotonic() + 5
        while output.getvalue().count(shown) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert output.getvalue().count(shown) >= 2
    lines = output.getvalue()
    time.sleep(0.05)
    assert output.getvalue() == lines, "a step that is over still speaks"


def test_a_detail_with_brackets_is_shown_as_it_is() -> None:
    output = io.StringIO()
    with Steps(Console(file=output, width=100)).step("Load the model") as step:
        step.say("6% [00:00<?, ?it/s] and [/bold]")
    assert "6% [00:00<?, ?it/s] and [/bold]" in output.getvalue()


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        ("(Worker pid=7) WARNING 11-29 18:59:23 [base.py:214] Loading weights", "Loading weights"),
        ("INFO 11-29 18:59:23 [base.py:214] Loading weights", "Loading weights"),
        ("2026-11-29T18:59:25.470Z INFO engine.started ranks=1", "engine.started ranks=1"),
        (
            "Loading shards:   0% | 0/1 [00:00<?, ?it/s]",
            "Loading shards: 0% | 0/1 [00:00<?, ?it/s]",
        ),
        ("x" * 70, "x" * 59 + "…"),
        ("", ""),
    ],
)
def test_a_line_of_a_log_is_shortened_to_what_it_says(line: str, detail: str) -> None:
    assert shorten_line(line) == detail


def test_a_step_that_fails_is_not_shown_as_done() -> None:
    output = io.StringIO()
    with pytest.raises(RuntimeError), Steps(Console(file=output)).step("Encode"):
        raise RuntimeError
    assert "✓" not in output.getvalue()


def test_in_a_terminal_the_moving_line_is_replaced_by_the_result() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100)
    with Steps(console).step("Encode") as step:
        step.say("12 of 58 facts", 0.2)
    assert "Encode" in output.getvalue()
    assert "12 of 58 facts" in output.getvalue()
