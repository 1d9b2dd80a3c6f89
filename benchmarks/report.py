"""`python -m benchmarks.report [--check]`: tables of docs/benchmarks.md and the plot, from rows.

A table stands between `<!-- rows: NAME -->` and `<!-- end -->`; only what is between is written.
With --check nothing is written, and the exit status says whether anything would have changed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.cascade_table import cascade_table, chapters_table
from benchmarks.gpu_tables import GPU_TABLES
from benchmarks.host_table import host_table
from benchmarks.plot import LinePlot, Series
from benchmarks.rows import CPU_RESULTS, GPU_RESULTS, Row, read_rows
from benchmarks.tables import source, table
from benchmarks.tier_tables import TIER_TABLES

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "benchmarks.md"
PLOT = ROOT / "docs" / "ttft.svg"
GPU_PLOT = ROOT / "docs" / "ttft_h200.svg"
GPU_THROUGHPUT_PLOT = ROOT / "docs" / "throughput_h200.svg"
GPU_WAYS = {"injected": "injected", "text": "as text", "floor": "prefix hit"}

_PLACE = re.compile(r"(<!-- rows: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def document_with_tables(document: str, rows: Sequence[Row]) -> str:
    """`document` with every marked place filled. Raises KeyError for an unknown name."""

    def fill(match: re.Match[str]) -> str:
        name = match[2]
        own = [row for row in rows if row["benchmark"] == name]
        table = TABLES[name](own) if own else "Not measured yet.\n"
        return f"{match[1]}{table}{match[4]}"

    return _PLACE.sub(fill, document)


def ttft_plot(rows: Sequence[Row]) -> str:
    rows = sorted(rows, key=lambda row: int(row["k"]))
    versions, hardware = rows[0]["versions"], rows[0]["hardware"]
    return LinePlot(
        title="Time to first token against the number of facts",
        subtitle=(
            f"{versions['model']}, vLLM {versions['vllm']} on {hardware['cores']} CPU cores; "
            f"median of {rows[0]['pairs']} interleaved pairs"
        ),
        x_label="facts in the prompt (k)",
        y_label="seconds",
        unit=" s",
        series=(
            Series("injected", tuple((row["k"], row["ttft_injected_s"]) for row in rows)),
            Series("as text", tuple((row["k"], row["ttft_text_s"]) for row in rows)),
        ),
    ).svg()


def gpu_ttft_plot(rows: Sequence[Row], model: str = "Llama-3.1-8B") -> str:
    rows = _plain(rows, model)
    pairs = f"median of {rows[0]['pairs']} interleaved rounds"
    plot = _gpu_plot(rows, "k", "Time to first token against the number of facts", pairs)
    x_label = "facts in the prompt (k)"
    return replace(plot, x_label=x_label, y_label="milliseconds", unit=" ms").svg()


def gpu_throughput_plot(rows: Sequence[Row], model: str = "Llama-3.1-8B") -> str:
    rows = _plain(rows, model)
    asked = f"k = {rows[0]['k']}, 50 tokens each"
    plot = _gpu_plot(rows, "clients", "Requests per second against clients", asked)
    return replace(plot, x_label="clients at once", y_label="requests per second").svg()


def _gpu_plot(rows: Sequence[Row], x: str, title: str, about: str) -> LinePlot:
    """Lines of the ways in which a request is served, without labels of the axes."""
    ordered = sorted(rows, key=lambda row: int(row[x]))
    vllm, gpu = ordered[0]["versions"]["vllm"], ordered[0]["hardware"]["gpu"]
    subtitle = f"shape of {ordered[0]['model']}, vLLM {vllm} on one {gpu}; {about}"
    series = tuple(
        Series(name, tuple((row[x], row[way]) for row in ordered)) for way, name in GPU_WAYS.items()
    )
    return LinePlot(title, subtitle, "", "", series)


def _plain(rows: Sequence[Row], model: str) -> list[Row]:
    """On one GPU, with chunks as in the engine's cache."""
    return [
        row for row in rows if (row["model"], row["gpus"], row["storage"]) == (model, 1, "cache")
    ]


def _ttft_table(rows: Sequence[Row]) -> str:
    lines = [
        [
            row["k"],
            row["facts_injected"],
            row["tokens_injected"],
            row["tokens_prefilled"],
            f"{row['ttft_injected_s']:.2f} s",
            f"{row['ttft_text_s']:.2f} s",
            f"{row['ttft_text_s'] / row['ttft_injected_s']:.1f}×",
        ]
        for row in sorted(rows, key=lambda row: int(row["k"]))
    ]
    counts = ["facts injected", "tokens injected", "tokens prefilled"]
    return table(["k", *counts, "injected", "text", "faster"], lines) + source(rows)


def _steps_table(rows: Sequence[Row]) -> str:
    lines = [[row["step"], f"{row['ms']:.1f} ms", f"{row['share']:.1%}"] for row in rows]
    return table(["step", f"median at k = {rows[0]['k']}", "share"], lines) + source(rows)


def _encode_table(rows: Sequence[Row]) -> str:
    (row,) = rows
    lines = [
        ["facts encoded", row["facts"]],
        ["facts per second", f"{row['facts_per_s']:.2f}"],
        ["tokens forwarded per second", f"{row['forwarded_tokens_per_s']:.1f}"],
        ["tokens per second of the engine's own prefill", f"{row['prefill_tokens_per_s']:.1f}"],
        ["share of the prefill rate", f"{row['share_of_prefill']:.1%}"],
        ["tokens per fact, mean", f"{row['tokens_per_fact']:.1f}"],
        ["bytes per fact, mean", f"{row['bytes_per_fact'] / 1e3:.0f} kB"],
    ]
    return table(["figure", "value"], lines) + source(rows)


def _store_table(rows: Sequence[Row]) -> str:
    lines = [
        [
            row["operation"],
            f"{row['call_ms']:.2f} ms",
            f"{row['sql_ms']:.2f} ms",
            f"{row['ratio']:.1f}×",
            f"{row['embed_ms']:.2f} ms",
            f"{row['ratio_without_embedding']:.1f}×",
        ]
        for row in rows
    ]
    head = ["call", "median", "bare SQL", "ratio", "of it embedding", "ratio without"]
    return table(head, lines) + source(rows)


def _large_user_table(rows: Sequence[Row]) -> str:
    idle = rows[0]["chat_median_ms"]
    lines = [
        [
            row["phase"],
            f"{row['seconds']:.2f} s",
            f"{row['engine_s']:.2f} s",
            f"{row['chat_median_ms']:.1f} ms",
            f"{row['chat_median_ms'] / idle:.1f}×",
            f"{row['chat_p99_ms']:.0f} ms",
            f"{row['chat_longest_ms']:.0f} ms",
        ]
        for row in rows
    ]
    head = ["meanwhile", "takes", "of it directory", "a chat", "ratio", "99%", "longest"]
    return table(head, lines) + source(rows)


TABLES: dict[str, Callable[[Sequence[Row]], str]] = {
    "chat_ttft": _ttft_table,
    "chat_steps": _steps_table,
    "encode": _encode_table,
    "host_cost": host_table,
    "large_user": _large_user_table,
    "store_ratio": _store_table,
    "cascade": cascade_table,
    "chapters": chapters_table,
    **GPU_TABLES,
    **TIER_TABLES,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    return check() if parser.parse_args().check else write()


def check() -> int:
    """1 when a file does not hold what the rows say."""
    stale = [path for path, text in outputs().items() if not _holds(path, text)]
    for path in stale:
        print(f"stale: {path.relative_to(ROOT)}; run python -m benchmarks.report")
    return 1 if stale else 0


def write() -> int:
    for path, text in outputs().items():
        if not _holds(path, text):
            path.write_text(text, encoding="utf-8")
            print(f"written: {path.relative_to(ROOT)}")
    return 0


def outputs() -> dict[Path, str]:
    """What the files should hold, from the rows there are."""
    rows = [*read_rows(CPU_RESULTS), *read_rows(GPU_RESULTS)]
    found = {DOCUMENT: document_with_tables(DOCUMENT.read_text(encoding="utf-8"), rows)}
    ttft = [row for row in rows if row["benchmark"] == "chat_ttft"]
    if ttft:
        found[PLOT] = ttft_plot(ttft)
    on_gpu = [row for row in rows if row["benchmark"] == "gpu_ttft"]
    if on_gpu:
        found[GPU_PLOT] = gpu_ttft_plot(on_gpu)
    served = [row for row in rows if row["benchmark"] == "gpu_throughput"]
    if served:
        found[GPU_THROUGHPUT_PLOT] = gpu_throughput_plot(served)
    return found


def _holds(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
