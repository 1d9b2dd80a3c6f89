"""Progress is readable where there is no terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from examples import progress
from examples.progress import Steps


def test_without_a_terminal_a_step_is_a_line_before_and_a_line_after() -> None:
    output = io.StringIO()
    with Steps(Console(file=output)).step("Load the model") as step:
        step.say("half of it", 0.5)
        step.say("3.1 GB")
    before, after = output.getvalue().splitlines()
    assert before == "  … Load the model"
    assert after.startswith("  ✓ Load the model")
    assert after.endswith("0.0 s  3.1 GB")


def test_a_long_step_shows_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_LINE_EVERY_S", 0.0)
    output = io.StringIO()
    with Steps(Console(file=output)).step("Encode") as step:
        step.say("12 of 58 facts", 0.2)
    assert "12 of 58 facts (0 s)" in output.getvalue()


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
