from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.otlp_collector import collecting

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
    with collecting() as collector:
        _run(collector.endpoint)
    assert [(span.service, span.name) for span in collector.spans] == [("control", "retrieve")]
    assert "inferscale.chat.stage.duration" in collector.metric_names


def test_without_an_endpoint_lines_still_name_their_trace() -> None:
    started_at = time.monotonic()
    written = _run().stderr
    assert "INFO started port=7700 trace_id=" in written
    assert time.monotonic() - started_at < 30
