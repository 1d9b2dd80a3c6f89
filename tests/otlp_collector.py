"""An OTLP endpoint in the process of the test, which keeps what other processes export to it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(frozen=True, slots=True)
class Exported:
    """A span. Ids are hex; `parent_id` is empty for a root; `links` are pairs of trace and span."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    links: tuple[tuple[str, str], ...]
    start_ns: int
    end_ns: int


class Collector:
    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.spans: list[Exported] = []
        self.metric_names: set[str] = set()
        self._requests: list[str] = []

    def everything(self) -> str:
        """All of it as one text, to search for what must not be there."""
        return "\n".join(self._requests)

    def keep_spans(self, request: trace_service_pb2.ExportTraceServiceRequest) -> None:
        self._requests.append(str(request))
        for resource in request.resource_spans:
            service = next(
                attribute.value.string_value
                for attribute in resource.resource.attributes
                if attribute.key == "service.name"
            )
            self.spans += [
                Exported(
                    service,
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                )
                for scope in resource.scope_spans
                for span in scope.spans
            ]

    def keep_metrics(self, request: metrics_service_pb2.ExportMetricsServiceRequest) -> None:
        self._requests.append(str(request))
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                self.metric_names |= {metric.name for metric in scope.metrics}


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def Export(self, request, context):  # type: ignore[no-untyped-def]
        self._collector.keep_spans(request)
        return trace_service_pb2.ExportTraceServiceResponse()


class _Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def Export(self, request, context):  # type: ignore[no-untyped-def]
        self._collector.keep_metrics(request)
        return metrics_service_pb2.ExportMetricsServiceResponse()


@contextmanager
def collecting() -> Iterator[Collector]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    port = server.add_insecure_port("127.0.0.1:0")
    collector = Collector(f"http://127.0.0.1:{port}")
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Traces(collector), server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(_Metrics(collector), server)
    server.start()
    try:
        yield collector
    finally:
        server.stop(0).wait()
