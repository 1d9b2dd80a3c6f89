"""Work that a call starts and does not wait for, such as queueing a job after a chat has begun."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from inferscale_core.telemetry.logs import get_logger

_log = get_logger(__name__)


class Background:
    """Keeps its tasks alive until they end; `close` waits for them. Belongs to one event loop.

    Only for work that may be lost with the process: what must happen is queued in a transaction.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        await asyncio.gather(*self._tasks)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as exc:
        _log.warning("background.failed", exc=exc)
