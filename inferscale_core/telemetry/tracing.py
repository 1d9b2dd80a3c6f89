"""Spans, and the W3C trace context that carries them between processes.

A failed span records the error's code and nothing else: messages of errors can quote what a caller
sent. Source: W3C Trace Context, `traceparent` and `tracestate`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from inferscale_core.telemetry import names
from inferscale_core.telemetry.failures import error_code

AttributeValue = str | bool | int | float
Attributes = Mapping[str, AttributeValue]

_log = logging.getLogger(__name__)
_tracer = trace.get_tracer("inferscale")
_propagator = TraceContextTextMapPropagator()
TRACEPARENT = "traceparent"


@contextmanager
def span(
    name: str,
    attributes: Attributes | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    parent: Context | None = None,
    links: Iterable[Link] = (),
) -> Iterator[Span]:
    """Make a span current for the block. `name` comes from `telemetry.names`.

    `parent` is a context from `context_from`; None means the current span. An exception marks the
    span with its code and goes on.
    """
    current = start_span(name, attributes, kind=kind, parent=parent, links=links)
    with current_while(current):
        try:
            yield current
        except BaseException as exc:
            record_failure(current, exc)
            raise
        finally:
            end_span(current)


def start_span(
    name: str,
    attributes: Attributes | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    parent: Context | None = None,
    links: Iterable[Link] = (),
) -> Span:
    """A span that outlives a block, as in a generator; give it to `end_span` at last.

    It is current only inside `current_while`.
    """
    try:
        return _tracer.start_span(
            name, context=parent, kind=kind, attributes=dict(attributes or {}), links=tuple(links)
        )
    except Exception:
        _log.debug("telemetry.span_failed")
        return INVALID_SPAN


def current_while(current: Span) -> AbstractContextManager[Span]:
    """Make a started span current for the block; neither ends it nor records what is raised."""
    return trace.use_span(current, record_exception=False, set_status_on_exception=False)


def end_span(current: Span) -> None:
    try:
        current.end()
    except Exception:
        _log.debug("telemetry.span_failed")


def record_failure(current: Span, exc: BaseException) -> None:
    """Mark `current` as failed with the code of `exc`."""
    try:
        code = error_code(exc)
        current.set_attribute(names.ERROR_TYPE, code)
        current.set_status(Status(StatusCode.ERROR, code))
    except Exception:
        _log.debug("telemetry.span_failed")


def record_steps(
    duration_ms_by_name: Mapping[str, float], start_ns: int, attributes: Attributes | None = None
) -> None:
    """Add child spans of the current one, one behind the other from `start_ns` (Unix time) on.

    For steps of which is told only afterwards how long each took, as the engine does.
    """
    for name, duration_ms in duration_ms_by_name.items():
        end_ns = start_ns + max(0, int(duration_ms * 1e6))
        try:
            step = _tracer.start_span(name, attributes=dict(attributes or {}), start_time=start_ns)
            step.end(end_ns)
        except Exception:
            _log.debug("telemetry.span_failed")
        start_ns = end_ns


def annotate(attributes: Attributes) -> None:
    """Add attributes to the current span."""
    try:
        get_current_span().set_attributes(dict(attributes))
    except Exception:
        _log.debug("telemetry.span_failed")


def current_trace_id() -> str | None:
    """32 hex digits, or None outside of any trace."""
    context = get_current_span().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else None


def trace_headers() -> dict[str, str]:
    """Headers that continue the current trace in another process; empty outside of any trace."""
    carrier: dict[str, str] = {}
    try:
        _propagator.inject(carrier)
    except Exception:
        _log.debug("telemetry.propagation_failed")
    return carrier


def context_from(headers: Mapping[str, str]) -> Context:
    """The caller's trace context; an empty one when the headers hold none that is valid."""
    try:
        return _propagator.extract(headers, Context())
    except Exception:
        _log.debug("telemetry.propagation_failed")
        return Context()


def current_traceparent() -> str | None:
    """The current span as one string: what a queued job keeps to be linked to its cause."""
    return trace_headers().get(TRACEPARENT)


def link_to(traceparent: str | None) -> tuple[Link, ...]:
    """Links for `span` to the span that queued a job; none when it is unknown or malformed."""
    if not traceparent:
        return ()
    cause = get_current_span(context_from({TRACEPARENT: traceparent})).get_span_context()
    return (Link(cause),) if cause.is_valid else ()
