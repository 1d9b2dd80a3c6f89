"""Many questions at once, a bounded number of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from services.evaluation.progress import Progress

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


async def ask_all(
    items: Sequence[_Item],
    ask: Callable[[_Item], Awaitable[_Answer]],
    progress: Progress,
    at_once: int,
) -> list[_Answer]:
    """Answers in the order of the items. When one fails the others are cancelled, and the first
    failure is raised."""
    slots = asyncio.Semaphore(at_once)

    async def one(item: _Item) -> _Answer:
        async with slots:
            answer = await ask(item)
        progress.step()
        return answer

    tasks = [asyncio.create_task(one(item)) for item in items]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
