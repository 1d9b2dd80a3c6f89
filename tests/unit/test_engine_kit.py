"""The yardstick of the exactness tests measures what it says."""

from __future__ import annotations

import pytest

from tests.engine_kit import Answer, logprob_differences


def answer(*steps: dict[int, float], tokens: tuple[int, ...] = (1, 1)) -> Answer:
    return Answer(list(tokens[: len(steps)]), list(steps), cached=0)


def test_every_listed_token_counts_by_its_absolute_difference() -> None:
    differences = logprob_differences(answer({1: -1.0, 2: -2.0}), answer({1: -1.5, 2: -1.5}))
    assert differences == [0.5, 0.5]


def test_a_token_that_the_other_does_not_list_never_counts_below_zero() -> None:
    wanted = answer({1: -1.0, 2: -3.0, 3: -9.0})
    assert logprob_differences(wanted, answer({1: -1.0, 4: -5.0})) == [0.0, 2.0, 0.0]


def test_what_follows_a_token_that_differs_is_another_text_and_not_compared() -> None:
    wanted = answer({1: -1.0}, {1: -1.0}, tokens=(1, 1))
    seen = answer({1: -1.0}, {1: -7.0}, tokens=(2, 1))
    assert logprob_differences(wanted, seen) == pytest.approx([0.0])
