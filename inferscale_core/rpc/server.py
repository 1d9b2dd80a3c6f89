"""A gRPC server of ours: interceptors, health, reflection, keepalive and an orderly end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from inferscale_core.errors import Unavailable
from inferscale_core.rpc.auth import Authenticator
from inferscale_core.rpc.channel import MAX_MESSAGE_BYTES
from inferscale_core.rpc.deadlines import Deadlines
from inferscale_core.rpc.interceptors import (
    StatusInterceptor,
    TelemetryInterceptor,
    TenantInterceptor,
)
from inferscale_core.rpc.open_calls import OpenCalls
from inferscale_core.rpc.parsing import ParsingInterceptor
from inferscale_core.telemetry.logs import get_logger

_log = get_logger(__name__)
_Servicer = TypeVar("_Servicer")

EVERYTHING = ""
"""The name under which health reports the server as a whole."""

END_BEFORE_GRACE = 0.9
"""Share of the grace after which open calls are told UNAVAILABLE; the rest lets them say so."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """min_ping_interval_s: a client may ping this often, with or without open calls.
    ping_interval_s, ping_timeout_s: how soon a client that vanished silently is noticed.
    credentials: TLS; None speaks plain text.
    """

    min_ping_interval_s: float = 0.2
    ping_interval_s: float = 10.0
    ping_timeout_s: float = 5.0
    max_message_bytes: int = MAX_MESSAGE_BYTES
    deadlines: Deadlines = field(default_factory=Deadlines)
    credentials: grpc.ServerCredentials | None = None

    def channel_arguments(self) -> list[tuple[str, int]]:
        """A ping may arrive early by what the network held its forerunner up: half is allowed."""
        return [
            ("grpc.http2.min_ping_interval_without_data_ms", int(self.min_ping_interval_s * 500)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.keepalive_time_ms", int(self.ping_interval_s * 1000)),
            ("grpc.keepalive_timeout_ms", int(self.ping_timeout_s * 1000)),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_send_message_length", self.max_message_bytes),
            ("grpc.so_reuseport", 0),
        ]


class RpcServer:
    """Built, then started, then drained; each once. All in one event loop.

    started   health answers, also at `health_port` where that was asked for; SERVING from
              `set_ready(True)` on
    draining  NOT_SERVING at once; after `notice_s` no new calls; open calls have the grace
    """

    def __init__(self, authenticator: Authenticator, options: ServerOptions | None = None) -> None:
        options = options or ServerOptions()
        self.open_calls = OpenCalls()
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._services = [health.SERVICE_NAME, reflection.SERVICE_NAME]
        self._server = grpc.aio.server(
            interceptors=[
                TelemetryInterceptor(),
                StatusInterceptor(options.deadlines, self.open_calls),
                TenantInterceptor(authenticator),
                ParsingInterceptor(),
            ],
            options=options.channel_arguments(),
        )
        self._credentials = options.credentials
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._health_server: grpc.aio.Server | None = None
        self.health_port = 0

    def add(
        self,
        file: FileDescriptor,
        add_to_server: Callable[[_Servicer, grpc.aio.Server], None],
        servicer: _Servicer,
    ) -> None:
        """Serve the service that `file` declares; `add_to_server` is generated beside it.

        For example `add(memory_pb2.DESCRIPTOR, add_MemoryServiceServicer_to_server, servicer)`.
        """
        add_to_server(servicer, self._server)
        self._services += [service.full_name for service in file.services_by_name.values()]

    async def start(
        self, address: str, *, ready: bool = True, health_address: str | None = None
    ) -> int:
        """Listen on host:port and return the port. Raises Unavailable when it cannot be had.

        health_address: where health alone is served as well, in plain text.
        """
        reflection.enable_server_reflection(self._services, self._server)
        await self.set_ready(ready)
        port = _listen(self._server, address, self._credentials)
        if health_address is not None:
            self._health_server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._health_server)
            self.health_port = _listen(self._health_server, health_address, None)
            await self._health_server.start()
        await self._server.start()
        _log.info("rpc.listening", address=address, port=port)
        return port

    async def set_ready(self, ready: bool) -> None:
        """What health says of the server and of each service; no effect once it drains."""
        states = health_pb2.HealthCheckResponse
        state = states.SERVING if ready else states.NOT_SERVING
        for service in (EVERYTHING, *self._services):
            await self._health.set(service, state)

    async def drain(self, grace_s: float, *, notice_s: float = 0.0) -> None:
        """Stop in order. A call that outlasts the grace ends UNAVAILABLE, and may be repeated.

        notice_s: between health turning NOT_SERVING and the last new call, for whoever routes by
        health to see it; on top of the grace.
        """
        await self._health.enter_graceful_shutdown()
        _log.info("rpc.draining", open_calls=len(self.open_calls), grace_s=grace_s)
        await asyncio.sleep(notice_s)
        stopping = asyncio.ensure_future(self._server.stop(grace_s))
        await asyncio.wait([stopping], timeout=grace_s * END_BEFORE_GRACE)
        num_ended = 0 if stopping.done() else self.open_calls.end_all()
        await stopping
        if self._health_server is not None:
            await self._health_server.stop(0)
        _log.info("rpc.stopped", calls_ended=num_ended)


def _listen(
    server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None
) -> int:
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as exc:
        raise Unavailable(f"cannot listen on {address}: is the port taken?") from exc


async def serve_until_signal(server: RpcServer, grace_s: float, *, notice_s: float = 0.5) -> None:
    """Wait for SIGTERM or SIGINT, then drain. The server has been started."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    try:
        await stop.wait()
        await server.drain(grace_s, notice_s=notice_s)
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
