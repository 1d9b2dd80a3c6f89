"""The calls a server is serving, so that a drain can end those that outlast its grace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class OpenCalls:
    """A call is open from `serving` until its block ends; `end_all` cancels the open ones.

    A call that `end_all` cancelled is told so by `was_ended`, to tell it from one whose client has
    gone. Belongs to one event loop.
    """

    def __init__(self) -> None:
        self._open: set[asyncio.Task[Any]] = set()
        self._ended: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def serving(self) -> Iterator[asyncio.Task[Any]]:
        task = asyncio.current_task()
        assert task is not None, "calls are served by tasks"
        self._open.add(task)
        try:
            yield task
        finally:
            self._open.discard(task)
            self._ended.discard(task)

    def end_all(self) -> int:
        """Returns how many calls were still open."""
        for task in self._open:
            self._ended.add(task)
            task.cancel()
        return len(self._open)

    def was_ended(self, task: asyncio.Task[Any]) -> bool:
        return task in self._ended
