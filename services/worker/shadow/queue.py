"""Chats that wait to be checked: prompts in memory, few of them and not for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from inferscale_core.ids import UserScope
from services.worker.engine.protocol import NextToken

MAX_QUEUED = 32
"""Prompts. One of 4,000 tokens takes some 150 kB."""

MAX_AGE_S = 60.0
"""A busy worker keeps no prompt for longer."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A chat that was served from chunks. token_ids: its prompt; first: what it gave."""

    scope: UserScope
    kv_epoch: int
    token_ids: tuple[int, ...] = field(repr=False)
    first: NextToken = field(repr=False)


class SampleQueue:
    """First in, first out. One too many drops the oldest. Belongs to one event loop.

    A sample waits, and then was taken, forgotten, too old, or one too many; `dropped` is called
    with the reason for each of the last three.
    """

    def __init__(self, dropped: Callable[[str], None]) -> None:
        self._dropped = dropped
        self._waiting: dict[int, tuple[Sample, asyncio.TimerHandle]] = {}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, sample: Sample) -> None:
        if len(self) == MAX_QUEUED:
            self._remove(next(iter(self._waiting)), "crowded_out")
        loop = asyncio.get_running_loop()
        expiry = loop.call_later(MAX_AGE_S, self._remove, id(sample), "too_old")
        self._waiting[id(sample)] = (sample, expiry)
        self._filled.set()

    async def filled(self) -> None:
        await self._filled.wait()

    def take(self) -> Sample | None:
        """None when what waited was dropped meanwhile."""
        if not self._waiting:
            return None
        return self._remove(next(iter(self._waiting)))

    def forget(self, scope: UserScope) -> None:
        """Drop all of the user's samples."""
        own = [key for key, (s, _) in self._waiting.items() if s.scope == scope]
        for key in own:
            self._remove(key, "forgotten")

    def _remove(self, key: int, reason: str | None = None) -> Sample:
        sample, expiry = self._waiting.pop(key)
        expiry.cancel()
        if not self._waiting:
            self._filled.clear()
        if reason is not None:
            self._dropped(reason)
        return sample
