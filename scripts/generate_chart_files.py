"""Write the generated files of the Helm chart, or compare them with --check.

The settings' part of helm/inferscale/values.schema.json comes from `inferscale_core.settings`, and
helm/examples/rendered from helm/examples by Helm's own engine. Values of `helm_python` are plain
JSON, so an example is what `helm template --values` prints.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from helm_python.chart import Chart
from pydantic import BaseModel

from inferscale_core.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "helm" / "inferscale"
SCHEMA = CHART / "values.schema.json"
EXAMPLES = ROOT / "helm" / "examples"

SET_BY_CHART = {
    "control": {"listen", "internal_token", "operator_token"},
    "database": {"url", "admin_url", "listen_url", "embedded_dir"},
    "worker": {"worker_id", "listen", "advertise", "control", "internal_token"},
    "engine": {"disk_dir"},
}
"""Fields that a value may not name; the chart refuses them with a sentence."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the generated files of the chart.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when stale")
    check = parser.parse_args().check
    stale = []
    # The schema first: rendering obeys it.
    for path, text in generated():
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what its sources give; run make generate")
    return 1 if check and stale else 0


def generated() -> Iterator[tuple[Path, str]]:
    yield SCHEMA, schema()
    with Chart.load(CHART) as chart:
        for path in sorted(EXAMPLES.glob("*.yaml")):
            yield EXAMPLES / "rendered" / path.name, render(chart, path)


def schema() -> str:
    """The schema as it is, with `$defs.sections` made anew from the settings."""
    document = json.loads(SCHEMA.read_text())
    document["$defs"]["sections"] = {
        name: section_schema(name, field.annotation)
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def section_schema(name: str, section: type[BaseModel]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for field, entry in section.model_json_schema()["properties"].items():
        if field in SET_BY_CHART.get(name, ()):
            properties[field] = {"description": "Set by the chart; refused here."}
        else:
            properties[field] = {
                key: value for key, value in entry.items() if key not in ("title", "default")
            }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def render(chart: Chart, values: Path) -> str:
    """The manifests of one example, in the order of their templates."""
    given = yaml.safe_load(values.read_text())
    rendered = chart.render(given, name="memory", namespace="inferscale")
    parts = [
        f"---\n# Source: {template}\n{text.strip()}\n"
        for template, text in sorted(rendered.items())
        if text.strip() and template.endswith(".yaml")
    ]
    return "".join(parts)


if __name__ == "__main__":
    sys.exit(main())
