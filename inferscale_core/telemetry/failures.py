"""What may be recorded of an exception: its code, its class and where it was raised.

Never its message. A driver's error quotes the parameters of a statement, and an assertion may quote
anything.
"""

from __future__ import annotations

import asyncio
import traceback
from pathlib import PurePath
from types import TracebackType

from inferscale_core.errors import InferScaleError

UNKNOWN = "internal"
MAX_FRAMES = 8


def error_code(exc: BaseException) -> str:
    """A stable code: ours, or `cancelled`, `timeout`, `internal`."""
    if isinstance(exc, InferScaleError):
        return exc.code
    if isinstance(exc, asyncio.CancelledError | GeneratorExit):
        return "cancelled"
    return "timeout" if isinstance(exc, TimeoutError) else UNKNOWN


def failure_fields(exc: BaseException) -> dict[str, str]:
    """Fields for a log line: `error`, `error_class`, and `where` for what nobody foresaw."""
    fields = {"error": error_code(exc), "error_class": _class_name(exc)}
    if fields["error"] == UNKNOWN:
        fields["where"] = _where(exc.__traceback__)
    cause = exc.__cause__
    if cause is not None:
        fields["cause_class"] = _class_name(cause)
        fields["cause_where"] = _where(cause.__traceback__)
    return fields


def _class_name(exc: BaseException) -> str:
    return f"{type(exc).__module__}.{type(exc).__qualname__}"


def _where(raised: TracebackType | None) -> str:
    """Innermost frames last, as `folder/file.py:line function`; no source lines, no values."""
    frames = traceback.extract_tb(raised)[-MAX_FRAMES:]
    return " > ".join(
        f"{'/'.join(PurePath(frame.filename).parts[-2:])}:{frame.lineno} {frame.name}"
        for frame in frames
    )
