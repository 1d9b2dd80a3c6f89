"""Grouping a stream, so that one transaction takes several results."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

_T = TypeVar("_T")


async def batched(
    items: AsyncGenerator[_T, None], *, max_items: int, max_age_s: float
) -> AsyncGenerator[list[_T], None]:
    """Lists of up to `max_items`, given when the first item of a list is `max_age_s` old.

    Age is looked at when an item comes, so the last list of a quiet stream comes with its end. An
    error of `items` comes after what it had given. Closing the generator closes `items`.
    """
    batch: list[_T] = []
    started_at = 0.0
    async with aclosing(items):
        try:
            async for item in items:
                started_at = started_at if batch else time.monotonic()
                batch.append(item)
                if len(batch) == max_items or time.monotonic() - started_at >= max_age_s:
                    yield batch
                    batch = []
        except Exception:
            if batch:
                yield batch
            raise
    if batch:
        yield batch
