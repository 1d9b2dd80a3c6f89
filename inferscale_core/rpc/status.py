"""Domain errors to gRPC statuses with google.rpc details, and back to the same errors.

`ErrorInfo.reason` is the error's code and `ErrorInfo.metadata` its fields; `BadRequest` names the
refused field. An exception that is not ours says nothing of itself to the caller.
Source: google/rpc/status.proto, error_details.proto; carried in `grpc-status-details-bin`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status

from inferscale_core import errors
from inferscale_core.errors import InferScaleError
from inferscale_core.telemetry.tracing import current_trace_id

DOMAIN = "inferscale"
DETAILS_KEY = "grpc-status-details-bin"
MAX_BYTES = 800
"""Of a message or field. Percent-encoded once and in the details four times at most, base64, that
stays below the 8 KiB at which gRPC may refuse a call's trailers."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """fields: attributes that the constructor takes, with the type that reads them back."""

    status: grpc.StatusCode
    level: int
    fields: Mapping[str, Callable[[str], str | int]] | None = None


_RULES: dict[type[InferScaleError], _Rule] = {
    errors.InvalidInput: _Rule(
        grpc.StatusCode.INVALID_ARGUMENT, logging.INFO, {"field": str, "problem": str}
    ),
    errors.NotFound: _Rule(
        grpc.StatusCode.NOT_FOUND, logging.INFO, {"kind": str, "identifier": str}
    ),
    errors.AlreadyDeleted: _Rule(grpc.StatusCode.NOT_FOUND, logging.INFO, {"fact_id": str}),
    errors.RevisionConflict: _Rule(
        grpc.StatusCode.ABORTED, logging.INFO, {"fact_id": str, "expected": int, "actual": int}
    ),
    errors.AnswerWithdrawn: _Rule(grpc.StatusCode.ABORTED, logging.INFO),
    errors.QuotaExceeded: _Rule(
        grpc.StatusCode.RESOURCE_EXHAUSTED, logging.WARNING, {"quota": str, "limit": int}
    ),
    errors.Unauthenticated: _Rule(grpc.StatusCode.UNAUTHENTICATED, logging.WARNING),
    errors.PermissionDenied: _Rule(grpc.StatusCode.PERMISSION_DENIED, logging.WARNING),
    errors.Unsupported: _Rule(grpc.StatusCode.FAILED_PRECONDITION, logging.WARNING),
    errors.Incompatible: _Rule(grpc.StatusCode.FAILED_PRECONDITION, logging.WARNING),
    errors.WorkerIdTaken: _Rule(
        grpc.StatusCode.FAILED_PRECONDITION, logging.WARNING, {"worker_id": str, "address": str}
    ),
    errors.Unavailable: _Rule(grpc.StatusCode.UNAVAILABLE, logging.WARNING),
    errors.DeadlineExceeded: _Rule(grpc.StatusCode.DEADLINE_EXCEEDED, logging.WARNING),
    errors.StoreError: _Rule(grpc.StatusCode.UNAVAILABLE, logging.ERROR),
    errors.EngineError: _Rule(grpc.StatusCode.INTERNAL, logging.ERROR),
    InferScaleError: _Rule(grpc.StatusCode.INTERNAL, logging.ERROR),
}
_ERROR_BY_CODE = {error.code: error for error in _RULES}

_STATUS_BY_NUMBER: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
_ERROR_BY_STATUS: dict[grpc.StatusCode, type[InferScaleError]] = {
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.FAILED_PRECONDITION: errors.Unsupported,
    grpc.StatusCode.UNIMPLEMENTED: errors.Unsupported,
    grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
    grpc.StatusCode.CANCELLED: errors.Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
}


def statuses() -> dict[type[InferScaleError], grpc.StatusCode]:
    """The status of each error; docs/api.md shows it."""
    return {error: rule.status for error, rule in _RULES.items()}


def log_level(exc: BaseException) -> int:
    return _rule(_domain_error(exc)).level


def status_name(exc: BaseException) -> str:
    """The name of the gRPC status that `exc` becomes or came from: a label of metrics."""
    if isinstance(exc, asyncio.CancelledError | GeneratorExit):
        return grpc.StatusCode.CANCELLED.name
    return _rule(_domain_error(exc)).status.name


def to_status(exc: BaseException) -> Status:
    """What the caller is told about `exc`."""
    error = _domain_error(exc)
    info = ErrorInfo(reason=error.code, domain=DOMAIN)
    details: list[ErrorInfo | BadRequest] = [info]
    info.metadata.update(metadata_of(error))
    if isinstance(error, errors.InvalidInput):
        violation = BadRequest.FieldViolation(
            field=_cut(error.field), description=_cut(error.problem)
        )
        details.append(BadRequest(field_violations=[violation]))
    trace_id = current_trace_id()
    if trace_id:
        info.metadata["trace_id"] = trace_id
    return Status(
        code=_rule(error).status.value[0],
        message=_cut(str(error)),
        details=[_packed(detail) for detail in details],
    )


def metadata_of(error: InferScaleError) -> dict[str, str]:
    """Its ids and limits by name, for the caller. What is wrong with a field is told in words."""
    names = [name for name in _rule(error).fields or {} if name != "problem"]
    return {name: _cut(str(getattr(error, name))) for name in names}


def error_of(code: str, metadata: Mapping[str, str], message: str) -> InferScaleError:
    """The error that `code` and `metadata_of` tell of. Of a code that is not known, or where the
    metadata is not complete, one of the base class with that code."""
    error = _rebuilt(_ERROR_BY_CODE.get(code, InferScaleError), metadata, message)
    if error.code != code:
        error.code = code
    return error


async def abort_with(
    context: grpc.aio.ServicerContext[Message, Message], exc: BaseException
) -> None:
    """End the call being served with the status of `exc`. Always raises grpc.aio.AbortError."""
    status = to_status(exc)
    details = ((DETAILS_KEY, status.SerializeToString()),)
    await context.abort(_STATUS_BY_NUMBER[status.code], status.message, details)


def status_code_of(context: grpc.aio.ServicerContext[Message, Message]) -> grpc.StatusCode:
    """The status that a served call was ended with."""
    return context.code()


def error_from(call: grpc.aio.AioRpcError) -> InferScaleError:
    """The error that the server raised; without details, the one nearest to the status."""
    status = _status_of(call)
    info, bad_request = ErrorInfo(), BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(bad_request)
    if info.domain != DOMAIN or info.reason not in _ERROR_BY_CODE:
        return _error_without_details(call)
    fields = dict(info.metadata)
    for violation in bad_request.field_violations:
        fields["problem"] = violation.description
    return _rebuilt(_ERROR_BY_CODE[info.reason], fields, status.message)


def _domain_error(exc: BaseException) -> InferScaleError:
    """`exc`, or what may be said of it. A refused token of our own is not the caller's fault."""
    error = error_from(exc) if isinstance(exc, grpc.aio.AioRpcError) else exc
    if error is not exc and isinstance(error, errors.Unauthenticated | errors.PermissionDenied):
        return InferScaleError("internal error")
    return error if isinstance(error, InferScaleError) else InferScaleError("internal error")


def _rule(error: InferScaleError) -> _Rule:
    return next(_RULES[base] for base in type(error).__mro__ if base in _RULES)


def _rebuilt(
    error: type[InferScaleError], fields: Mapping[str, str], message: str
) -> InferScaleError:
    readers = _RULES[error].fields
    if readers is None:
        return error(message)
    try:
        return error(**{name: read(fields[name]) for name, read in readers.items()})
    except (KeyError, ValueError):
        return InferScaleError(message)


def _error_without_details(call: grpc.aio.AioRpcError) -> InferScaleError:
    """Statuses that gRPC itself makes: connection lost, message too long, unknown method."""
    message = f"{call.code().name}: {call.details()}"
    if call.code() in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}:
        return errors.InvalidInput("request", message)
    return _ERROR_BY_STATUS.get(call.code(), InferScaleError)(message)


def _status_of(call: grpc.aio.AioRpcError) -> Status:
    trailers = cast("Iterable[tuple[str, str | bytes]]", call.trailing_metadata() or ())
    values = (value for key, value in trailers if key == DETAILS_KEY)
    return Status.FromString(next(values, b""))


def _packed(detail: ErrorInfo | BadRequest) -> Any:
    packed = Any()
    packed.Pack(detail)
    return packed


def _cut(text: str) -> str:
    encoded = text.encode()
    if len(encoded) <= MAX_BYTES:
        return text
    return encoded[: MAX_BYTES - 3].decode(errors="ignore") + "…"
