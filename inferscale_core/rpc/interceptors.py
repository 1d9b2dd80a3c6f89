"""What surrounds every call that a server of ours serves, outermost first.

    telemetry   continues the caller's trace, measures the call
    status      gives it a deadline, turns errors into statuses, logs failures
    tenant      turns the credential into the caller's identity, or refuses the call
    parsing     makes a message of the request's bytes, see `parsing`

Each runs as one coroutine in the call's own task, for unary and streaming calls alike: context
variables set here are seen by the servicer, and when the client goes, the servicer's generator is
closed at once. Health and reflection pass through untouched.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
import grpc.aio
from opentelemetry.trace import SpanKind, get_current_span

from inferscale_core.errors import Unavailable
from inferscale_core.rpc.auth import Authenticator, check_allowed, credential_from
from inferscale_core.rpc.deadlines import Deadlines, within
from inferscale_core.rpc.identity import serve_as
from inferscale_core.rpc.open_calls import OpenCalls
from inferscale_core.rpc.status import abort_with, log_level, status_code_of
from inferscale_core.telemetry import metrics, names
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.tracing import context_from, record_failure, span

_log = get_logger(__name__)
_OURS = "/inferscale."

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Proceed = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """method: `package.Service/Method`; only methods that the server has get this far."""

    method: str
    streaming: bool
    context: Context

    @property
    def metadata(self) -> list[tuple[str, str | bytes]]:
        return list(self.context.invocation_metadata() or ())


class _Around(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    @abstractmethod
    async def around(self, call: Call, proceed: Proceed) -> Any:
        """Return what `proceed` returns: the response of a unary call, None for a stream."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler: Handler | None = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(_OURS):
            return handler  # type: ignore[return-value]  # None: gRPC answers UNIMPLEMENTED
        method = handler_call_details.method.removeprefix("/")
        return self._streaming(method, handler) or self._unary(method, handler)

    def _unary(self, method: str, handler: Handler) -> Handler:
        inner: Callable[..., Any] | None = handler.unary_unary
        assert inner is not None, "no service takes a stream of requests"

        async def behaviour(request: Any, context: Context) -> Any:
            return await self.around(Call(method, False, context), lambda: inner(request, context))

        return grpc.unary_unary_rpc_method_handler(
            behaviour, handler.request_deserializer, handler.response_serializer
        )

    def _streaming(self, method: str, handler: Handler) -> Handler | None:
        inner: Callable[..., Any] | None = handler.unary_stream
        if inner is None:
            return None

        async def behaviour(request: Any, context: Context) -> None:
            call = Call(method, True, context)
            await self.around(call, lambda: _send(inner(request, context), context))

        return grpc.unary_stream_rpc_method_handler(
            behaviour, handler.request_deserializer, handler.response_serializer
        )


class TelemetryInterceptor(_Around):
    async def around(self, call: Call, proceed: Proceed) -> Any:
        started_at = time.monotonic()
        metrics.call_started(call.method)
        status = grpc.StatusCode.CANCELLED
        try:
            response, status = await self._traced(call, proceed)
        finally:
            metrics.call_served(call.method, status.name, time.monotonic() - started_at)
        if isinstance(response, grpc.aio.AbortError):
            raise response
        return response

    async def _traced(self, call: Call, proceed: Proceed) -> tuple[Any, grpc.StatusCode]:
        """An abort is returned, since the status interceptor has marked the span with its cause."""
        headers = {key: value for key, value in call.metadata if isinstance(value, str)}
        attributes = {names.RPC_SYSTEM: "grpc", names.RPC_METHOD: call.method}
        with span(
            call.method, attributes, kind=SpanKind.SERVER, parent=context_from(headers)
        ) as current:
            status = grpc.StatusCode.OK
            try:
                response = await proceed()
            except grpc.aio.AbortError as exc:
                response, status = exc, status_code_of(call.context)
            current.set_attribute(names.RPC_STATUS, status.name)
            return response, status


class StatusInterceptor(_Around):
    """`open_calls` is the server's, so that a drain reaches every call from here inwards."""

    def __init__(self, deadlines: Deadlines, open_calls: OpenCalls) -> None:
        self._deadlines = deadlines
        self._open_calls = open_calls

    async def around(self, call: Call, proceed: Proceed) -> Any:
        with self._open_calls.serving() as task:
            try:
                async with within(self._limit_s(call)):
                    return await proceed()
            except grpc.aio.AbortError:
                raise
            except asyncio.CancelledError:
                if not self._open_calls.was_ended(task):
                    raise
                task.uncancel()
                await _refuse(call, Unavailable("the server is stopping"))
            except Exception as exc:
                await _refuse(call, exc)

    def _limit_s(self, call: Call) -> float | None:
        """None when the caller set a deadline: gRPC enforces that one."""
        remaining: float | None = call.context.time_remaining()
        return None if remaining is not None else self._deadlines.default(streaming=call.streaming)


class TenantInterceptor(_Around):
    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def around(self, call: Call, proceed: Proceed) -> Any:
        principal = await self._authenticator.authenticate(credential_from(call.metadata))
        serve_as(principal)
        check_allowed(principal, call.method)
        return await proceed()


async def _send(responses: Any, context: Context) -> None:
    """`responses` is a servicer's generator, or the coroutine of the next interceptor."""
    if not isinstance(responses, AsyncIterator):
        await responses
        return
    try:
        async for response in responses:
            await context.write(response)
    finally:
        aclose = getattr(responses, "aclose", None)
        if aclose:
            await aclose()


async def _refuse(call: Call, exc: BaseException) -> None:
    """Ends the call by raising AbortError."""
    _log.write(log_level(exc), "rpc.failed", {"method": call.method}, exc)
    record_failure(get_current_span(), exc)
    await abort_with(call.context, exc)
