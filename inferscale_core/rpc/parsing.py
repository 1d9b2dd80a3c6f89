"""Requests are parsed inside the other interceptors, so that one which is no message is refused as
any bad input is. gRPC itself would answer UNKNOWN, without a reason."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from inferscale_core.errors import InvalidInput

_OURS = "/inferscale."


class ParsingInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """The innermost one: those around it see the request as bytes."""

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(_OURS):
            return handler
        return _streaming(handler) or _unary(handler)


def _unary(handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
    inner: Callable[..., Any] | None = handler.unary_unary
    assert inner is not None, "no service takes a stream of requests"

    async def behaviour(request: bytes, context: Any) -> Any:
        return await inner(_parsed(handler, request), context)

    return grpc.unary_unary_rpc_method_handler(behaviour, None, handler.response_serializer)


def _streaming(handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any] | None:
    inner: Callable[..., Any] | None = handler.unary_stream
    if inner is None:
        return None

    async def behaviour(request: bytes, context: Any) -> AsyncIterator[Any]:
        responses = inner(_parsed(handler, request), context)
        try:
            async for response in responses:
                yield response
        finally:
            await responses.aclose()

    return grpc.unary_stream_rpc_method_handler(behaviour, None, handler.response_serializer)


def _parsed(handler: grpc.RpcMethodHandler[Any, Any], request: bytes) -> Any:
    parse: Callable[[bytes], Any] | None = handler.request_deserializer
    assert parse is not None, "generated services parse their requests"
    try:
        return parse(request)
    except DecodeError:
        raise InvalidInput(
            "request", "is not a message that this method takes, or a text in it is not UTF-8"
        ) from None
