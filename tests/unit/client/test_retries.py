from __future__ import annotations

import pytest

from inferscale_core.client.retries import NO_RETRIES, RetryPolicy
from inferscale_core.errors import (
    AnswerWithdrawn,
    DeadlineExceeded,
    EngineError,
    InferScaleError,
    InvalidInput,
    QuotaExceeded,
    RevisionConflict,
    StoreError,
    Unavailable,
)


def test_waits_grow_to_a_bound_and_are_spread() -> None:
    policy = RetryPolicy(max_attempts=8, first_wait_s=0.1, max_wait_s=1.0)
    error = Unavailable("x")
    waits = [[policy.wait_s(attempt, error) for _ in range(50)] for attempt in range(1, 8)]
    for attempt, drawn in enumerate(waits):
        longest = min(1.0, 0.1 * 2**attempt)
        assert all(wait is not None and longest / 2 <= wait <= longest for wait in drawn)
        assert len(set(drawn)) > 1
    assert policy.wait_s(8, error) is None


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput("text", "empty"),
        QuotaExceeded("max_facts", 1),
        RevisionConflict("m-1", 1, 2),
        EngineError("r-1 failed"),
        DeadlineExceeded("1 s"),
        InferScaleError("internal error"),
    ],
)
def test_only_a_server_that_is_away_is_asked_again(error: InferScaleError) -> None:
    assert RetryPolicy().wait_s(1, error) is None


@pytest.mark.parametrize(
    "error",
    [Unavailable("draining"), StoreError("no connection"), AnswerWithdrawn("m-1 was deleted")],
)
def test_no_retries_means_one_attempt(error: InferScaleError) -> None:
    assert RetryPolicy().wait_s(1, error) is not None
    assert NO_RETRIES.wait_s(1, error) is None
