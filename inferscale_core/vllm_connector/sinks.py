"""Where the scheduler side's events go: over a local socket, or into a list."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from inferscale_core.vllm_connector.events import Event, EventKind, bodies_to_wire, event_of


class EventSink(Protocol):
    def send(self, bodies: list[dict[str, Any]]) -> None:
        """Events as they go over the wire, in order, one at least."""


class MemorySink:
    """Keeps the newest events for whoever asks in the same process."""

    def __init__(self, limit: int = 100_000) -> None:
        self.events: deque[Event] = deque(maxlen=limit)

    def send(self, bodies: list[dict[str, Any]]) -> None:
        self.events.extend(map(event_of, bodies))


class SocketSink:
    """Pushes events to the worker service, which binds the endpoint. Never blocks the scheduler.

    When the reader is so far behind that the socket refuses a message, its events are lost; the
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

    def send(self, bodies: list[dict[str, Any]]) -> None:
        try:
            self._socket.send(bodies_to_wire(bodies), self._no_block)
        except self._again:
            return


class EventLog:
    """Numbers events from 1, and hands the sink all at once what one call of the engine gave: a
    step of a hundred requests has several hundred, and a message each would take longer than most
    of what they tell of."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self._seq = 0
        self._bodies: list[dict[str, Any]] = []

    def emit(self, kind: EventKind, **fields: Any) -> None:
        """Sent by the next `flush`."""
        self._seq += 1
        fields["seq"], fields["kind"] = self._seq, kind
        self._bodies.append(fields)

    def flush(self) -> None:
        if self._bodies:
            bodies, self._bodies = self._bodies, []
            self._sink.send(bodies)


def open_sink(endpoint: str | None) -> EventSink:
    return SocketSink(endpoint) if endpoint else MemorySink()
