"""Channels to a server of ours: they carry the credential, the trace and a default deadline."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from inferscale_core.rpc.auth import AUTHORIZATION
from inferscale_core.rpc.deadlines import Deadlines
from inferscale_core.telemetry.tracing import trace_headers

MAX_MESSAGE_BYTES = 32 << 20
"""A full batch (500 facts of 8,000 characters) takes 16 MB at 4 bytes a character."""

CONNECT_WITHIN_MS = 5_000
"""Source: gRPC core 1.76, connection backoff: the name says backoff, it bounds the handshake."""

_SERVICE_CONFIG = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """ping_interval_s: how often an idle connection with open calls is tested; at least what the
    server allows. max_reconnect_s: longest wait between two attempts to connect.
    credentials: TLS; None speaks plain text, for one machine or a mesh that encrypts.
    """

    ping_interval_s: float = 20.0
    ping_timeout_s: float = 10.0
    max_reconnect_s: float = 1.0
    max_message_bytes: int = MAX_MESSAGE_BYTES
    credentials: grpc.ChannelCredentials | None = None
    deadlines: Deadlines = field(default_factory=Deadlines)

    def channel_arguments(self) -> list[tuple[str, int | str]]:
        return [
            ("grpc.keepalive_time_ms", int(self.ping_interval_s * 1000)),
            ("grpc.keepalive_timeout_ms", int(self.ping_timeout_s * 1000)),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            # Despite its name the time that one attempt to connect has; a busy server needs it.
            ("grpc.min_reconnect_backoff_ms", CONNECT_WITHIN_MS),
            ("grpc.max_reconnect_backoff_ms", int(self.max_reconnect_s * 1000)),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_send_message_length", self.max_message_bytes),
            ("grpc.service_config", _SERVICE_CONFIG),
        ]


def open_channel(
    target: str, credential: str, options: ChannelOptions | None = None
) -> grpc.aio.Channel:
    """Connects at the first call. `credential`: an API key, or the operator's or internal token."""
    options = options or ChannelOptions()
    interceptors: Any = [
        _UnaryHeaders(credential, options.deadlines.unary_s),
        _StreamHeaders(credential, options.deadlines.stream_s),
    ]
    arguments = options.channel_arguments()
    if options.credentials is None:
        return grpc.aio.insecure_channel(target, arguments, interceptors=interceptors)
    return grpc.aio.secure_channel(
        target, options.credentials, arguments, interceptors=interceptors
    )


class _Headers:
    def __init__(self, credential: str, default_deadline_s: float) -> None:
        self._authorization = f"Bearer {credential}"
        self._default_deadline_s = default_deadline_s

    def _complete(self, details: grpc.aio.ClientCallDetails) -> grpc.aio.ClientCallDetails:
        ours = {AUTHORIZATION: self._authorization, **trace_headers()}
        metadata = grpc.aio.Metadata(*(details.metadata or ()), *ours.items())
        timeout = self._default_deadline_s if details.timeout is None else details.timeout
        return grpc.aio.ClientCallDetails(
            details.method, timeout, metadata, details.credentials, details.wait_for_ready
        )


class _UnaryHeaders(_Headers, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]
    async def intercept_unary_unary(
        self,
        continuation: Callable[..., Any],
        client_call_details: grpc.aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        return await continuation(self._complete(client_call_details), request)


class _StreamHeaders(_Headers, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[type-arg]
    async def intercept_unary_stream(
        self,
        continuation: Callable[..., Any],
        client_call_details: grpc.aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        return await continuation(self._complete(client_call_details), request)
