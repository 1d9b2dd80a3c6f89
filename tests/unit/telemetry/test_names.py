"""What operators can watch is written down."""

from __future__ import annotations

import re
from pathlib import Path

from inferscale_core.telemetry import names

ROOT = Path(__file__).resolve().parents[3]


def test_the_operations_page_lists_every_span_and_metric() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.partition("## Watching it\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    listed = set(re.findall(r"`([a-z_.]+)`", " ".join(rows)))
    source = Path(str(names.__file__)).read_text(encoding="utf-8")
    _, _, spans_and_metrics = source.partition("# Spans:")
    spans, _, metrics = spans_and_metrics.partition("# Labels of metrics")[0].partition(
        "# Metrics."
    )
    emitted = set(re.findall(r'= "([a-z_.]+)"', spans + metrics))
    assert listed == emitted


def test_every_name_is_used() -> None:
    folders = ("inferscale_core", "services")
    code = "".join(p.read_text() for f in folders for p in (ROOT / f).rglob("*.py"))
    known = {name for name in vars(names) if name.isupper()}
    assert {name for name in known if not re.search(rf"names\.{name}\b", code)} == set()
