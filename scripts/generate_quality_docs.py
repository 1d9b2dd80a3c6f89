"""Write the tables and plots of docs/quality.md from benchmarks/results/quality.json.

python scripts/generate_quality_docs.py                  write
python scripts/generate_quality_docs.py --check          exit 1 when something would change
python scripts/generate_quality_docs.py --add ROWS.json  take rows of `inferscale eval` in first
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from services.evaluation.figures import Row  # noqa: E402
from services.evaluation.judged import judged_table  # noqa: E402
from services.evaluation.report import (  # noqa: E402
    category_table,
    comparison_table,
    judged_plot,
    nll_plot,
    plot,
    table,
)

ROWS = ROOT / "benchmarks" / "results" / "quality.json"
PAGE = ROOT / "docs" / "quality.md"
NONE_YET = "No rows are committed yet.\n"
_PLACE = re.compile(r"(<!-- rows -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the tables of docs/quality.md.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when stale")
    parser.add_argument("--add", type=Path, help="rows to take in; equal ones are replaced")
    options = parser.parse_args()
    rows = read_rows()
    if options.add is not None:
        rows = merged(rows, json.loads(options.add.read_text(encoding="utf-8")))
        write_rows(rows)
    files = rendered(rows, PAGE.read_text(encoding="utf-8"))
    if options.check:
        stale = [path for path, text in files.items() if not is_same(path, text)]
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the rows give; run make generate")
        return 1 if stale else 0
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return 0


def read_rows() -> list[Row]:
    return json.loads(ROWS.read_text(encoding="utf-8")) if ROWS.exists() else []


def write_rows(rows: Sequence[Row]) -> None:
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    ROWS.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """A new row takes the place of one of the same model, data, recipe, storage and k."""
    replaced = {_identity(row) for row in new}
    return [row for row in old if _identity(row) not in replaced] + list(new)


def rendered(rows: Sequence[Row], page: str) -> dict[Path, str]:
    """What every file should hold, by path."""
    body = "\n".join(_sections(rows)) if rows else NONE_YET
    files = {PAGE: _PLACE.sub(lambda match: f"{match[1]}{body}{match[3]}", page)}
    for model, own in _by_model(rows):
        files[ROOT / "docs" / _plot_name(model)] = plot(own)
        files[ROOT / "docs" / _plot_name(model, "nll")] = nll_plot(own)
        if picture := judged_plot(own):
            files[ROOT / "docs" / _plot_name(model, "judged")] = picture
    return files


def is_same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def _sections(rows: Sequence[Row]) -> Iterator[str]:
    for model, own in _by_model(rows):
        yield f"### {model}\n"
        yield f"![Token F1 over the number of facts]({_plot_name(model)})\n"
        yield f"![NLL less text mode's over the number of facts]({_plot_name(model, 'nll')})\n"
        yield table(own)
        yield comparison_table(own)
        yield category_table(own)
        if judged := judged_table(own):
            yield f"![Judged answers over the number of facts]({_plot_name(model, 'judged')})\n"
            yield judged
        yield _costs(own)
        yield _source(own)


def _costs(rows: Sequence[Row]) -> str:
    """Of encoding, once for each recipe and storage."""
    costs = {(row["recipe"], row["dtype"]): row["encode"] for row in rows if "encode" in row}
    if not costs:
        return ""
    lines = [
        "| recipe | storage | tokens forwarded per fact | waves | facts per second |",
        "|---|---|---:|---:|---:|",
    ]
    for (recipe, dtype), cost in costs.items():
        per_fact = cost["forwarded_tokens"] / cost["facts"]
        rate = cost["facts"] / cost["seconds"]
        lines.append(f"| `{recipe}` | {dtype} | {per_fact:.0f} | {cost['waves']} | {rate:,.0f} |")
    return "\n".join(lines) + "\n"


def _source(rows: Sequence[Row]) -> str:
    """Every way in which rows of a table were measured."""
    said = dict.fromkeys(
        f"`{row.get('command', '')}`, {row.get('date', '')}, "
        f"{_named(row.get('hardware', {}))}; {_named(row.get('versions', {}))}; "
        f"data {row['data']}, asked {row['asked']}."
        for row in rows
    )
    return "\n\n".join(said) + "\n"


def _named(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _by_model(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """In order of first appearance; rows by k, text mode first."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(_model(row), []).append(row)
    return [
        (model, sorted(own, key=lambda row: (row["k"], row["recipe"] != "text")))
        for model, own in found.items()
    ]


def _model(row: Row) -> str:
    name: str = row["model_revision"].partition("@")[0]
    return name


def _plot_name(model: str, figure: str = "") -> str:
    name = re.sub(r"[^a-z0-9]+", "-", f"{model} {figure}".lower()).strip("-")
    return f"quality-{name}.svg"


def _identity(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("model_revision", "data", "recipe", "dtype", "k"))


if __name__ == "__main__":
    sys.exit(main())
