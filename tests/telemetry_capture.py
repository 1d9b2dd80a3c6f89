"""What the process under test recorded: spans, metric series and log lines, in memory.

OpenTelemetry takes one provider for a process, so all tests share these.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from inferscale_core.telemetry.logs import EventFormatter

Series = tuple[str, tuple[tuple[str, str], ...]]


class Capture:
    """`spans`, `series` and `lines` recorded since the block of `captured` began."""

    def __init__(self, exporter: InMemorySpanExporter, reader: InMemoryMetricReader) -> None:
        self._exporter = exporter
        self._reader = reader
        self.stream = io.StringIO()

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        finished = self._exporter.get_finished_spans()
        return [span for span in finished if name is None or span.name == name]

    async def all_spans(self, name: str, count: int) -> list[ReadableSpan]:
        """Waits for `count` spans: a server ends its own after the client has its answer."""
        async with asyncio.timeout(5):
            while len(self.spans(name)) < count:
                await asyncio.sleep(0.005)
        return self.spans(name)

    def values(self) -> dict[Series, float]:
        """Of every series: its sum, last value, or for a histogram its count."""
        data = self._reader.get_metrics_data()
        return {
            (metric.name, tuple(sorted(point.attributes.items()))): _value(point)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }

    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    def everything(self) -> str:
        """All of it as one text, to search for what must not be there."""
        spans = "\n".join(span.to_json() for span in self.spans())
        return f"{spans}\n{self.values()}\n{self.stream.getvalue()}"


def _value(point: object) -> float:
    return point.count if hasattr(point, "count") else point.value  # type: ignore[attr-defined]


@cache
def _providers() -> tuple[InMemorySpanExporter, InMemoryMetricReader]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    return exporter, reader


@contextmanager
def captured() -> Iterator[Capture]:
    capture = Capture(*_providers())
    _providers()[0].clear()
    handler = logging.StreamHandler(capture.stream)
    handler.setFormatter(EventFormatter())
    root, ours = logging.getLogger(), logging.getLogger("inferscale_core")
    levels = root.level, ours.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    ours.setLevel(logging.DEBUG)
    try:
        yield capture
    finally:
        root.removeHandler(handler)
        root.setLevel(levels[0])
        ours.setLevel(levels[1])
