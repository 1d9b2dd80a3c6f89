from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python.chart import Chart

CHART = Path(__file__).resolve().parents[2] / "helm" / "inferscale"

Manifest = dict[str, Any]
Render = Callable[[dict[str, Any] | None], dict[tuple[str, str], Manifest]]
"""Renders values into manifests by (kind, name without the release's front)."""


@pytest.fixture(scope="session")
def chart() -> Iterator[Chart]:
    with Chart.load(CHART) as loaded:
        yield loaded


@pytest.fixture
def render(chart: Chart) -> Render:
    def rendered(values: dict[str, Any] | None = None) -> dict[tuple[str, str], Manifest]:
        found: dict[tuple[str, str], Manifest] = {}
        for path, text in chart.render(values, name="memory", namespace="team").items():
            if not path.endswith(".yaml"):
                continue
            for manifest in yaml.safe_load_all(text):
                if manifest:
                    name = manifest["metadata"]["name"].removeprefix("memory-inferscale")
                    found[manifest["kind"], name.removeprefix("-")] = manifest
        return found

    return rendered
