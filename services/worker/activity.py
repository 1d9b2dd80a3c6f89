"""Whether anybody asks something of this worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Activity:
    """Busy while a call is open, else idle. Belongs to one event loop.

    A chat is open until its last token, an encode job until its last wave. So an idle worker has
    nothing in its engine, and nothing on the way there.
    """

    def __init__(self) -> None:
        self._num_open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._busy = asyncio.Event()

    @contextmanager
    def open(self) -> Iterator[None]:
        self._num_open += 1
        self._idle.clear()
        self._busy.set()
        try:
            yield
        finally:
            self._num_open -= 1
            if not self._num_open:
                self._busy.clear()
                self._idle.set()

    async def busy(self) -> None:
        """Returns at once when a call is open, else with the next one."""
        await self._busy.wait()

    async def idle_for(self, duration_s: float) -> None:
        """Returns when nothing was open for so long, this long from now at the earliest."""
        while True:
            await self._idle.wait()
            try:
                await asyncio.wait_for(self.busy(), duration_s)
            except TimeoutError:
                return
