"""Grouping results into transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from services.control.encoding.batches import batched


class Numbers:
    """0, 1, 2, ... with pauses; `closed` once nobody reads any more."""

    def __init__(self, count: int, *, pause_s: float = 0.0, then: Exception | None = None) -> None:
        self.count = count
        self.pause_s = pause_s
        self.then = then
        self.closed = False

    async def __call__(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.count):
                await asyncio.sleep(self.pause_s)
                yield number
            if self.then:
                raise self.then
        finally:
            self.closed = True


async def test_a_fast_stream_comes_in_full_batches() -> None:
    batches = [b async for b in batched(Numbers(10)(), max_items=4, max_age_s=60)]
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


async def test_a_slow_stream_is_not_held_back() -> None:
    batches = [b async for b in batched(Numbers(4, pause_s=0.03)(), max_items=99, max_age_s=0.01)]
    assert len(batches) > 1
    assert [number for batch in batches for number in batch] == [0, 1, 2, 3]


async def test_nothing_gives_no_batch() -> None:
    assert [b async for b in batched(Numbers(0)(), max_items=4, max_age_s=60)] == []


async def test_what_came_before_an_error_is_given_first() -> None:
    numbers = Numbers(3, then=ValueError("broken"))
    batches = batched(numbers(), max_items=2, max_age_s=60)
    assert await anext(batches) == [0, 1]
    assert await anext(batches) == [2]
    with pytest.raises(ValueError, match="broken"):
        await anext(batches)


async def test_leaving_early_closes_the_stream() -> None:
    numbers = Numbers(10)
    batches = batched(numbers(), max_items=2, max_age_s=60)
    assert await anext(batches) == [0, 1]
    await batches.aclose()
    assert numbers.closed
