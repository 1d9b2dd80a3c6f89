"""Where a client connects to, how long it waits and how often it tries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc.aio

from inferscale_core.client.calls import call_unary
from inferscale_core.client.retries import NO_RETRIES, RetryPolicy
from inferscale_core.rpc.channel import ChannelOptions, open_channel

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_Stub = TypeVar("_Stub")


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """deadline_s: for a call, over all its attempts. chat_deadline_s: for a whole answer.
    channel: keepalive, message size and TLS.
    """

    deadline_s: float = 30.0
    chat_deadline_s: float = 600.0
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    channel: ChannelOptions = field(default_factory=ChannelOptions)


class Connection:
    """One channel, opened by the first call in that call's event loop and closed once."""

    def __init__(self, target: str, credential: str, options: ClientOptions) -> None:
        self.options = options
        self._target = target
        self._credential = credential
        self._channel: grpc.aio.Channel | None = None
        self._stubs: dict[object, Any] = {}

    def stub(self, make: Callable[[grpc.aio.Channel], _Stub]) -> _Stub:
        """make: a generated stub class; one instance is kept."""
        if self._channel is None:
            self._channel = open_channel(self._target, self._credential, self.options.channel)
        if make not in self._stubs:
            self._stubs[make] = make(self._channel)
        stub: _Stub = self._stubs[make]
        return stub

    async def call(
        self,
        method: str,
        stub: grpc.aio.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        *,
        repeatable: bool = True,
    ) -> _Response:
        """repeatable: making the call twice does what making it once does."""
        policy = self.options.retries if repeatable else NO_RETRIES
        deadline_s = self.options.deadline_s
        return await call_unary(method, stub, request, deadline_s=deadline_s, policy=policy)

    async def close(self) -> None:
        """Calls that are open fail."""
        if self._channel is not None:
            await self._channel.close(None)
