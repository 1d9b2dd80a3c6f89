"""What the engine reports about single requests, for whoever is waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator
from contextlib import contextmanager

from inferscale_core.vllm_connector.events import Event, EventKind


class RequestReport:
    """The newest event of each kind about one request."""

    def __init__(self, handle: str) -> None:
        self.handle = handle
        self._newest: dict[EventKind, Event] = {}
        self._arrived = asyncio.Event()

    def record(self, event: Event) -> None:
        self._newest[event.kind] = event
        self._arrived.set()

    def get(self, kind: EventKind) -> Event | None:
        return self._newest.get(kind)

    async def first_of(self, kinds: Container[EventKind], timeout_s: float) -> Event | None:
        """The event that arrived of one of these kinds, or None when none comes in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    for kind, event in self._newest.items():
                        if kind in kinds:
                            return event
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return None


class Reports:
    """Hands each event to the report of its request, as long as somebody follows it."""

    def __init__(self) -> None:
        self._by_handle: dict[str, RequestReport] = {}

    def __len__(self) -> int:
        return len(self._by_handle)

    @contextmanager
    def follow(self, handle: str) -> Iterator[RequestReport]:
        """Collect events about `handle` for the block. Enter before the request is sent."""
        report = self._by_handle[handle] = RequestReport(handle)
        try:
            yield report
        finally:
            del self._by_handle[handle]

    def record(self, event: Event) -> None:
        report = self._by_handle.get(event.fields.get("handle", ""))
        if report is not None:
            report.record(event)
