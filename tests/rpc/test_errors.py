from __future__ import annotations

import logging

import grpc
import grpc.aio
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status

from inferscale_core import errors
from inferscale_core.errors import InferScaleError
from inferscale_core.rpc.pb.inferscale.v1 import (
    chat_pb2,
    chat_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    worker_pb2,
)
from inferscale_core.rpc.pb.inferscale.v1.worker_pb2_grpc import WorkerServiceStub
from inferscale_core.rpc.status import error_from, log_level, to_status
from tests.rpc.conftest import Served
from tests.telemetry_capture import Capture

EXAMPLES: dict[type[InferScaleError], tuple[InferScaleError, grpc.StatusCode]] = {
    errors.InvalidInput: (
        errors.InvalidInput("memories[3].text", "40,000 characters; the limit is 8,000"),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    errors.NotFound: (errors.NotFound("memory", "m-7"), grpc.StatusCode.NOT_FOUND),
    errors.AlreadyDeleted: (errors.AlreadyDeleted("m-8"), grpc.StatusCode.NOT_FOUND),
    errors.RevisionConflict: (errors.RevisionConflict("m-9", 2, 3), grpc.StatusCode.ABORTED),
    errors.AnswerWithdrawn: (
        errors.AnswerWithdrawn("memory 'm-9' was deleted"),
        grpc.StatusCode.ABORTED,
    ),
    errors.QuotaExceeded: (
        errors.QuotaExceeded("max_facts", 10),
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ),
    errors.Unauthenticated: (
        errors.Unauthenticated("the key was revoked"),
        grpc.StatusCode.UNAUTHENTICATED,
    ),
    errors.PermissionDenied: (
        errors.PermissionDenied("not yours"),
        grpc.StatusCode.PERMISSION_DENIED,
    ),
    errors.Unsupported: (errors.Unsupported("rope 'x'"), grpc.StatusCode.FAILED_PRECONDITION),
    errors.WorkerIdTaken: (
        errors.WorkerIdTaken("worker-0", "host:7710"),
        grpc.StatusCode.FAILED_PRECONDITION,
    ),
    errors.Incompatible: (errors.Incompatible("768, 384"), grpc.StatusCode.FAILED_PRECONDITION),
    errors.Unavailable: (errors.Unavailable("worker w-1 is gone"), grpc.StatusCode.UNAVAILABLE),
    errors.DeadlineExceeded: (errors.DeadlineExceeded("2 s"), grpc.StatusCode.DEADLINE_EXCEEDED),
    errors.StoreError: (errors.StoreError("no connection"), grpc.StatusCode.UNAVAILABLE),
    errors.EngineError: (errors.EngineError("request r-1 failed"), grpc.StatusCode.INTERNAL),
}


def _leaves(error: type[InferScaleError]) -> set[type[InferScaleError]]:
    below = error.__subclasses__()
    return {leaf for child in below for leaf in _leaves(child)} if below else {error}


def _raising(exc: BaseException):  # type: ignore[no-untyped-def]
    async def before() -> None:
        raise exc

    return before


async def _failure(served: Served, channel: grpc.aio.Channel) -> grpc.aio.AioRpcError:
    stub = memory_pb2_grpc.MemoryServiceStub(channel)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.GetMemory(memory_pb2.GetMemoryRequest(memory_id="m"))
    return raised.value


def test_every_error_of_the_tree_has_an_example_here() -> None:
    ours = {leaf for leaf in _leaves(InferScaleError) if leaf.__module__ == errors.__name__}
    assert set(EXAMPLES) == ours


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.code)
async def test_an_error_reaches_the_client_as_itself(
    error: type[InferScaleError], served: Served, channel: grpc.aio.Channel
) -> None:
    example, status = EXAMPLES[error]
    served.memory.before = _raising(example)
    failure = await _failure(served, channel)
    assert failure.code() is status
    rebuilt = error_from(failure)
    assert type(rebuilt) is error
    assert str(rebuilt) == str(example)
    assert vars(rebuilt) == vars(example)


async def test_a_refused_field_is_named_in_bad_request(
    served: Served, channel: grpc.aio.Channel
) -> None:
    served.memory.before = _raising(errors.InvalidInput("k", "201 is not in 0..200"))
    failure = await _failure(served, channel)
    trailers = dict(tuple(item) for item in failure.trailing_metadata())
    bad_request = BadRequest()
    for detail in Status.FromString(trailers["grpc-status-details-bin"]).details:
        detail.Unpack(bad_request)
    assert [(v.field, v.description) for v in bad_request.field_violations] == [
        ("k", "201 is not in 0..200")
    ]


async def test_an_error_in_a_stream_reaches_the_client_as_itself(
    served: Served, channel: grpc.aio.Channel
) -> None:
    served.chat.pause = _raising(errors.EngineError("request r-1 failed"))
    responses = chat_pb2_grpc.ChatServiceStub(channel).Chat(chat_pb2.ChatRequest()).__aiter__()
    assert (await anext(responses)).HasField("retrieved")
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await anext(responses)
    assert isinstance(error_from(raised.value), errors.EngineError)


async def test_an_unforeseen_exception_tells_the_caller_a_trace_id_and_nothing_of_itself(
    served: Served, channel: grpc.aio.Channel, telemetry: Capture
) -> None:
    served.memory.before = _raising(KeyError("the alarm code is wren"))
    failure = await _failure(served, channel)
    assert failure.code() is grpc.StatusCode.INTERNAL
    assert failure.details() == "internal error"
    trailers = dict(tuple(item) for item in failure.trailing_metadata())
    info = ErrorInfo()
    Status.FromString(trailers["grpc-status-details-bin"]).details[0].Unpack(info)
    assert info.reason == "internal"
    line = next(line for line in telemetry.lines() if "rpc.failed" in line)
    assert f"trace_id={info.metadata['trace_id']}" in line
    assert "ERROR" in line
    assert "error_class=builtins.KeyError" in line
    assert "rpc/test_errors.py" in line
    assert "wren" not in telemetry.everything()


async def test_a_method_that_does_not_exist_is_unsupported_for_the_client(
    served: Served, channel: grpc.aio.Channel
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await WorkerServiceStub(channel).Forget(worker_pb2.ForgetRequest())
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert isinstance(error_from(raised.value), errors.Unsupported)


async def test_a_message_that_is_too_long_is_the_callers_fault(
    served: Served, channel: grpc.aio.Channel
) -> None:
    request = memory_pb2.GetMemoryRequest(memory_id="x" * (33 << 20))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await memory_pb2_grpc.MemoryServiceStub(channel).GetMemory(request)
    assert isinstance(error_from(raised.value), errors.InvalidInput)


@pytest.mark.parametrize("character", ["x", "ü", "鍵", "🔑"])
async def test_a_very_long_message_always_fits_into_the_trailers(
    served: Served, channel: grpc.aio.Channel, character: str
) -> None:
    long = character * 100_000
    served.memory.before = _raising(errors.InvalidInput(long, long))
    for _ in range(20):
        failure = await _failure(served, channel)
        assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert isinstance(error_from(failure), errors.InvalidInput)


def _refused_by_worker(error: InferScaleError) -> grpc.aio.AioRpcError:
    status = to_status(error)
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
    trailers = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, status.message)


def test_an_error_from_behind_us_passes_through() -> None:
    status = to_status(_refused_by_worker(errors.Unavailable("draining")))
    assert status.code == grpc.StatusCode.UNAVAILABLE.value[0]


def test_a_token_of_ours_that_is_refused_behind_us_is_not_the_callers_fault() -> None:
    status = to_status(_refused_by_worker(errors.Unauthenticated("wrong token")))
    assert status.code == grpc.StatusCode.INTERNAL.value[0]


def test_only_failures_of_ours_are_logged_as_errors() -> None:
    as_errors = {
        error for error, (example, _) in EXAMPLES.items() if log_level(example) == logging.ERROR
    }
    assert as_errors == {errors.StoreError, errors.EngineError}


BAD_REQUESTS = [b"\xff\xff\xff", memory_pb2.GetMemoryRequest(user_id="?").SerializeToString()[:-1]]
BAD_REQUESTS.append(b"\x0a\x02\xc3\x28")


@pytest.mark.parametrize("method", ["MemoryService/GetMemory", "ChatService/Chat"])
@pytest.mark.parametrize("body", BAD_REQUESTS, ids=["no message", "cut", "not UTF-8"])
async def test_bytes_that_are_no_request_are_the_callers_fault(
    channel: grpc.aio.Channel, method: str, body: bytes
) -> None:
    path = f"/inferscale.v1.{method}"
    streams = method.endswith("Chat")
    call = channel.unary_stream(path)(body).read() if streams else channel.unary_unary(path)(body)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = error_from(refused.value)
    assert isinstance(error, errors.InvalidInput)
    assert error.field == "request"
    assert "not a message" in error.problem


async def test_bytes_without_a_key_are_not_parsed(served: Served) -> None:
    async with grpc.aio.insecure_channel(served.address) as nobody:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await nobody.unary_unary("/inferscale.v1.MemoryService/GetMemory")(b"\xff")
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
