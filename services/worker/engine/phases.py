"""Two kinds of requests that must not share a step of the engine.

vLLM's first model runner, which is the CPU's, gives a step's requests either the likeliest tokens
or the tokens that were named: where one request names tokens, those that want the likeliest get
none. Source: vLLM 0.26 and 0.32, v1/sample/sampler.py ("prefer logprob_token_ids").
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum, auto


class Kind(Enum):
    LIKELIEST = auto()
    NAMED = auto()

    @property
    def other(self) -> Kind:
        return Kind.NAMED if self is Kind.LIKELIEST else Kind.LIKELIEST


class Phases:
    """Any number of one kind at a time. Whoever comes while the other kind is inside, or waiting,
    waits; when the last one leaves, all who wait go in, the other kind first. So neither starves.

    Belongs to one event loop.
    """

    def __init__(self) -> None:
        self._kind = Kind.LIKELIEST
        self._inside = 0
        self._waiting: dict[Kind, deque[asyncio.Future[None]]] = {kind: deque() for kind in Kind}

    @asynccontextmanager
    async def inside(self, kind: Kind) -> AsyncIterator[None]:
        await self._enter(kind)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, kind: Kind) -> None:
        is_open = self._kind is kind and not self._waiting[kind.other]
        if self._inside == 0 or is_open:
            self._kind = kind
            self._inside += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[kind].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        self._inside -= 1
        if self._inside > 0:
            return
        for kind in (self._kind.other, self._kind):
            turns = [turn for turn in self._waiting[kind] if not turn.done()]
            self._waiting[kind].clear()
            if turns:
                self._kind = kind
                self._inside = len(turns)
                for turn in turns:
                    turn.set_result(None)
                return
