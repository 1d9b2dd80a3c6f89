"""When a call that failed is made again, and after how long."""

from __future__ import annotations

import random
from dataclasses import dataclass

from inferscale_core.errors import AnswerWithdrawn, InferScaleError, StoreError, Unavailable

REPEATABLE = (Unavailable, StoreError, AnswerWithdrawn)
"""The server is away, restarting, or has lost its database; none of them says that nothing was
written, which is why mutations carry a request id. Or a chat, which writes nothing, was ended by a
delete before its first text."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Waits grow from `first_wait_s` to `max_wait_s`, each drawn from its upper half so that many
    clients do not come back at once. The call's deadline bounds all attempts together.
    """

    max_attempts: int = 10
    first_wait_s: float = 0.05
    max_wait_s: float = 2.0

    def wait_s(self, attempt: int, error: InferScaleError) -> float | None:
        """How long to wait after attempt number `attempt` (from 1). None: give up."""
        if attempt >= self.max_attempts or not isinstance(error, REPEATABLE):
            return None
        longest = min(self.max_wait_s, self.first_wait_s * 2.0 ** (attempt - 1))
        return random.uniform(longest / 2, longest)


NO_RETRIES = RetryPolicy(max_attempts=1)
