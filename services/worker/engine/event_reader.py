"""The socket on which the scheduler side publishes its events."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

import zmq
import zmq.asyncio

from inferscale_core.telemetry.logs import get_logger
from inferscale_core.vllm_connector.events import bodies_from_wire, event_of
from services.worker.engine.mirror import DirectoryMirror
from services.worker.engine.reports import Reports

_log = get_logger(__name__)

EVENTS_AT_ONCE = 50
"""Taken before others get their turn, at some 20 us each: a delete drops thousands of chunks."""


class EventReader:
    """Binds an endpoint of its own and feeds the mirror and the reports until closed.

    The mirror takes each event before the request it is about is told, so who waits for `captured`
    finds the chunk in the mirror.
    """

    def __init__(self, mirror: DirectoryMirror, reports: Reports) -> None:
        self._mirror = mirror
        self._reports = reports
        self._folder = Path(tempfile.mkdtemp(prefix="inferscale-"))
        self.endpoint = f"ipc://{self._folder}/events"
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.setsockopt(zmq.RCVHWM, 1_000_000)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._socket.bind(self.endpoint)
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._socket.close(linger=0)
        self._context.term()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _read(self) -> None:
        num_read = itertools.count(1)
        while True:
            # Does not wait, and lets nobody else run, while messages are there.
            message = await self._socket.recv()
            try:
                bodies = bodies_from_wire(message)
            except ValueError as exc:
                self._lost(exc)
                continue
            for body in bodies:
                if next(num_read) % EVENTS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                self._take(body)

    def _take(self, body: dict[str, Any]) -> None:
        try:
            event = event_of(body)
            self._mirror.apply(event)
            self._reports.record(event)
        except (ValueError, KeyError, TypeError) as exc:
            self._lost(exc)

    def _lost(self, exc: Exception) -> None:
        """The next event shows a gap, and the mirror starts over."""
        _log.error("mirror.malformed_event", exc=exc)
