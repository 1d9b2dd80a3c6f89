"""Log lines: an event name, then key-value pairs.

    2026-03-01T09:30:00.123Z INFO memory.added fact_id=01J9 revision=1 tenant_id=acme trace_id=4bf9…

Fields are formatted only when the line is written. The trace and whatever `bind` named are added to
every line. Lines of other libraries keep the first line of their template without its arguments,
since those may quote anything; exceptions are reduced to `failures.failure_fields`.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TextIO

from inferscale_core.telemetry.failures import failure_fields
from inferscale_core.telemetry.tracing import current_trace_id

Field = str | int | float | bool | None
_FIELDS = "inferscale_fields"
_NOTHING: Mapping[str, Field] = MappingProxyType({})
_bound: ContextVar[Mapping[str, Field]] = ContextVar("inferscale_log_fields", default=_NOTHING)


class EventLogger:
    """Writes events of one module. Field values are ids, counts, codes and durations."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, **fields: Field) -> None:
        self.write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Field) -> None:
        self.write(logging.INFO, event, fields)

    def warning(self, event: str, *, exc: BaseException | None = None, **fields: Field) -> None:
        self.write(logging.WARNING, event, fields, exc)

    def error(self, event: str, *, exc: BaseException | None = None, **fields: Field) -> None:
        """`exc` is reduced to its code, class and place."""
        self.write(logging.ERROR, event, fields, exc)

    def write(
        self,
        level: int,
        event: str,
        fields: Mapping[str, Field],
        exc: BaseException | None = None,
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        complete = {**fields, **(failure_fields(exc) if exc else {}), **_context_fields()}
        self._logger.log(level, event, extra={_FIELDS: complete})


def get_logger(name: str) -> EventLogger:
    """The logger of a module: `_log = get_logger(__name__)`."""
    return EventLogger(logging.getLogger(name))


@contextmanager
def bind(**fields: Field) -> Iterator[None]:
    """Add fields to every line written in the block and in the tasks it starts."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def bind_for_task(**fields: Field) -> None:
    """As `bind`, until the current task ends: for a task that serves one call."""
    _bound.set({**_bound.get(), **fields})


class EventFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = getattr(record, _FIELDS, None)
        event = str(record.msg) if fields is not None else "log"
        pairs = fields if fields is not None else _foreign_fields(record)
        text = "".join(f" {key}={_quote(value)}" for key, value in pairs.items())
        return f"{moment.replace('+00:00', 'Z')} {record.levelname} {event}{text}"


def write_logs_to(stream: TextIO | None, level: str) -> None:
    """Make `stream` (None: standard error) the one place that logs go to."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(EventFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level]))
    for package in ("inferscale_core", "services"):
        logging.getLogger(package).setLevel(level)


def _context_fields() -> dict[str, Field]:
    trace_id = current_trace_id()
    return {**_bound.get(), **({"trace_id": trace_id} if trace_id else {})}


def _foreign_fields(record: logging.LogRecord) -> dict[str, Field]:
    template = str(record.msg).partition("\n")[0]
    fields: dict[str, Field] = {"logger": record.name, "template": template}
    if record.exc_info and record.exc_info[1]:
        fields.update(failure_fields(record.exc_info[1]))
    return {**fields, **_context_fields()}


def _quote(value: Field) -> str:
    """Bare when it is one word; JSON otherwise, so that a value cannot forge a field or a line."""
    text = str(value)
    plain = text and text.isprintable() and not any(mark in text for mark in ' "=\\')
    return text if plain else json.dumps(text)
