"""Start of telemetry in a service's `__main__`, from `TelemetrySettings`."""

from __future__ import annotations

from dataclasses import dataclass

from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from inferscale_core.settings import TelemetrySettings
from inferscale_core.telemetry.logs import get_logger, write_logs_to

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What `start_telemetry` started. Stops by itself at exit; `stop` does so earlier."""

    tracer_provider: TracerProvider
    meter_provider: MeterProvider

    def stop(self) -> None:
        """Export what is left; blocks for as long as the endpoint takes, 30 s at most."""
        for provider in (self.tracer_provider, self.meter_provider):
            try:
                provider.shutdown()
            except Exception as exc:
                _log.warning("telemetry.stop_failed", exc=exc)


def start_telemetry(settings: TelemetrySettings, *, service: str, instance: str) -> Telemetry:
    """Once in a process. Without an endpoint spans still give log lines their trace id."""
    write_logs_to(None, settings.log_level)
    resource = Resource.create({"service.name": service, "service.instance.id": instance})
    tracer_provider = TracerProvider(
        resource=resource, sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio))
    )
    readers = []
    if settings.otlp_endpoint:
        insecure = not settings.otlp_endpoint.startswith("https://")
        exporter = OTLPSpanExporter(endpoint=settings.otlp_endpoint, insecure=insecure)
        tracer_provider.add_span_processor(BatchSpanProcessor(exporter))
        readers.append(
            PeriodicExportingMetricReader(
                OTLPMetricExporter(endpoint=settings.otlp_endpoint, insecure=insecure)
            )
        )
    meter_provider = MeterProvider(resource=resource, metric_readers=readers)
    trace.set_tracer_provider(tracer_provider)
    metrics.set_meter_provider(meter_provider)
    return Telemetry(tracer_provider, meter_provider)
