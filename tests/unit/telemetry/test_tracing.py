from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from opentelemetry.trace import StatusCode

from inferscale_core.errors import NotFound
from inferscale_core.telemetry import names, tracing
from inferscale_core.telemetry.tracing import (
    annotate,
    context_from,
    current_trace_id,
    current_traceparent,
    link_to,
    record_steps,
    span,
    trace_headers,
)
from tests.telemetry_capture import Capture, captured


@pytest.fixture
def telemetry() -> Iterator[Capture]:
    with captured() as capture:
        yield capture


def test_a_span_keeps_its_attributes_and_its_parent(telemetry: Capture) -> None:
    with span(names.RETRIEVE, {names.FACT_COUNT: 3}), span(names.PLAN) as current:
        current.set_attribute(names.TOKEN_COUNT, 17)
    (plan,), (chat,) = telemetry.spans(names.PLAN), telemetry.spans(names.RETRIEVE)
    assert plan.parent == chat.context
    assert (chat.attributes, plan.attributes) == (
        {names.FACT_COUNT: 3},
        {names.TOKEN_COUNT: 17},
    )


@pytest.mark.parametrize(
    ("exc", "code"),
    [
        (NotFound("memory", "the alarm code is wren"), "not_found"),
        (ValueError("the alarm code is wren"), "internal"),
        (asyncio.CancelledError("the alarm code is wren"), "cancelled"),
        (TimeoutError("the alarm code is wren"), "timeout"),
    ],
)
def test_a_failed_span_records_the_code_and_goes_on(
    telemetry: Capture, exc: BaseException, code: str
) -> None:
    with pytest.raises(type(exc)), span(names.PLAN):
        raise exc
    (plan,) = telemetry.spans(names.PLAN)
    assert plan.status.status_code is StatusCode.ERROR
    assert plan.attributes == {names.ERROR_TYPE: code}
    assert plan.events == ()
    assert "wren" not in telemetry.everything()


def test_a_broken_tracer_never_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError("no telemetry today")

    monkeypatch.setattr(tracing, "_tracer", Broken())
    monkeypatch.setattr(tracing, "_propagator", Broken())
    done = []
    with span(names.RETRIEVE, {names.FACT_COUNT: 3}):
        annotate({names.TOKEN_COUNT: 1})
        record_steps({names.QUEUE: 1.0}, time.time_ns())
        assert trace_headers() == {}
        assert link_to("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01") == ()
        done.append(True)
    assert done == [True]


def test_the_context_travels_in_headers(telemetry: Capture) -> None:
    with span("one side") as sent:
        headers = trace_headers()
    with span("other side", parent=context_from(headers)):
        pass
    (received,) = telemetry.spans("other side")
    assert received.parent is not None
    assert received.parent.span_id == sent.get_span_context().span_id


def test_a_job_is_linked_to_the_span_that_queued_it(telemetry: Capture) -> None:
    with span(names.ADD_MEMORY) as cause:
        traceparent = current_traceparent()
    assert traceparent is not None
    with span(names.ENCODE, links=link_to(traceparent)):
        pass
    (job,) = telemetry.spans(names.ENCODE)
    assert [link.context.span_id for link in job.links] == [cause.get_span_context().span_id]
    assert job.parent is None


@pytest.mark.parametrize("traceparent", [None, "", "nonsense", "00-0-0-01"])
def test_a_job_without_a_known_cause_has_no_link(traceparent: str | None) -> None:
    assert link_to(traceparent) == ()


def test_steps_measured_elsewhere_stand_one_behind_the_other(telemetry: Capture) -> None:
    start_ns = 1_700_000_000_000_000_000
    with span(names.RETRIEVE) as chat:
        record_steps({names.QUEUE: 2.0, names.INJECT: 0.5, names.PREFILL: -1.0}, start_ns)
    times = {
        found.name: (found.start_time - start_ns, found.end_time - start_ns)
        for found in telemetry.spans()
        if found.parent and found.parent.span_id == chat.get_span_context().span_id
    }
    assert times == {
        names.QUEUE: (0, 2_000_000),
        names.INJECT: (2_000_000, 2_500_000),
        names.PREFILL: (2_500_000, 2_500_000),
    }


def test_outside_of_a_trace_there_is_nothing_to_continue() -> None:
    assert current_trace_id() is None
    assert current_traceparent() is None
    assert trace_headers() == {}
