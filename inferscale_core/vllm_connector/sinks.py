"""Where the scheduler side's events go: over a local socket, or into a list."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from inferscale_core.vllm_connector.events import Event, EventKind


class EventSink(Protocol):
    def send(self, event: Event) -> None: ...


class MemorySink:
    """Keeps the newest events for whoever asks in the same process."""

    def __init__(self, limit: int = 100_000) -> None:
        self.events: deque[Event] = deque(maxlen=limit)

    def send(self, event: Event) -> None:
        self.events.append(event)


class SocketSink:
    """Pushes events to the worker service, which binds the endpoint. Never blocks the scheduler.

    When the reader is so far behind that the socket refuses a message, the event is lost; the
    reader sees a gap in `seq` and forgets all that it has learnt.
    """

    def __init__(self, endpoint: str) -> None:
        import zmq

        self._again = zmq.Again
        self._no_block = zmq.NOBLOCK
        self._socket: Any = zmq.Context.instance().socket(zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, 1_000_000)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(endpoint)

    def send(self, event: Event) -> None:
        try:
            self._socket.send(event.to_wire(), self._no_block)
        except self._again:
            return


class EventLog:
    """Numbers events from 1 and hands them to the sink."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self._seq = 0

    def emit(self, kind: EventKind, **fields: Any) -> None:
        self._seq += 1
        self._sink.send(Event(self._seq, kind, fields))


def open_sink(endpoint: str | None) -> EventSink:
    return SocketSink(endpoint) if endpoint else MemorySink()
