"""Write the tables and plots of docs/quality.md from benchmarks/results/quality.json.

python scripts/generate_quality_docs.py                  write
python scripts/generate_quality_docs.py --check          exit 1 when something would change
python scripts/generate_quality_docs.py --add ROWS.json  take rows of `inferscale eval` in first
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
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
from services.evaluation.scores import TEXT, TEXT_AGAIN  # noqa: E402
from services.evaluation.targets import targets_table  # noqa: E402

ROWS = ROOT / "benchmarks" / "results" / "quality.json"
PAGE = ROOT / "docs" / "quality.md"
NOT_TRAINED_TO_ANSWER = {"gemma3-270m"}
COMPARED_WITH = "progressive-32-arrival"
"""The default of the time when recipes were asked beside each other."""

NONE_YET = "No rows are committed yet.\n"
_PLACE = re.compile(r"(<!-- (targets|rows) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_CHOICES = {"--recipes", "--storage", "--k"}
"""Options of `inferscale eval` that a row itself tells."""


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
    """A new row takes the place of one of the same model, data, recipe, storage and k: where rows
    stand says which data a model was asked first."""
    rows = {_identity(row): row for row in (*old, *new)}
    return list(rows.values())


def rendered(rows: Sequence[Row], page: str) -> dict[Path, str]:
    """What every file should hold, by path."""
    bodies = {
        "targets": "\n".join(_targets(rows)) or NONE_YET,
        "rows": "\n".join(_sections(rows)) or NONE_YET,
    }
    files = {PAGE: _PLACE.sub(lambda match: f"{match[1]}{bodies[match[2]]}{match[4]}", page)}
    for model, own in _by_model(rows):
        lines = _at_every_k(own)
        files[ROOT / "docs" / _plot_name(model)] = plot(lines)
        files[ROOT / "docs" / _plot_name(model, "nll")] = nll_plot(lines)
        if picture := judged_plot(own):
            files[ROOT / "docs" / _plot_name(model, "judged")] = picture
    return files


def is_same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def _targets(rows: Sequence[Row]) -> Iterator[str]:
    for model, own in _by_model(rows):
        if lines := targets_table(own, wants_f1=_model(own[0]) not in NOT_TRAINED_TO_ANSWER):
            yield f"**{model}**\n"
            yield lines


def _sections(rows: Sequence[Row]) -> Iterator[str]:
    for model, own in _by_model(rows):
        yield f"### {model}\n"
        yield f"![Token F1 over the number of facts]({_plot_name(model)})\n"
        yield f"![NLL less text mode's over the number of facts]({_plot_name(model, 'nll')})\n"
        yield table(own)
        if differences := comparison_table(_with_telling_comparisons(own)):
            yield differences
        yield category_table([row for row in own if _is_unquantised(row)])
        if judged := judged_table(own):
            yield f"![Judged answers over the number of facts]({_plot_name(model, 'judged')})\n"
            yield judged
        if costs := _costs(own):
            yield costs
        yield _source(own)


def _at_every_k(rows: Sequence[Row]) -> list[Row]:
    """Of what was asked at each k of the table: lines of one point say little and hide others."""
    asked: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        if row["recipe"] != TEXT_AGAIN:
            asked.setdefault((row["recipe"], row["dtype"]), set()).add(row["k"])
    most = max(asked.values(), key=len)
    whole = {line for line, at in asked.items() if at == most}
    return [row for row in rows if (row["recipe"], row["dtype"]) in whole]


def _with_telling_comparisons(rows: Sequence[Row]) -> list[Row]:
    """Each row compared with COMPARED_WITH and with the one whose name its own goes on from;
    in few bits with its own recipe. With all others where neither was compared. No pair twice."""
    told: set[frozenset[tuple[str, str, int]]] = set()
    telling = []
    for row in rows:
        compared = {}
        for name in _telling(row, row.get("compared", {})):
            sides = {(row["recipe"], row["dtype"], row["k"]), (name, "cache", row["k"])}
            if frozenset(sides) not in told:
                told.add(frozenset(sides))
                compared[name] = row["compared"][name]
        telling.append(row | {"compared": compared})
    return telling


def _telling(row: Row, names: Iterable[str]) -> list[str]:
    if not _is_unquantised(row) and row["recipe"] in names:
        return [row["recipe"]]
    bases = [name for name in names if row["recipe"].startswith(f"{name}-")]
    wanted = {COMPARED_WITH, max(bases, key=len, default="")}
    return [name for name in names if name in wanted] or list(names)


def _is_unquantised(row: Row) -> bool:
    return row["dtype"] in ("", "cache") and row["recipe"] != TEXT_AGAIN


def _costs(rows: Sequence[Row]) -> str:
    """Of encoding, for each recipe and storage: the fastest where it was done several times."""
    costs: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        way, cost = (row["recipe"], row["dtype"]), row.get("encode")
        if cost and (way not in costs or cost["seconds"] < costs[way]["seconds"]):
            costs[way] = cost
    if not costs:
        return ""
    lines = [
        "| recipe | storage | tokens forwarded per fact | waves | facts per second |",
        "|---|---|---:|---:|---:|",
    ]
    for (recipe, dtype), cost in costs.items():
        per_fact = cost["forwarded_tokens"] / cost["facts"]
        rate = cost["facts"] / cost["seconds"]
        lines.append(f"| `{recipe}` | {dtype} | {per_fact:,.0f} | {cost['waves']} | {rate:,.0f} |")
    return "\n".join(lines) + "\n"


def _source(rows: Sequence[Row]) -> str:
    """Every way in which rows of a table were measured; the rows' own file has whole commands."""
    said = dict.fromkeys(
        f"`{_without_choices(row.get('command', ''))}` with recipes, storages and k as in the "
        f"tables, {row.get('date', '')}, "
        f"{_named(row.get('hardware', {}))}; {_named(row.get('versions', {}))}; "
        f"data {row['data']}, asked {row['asked']}."
        for row in rows
    )
    return "\n\n".join(said) + "\n"


def _without_choices(command: str) -> str:
    words: list[str] = []
    skipped = False
    for word in shlex.split(command):
        if not skipped and word not in _CHOICES and word != "--text-again":
            words.append(word)
        skipped = word in _CHOICES
    return shlex.join(words)


def _named(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _by_model(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """In order of first appearance; rows by k, text mode first. What a model was asked of other
    data than the first stands by itself, and is called by how many facts there were."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((_model(row), row["data"]), []).append(row)
    first = dict(reversed(found))
    return [
        (
            model if first[model] == data else f"{model}, {_num_facts(own):,} facts",
            sorted(own, key=lambda row: (row["k"], row["recipe"] != TEXT)),
        )
        for (model, data), own in found.items()
    ]


def _num_facts(rows: Sequence[Row]) -> int:
    return max(int(row["encode"]["facts"]) if "encode" in row else 0 for row in rows)


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
