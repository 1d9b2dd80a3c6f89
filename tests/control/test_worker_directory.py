"""Who is alive, as control remembers it between two looks at the leases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from inferscale_core.store import Store
from services.control.workers import WorkerDirectory


class Leases:
    """A store whose answer was true when it was asked, and takes until `go`."""

    def __init__(self) -> None:
        self.alive: list[Any] = []
        self.go = asyncio.Event()
        self.num_reads = 0

    @asynccontextmanager
    async def system(self) -> AsyncIterator[Any]:
        yield SimpleNamespace(workers=self)

    async def live(self, lease_s: float) -> list[Any]:
        seen = list(self.alive)
        self.num_reads += 1
        await self.go.wait()
        return seen


async def test_who_joins_while_the_leases_are_read_is_not_overlooked() -> None:
    leases = Leases()
    directory = WorkerDirectory(cast(Store, leases), lease_s=10)
    reading = asyncio.create_task(directory.live())
    while not leases.num_reads:
        await asyncio.sleep(0)
    leases.alive.append("joined")
    directory.refresh_soon()
    leases.go.set()
    assert await reading == ()
    assert await directory.live() == ("joined",)
    assert await directory.live() == ("joined",)
    assert leases.num_reads == 2
