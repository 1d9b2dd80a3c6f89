"""One call of the client: its span, its deadline over all attempts, and the attempts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import TypeVar

import grpc
import grpc.aio
from opentelemetry.trace import Span, SpanKind

from inferscale_core.client.retries import RetryPolicy
from inferscale_core.errors import DeadlineExceeded, InferScaleError
from inferscale_core.rpc.pb.inferscale.v1 import chat_pb2
from inferscale_core.rpc.status import error_from, status_name
from inferscale_core.telemetry import metrics, names
from inferscale_core.telemetry.tracing import (
    annotate,
    current_while,
    end_span,
    record_failure,
    start_span,
)

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class Attempts:
    """Counts the attempts of one call and spends its deadline."""

    def __init__(self, policy: RetryPolicy, deadline_s: float) -> None:
        self._policy = policy
        self._deadline_s = deadline_s
        self._ends_at = time.monotonic() + deadline_s
        self._number = 0

    def next_timeout_s(self) -> float:
        """What is left for the next attempt. Raises DeadlineExceeded when nothing is."""
        self._number += 1
        if self._number > 1:
            annotate({names.ATTEMPT: self._number})
        remaining_s = self._ends_at - time.monotonic()
        if remaining_s <= 0:
            raise DeadlineExceeded(f"no answer within {self._deadline_s:g} s")
        return remaining_s

    async def pause_after(self, error: InferScaleError, cause: BaseException) -> None:
        """Wait before the next attempt, or raise `error` when there is none."""
        wait_s = self._policy.wait_s(self._number, error)
        if wait_s is None or time.monotonic() + wait_s >= self._ends_at:
            raise error from cause
        await asyncio.sleep(wait_s)


async def call_unary(
    method: str,
    stub: grpc.aio.UnaryUnaryMultiCallable[_Request, _Response],
    request: _Request,
    *,
    deadline_s: float,
    policy: RetryPolicy,
) -> _Response:
    """Raises the server's error as itself, and what the network did as Unavailable."""
    attempts = Attempts(policy, deadline_s)
    with _measured(method) as current, current_while(current):
        while True:
            timeout_s = attempts.next_timeout_s()
            try:
                return await stub(request, timeout=timeout_s)
            except grpc.aio.AioRpcError as exc:
                await attempts.pause_after(error_from(exc), exc)


async def stream_chat(
    method: str,
    stub: grpc.aio.UnaryStreamMultiCallable[chat_pb2.ChatRequest, chat_pb2.ChatResponse],
    request: chat_pb2.ChatRequest,
    *,
    deadline_s: float,
    policy: RetryPolicy,
) -> AsyncGenerator[chat_pb2.ChatResponse, None]:
    """The responses of one chat. Closing the generator cancels the call.

    Starts again only while no delta has been given, so no piece of an answer comes twice.
    """
    attempts = Attempts(policy, deadline_s)
    given_delta = False
    with _measured(method) as current:
        while True:
            with current_while(current):
                call = stub(request, timeout=attempts.next_timeout_s())
            try:
                async for response in call:
                    given_delta = given_delta or response.HasField("delta")
                    yield response
                return
            except grpc.aio.AioRpcError as exc:
                error = error_from(exc)
                if given_delta:
                    raise error from exc
                await attempts.pause_after(error, exc)
            finally:
                call.cancel()


@contextmanager
def _measured(method: str) -> Iterator[Span]:
    """A span of the client's for the block, not made current, and the call's duration."""
    attributes = {names.RPC_SYSTEM: "grpc", names.RPC_METHOD: method}
    current = start_span(method, attributes, kind=SpanKind.CLIENT)
    started_at, status = time.monotonic(), grpc.StatusCode.OK.name
    try:
        yield current
    except BaseException as exc:
        status = status_name(exc)
        record_failure(current, exc)
        raise
    finally:
        current.set_attribute(names.RPC_STATUS, status)
        end_span(current)
        metrics.call_made(method, status, time.monotonic() - started_at)
