"""Every call ends: one without a deadline gets a default on both sides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from inferscale_core.errors import DeadlineExceeded


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a call may take when its caller does not say."""

    unary_s: float = 30.0
    stream_s: float = 600.0

    def default(self, *, streaming: bool) -> float:
        return self.stream_s if streaming else self.unary_s


@asynccontextmanager
async def within(limit_s: float | None) -> AsyncIterator[None]:
    """Cancel the block after `limit_s` and raise DeadlineExceeded. None: no limit."""
    try:
        async with asyncio.timeout(limit_s) as timeout:
            yield
    except TimeoutError as exc:
        if not timeout.expired():
            raise
        raise DeadlineExceeded(f"the call took longer than {limit_s:g} s") from exc
