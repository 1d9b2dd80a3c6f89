from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent import futures

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

SCRIPT = """
import sys
from inferscale_core.settings import TelemetrySettings
from inferscale_core.telemetry import metrics, names
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.setup import start_telemetry
from inferscale_core.telemetry.tracing import span

settings = TelemetrySettings(otlp_endpoint=sys.argv[1] if len(sys.argv) > 1 else None)
start_telemetry(settings, service="control", instance="c-0")
with span(names.RETRIEVE):
    metrics.chat_step(names.INJECT, 0.003)
    get_logger("services.control").info("started", port=7700)
"""


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self) -> None:
        self.spans: list[str] = []
        self.services: set[str] = set()

    def Export(self, request, context):  # type: ignore[no-untyped-def]
        for resource in request.resource_spans:
            self.services |= {
                attribute.value.string_value
                for attribute in resource.resource.attributes
                if attribute.key == "service.name"
            }
            self.spans += [span.name for scope in resource.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


class MetricsCollector(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self) -> None:
        self.names: set[str] = set()

    def Export(self, request, context):  # type: ignore[no-untyped-def]
        for resource in request.resource_metrics:
            self.names |= {metric.name for s in resource.scope_metrics for metric in s.metrics}
        return metrics_service_pb2.ExportMetricsServiceResponse()


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if "OTEL" not in key}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )


def test_spans_and_metrics_reach_the_endpoint_before_the_process_ends() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    collector, metrics_collector = Collector(), MetricsCollector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(metrics_collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        _run(f"http://127.0.0.1:{port}")
    finally:
        server.stop(0).wait()
    assert collector.spans == ["retrieve"]
    assert collector.services == {"control"}
    assert "inferscale.chat.stage.duration" in metrics_collector.names


def test_without_an_endpoint_lines_still_name_their_trace() -> None:
    started_at = time.monotonic()
    written = _run().stderr
    assert "INFO started port=7700 trace_id=" in written
    assert time.monotonic() - started_at < 30
