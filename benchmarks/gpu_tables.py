"""Tables of docs/benchmarks.md whose rows were measured on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.rows import Row
from benchmarks.tables import source, table

LAYERS_PER_PROGRAM = 4
"""What the service launches with; kernels.compose.launch has the same."""

FACT_TOKENS = 30
"""Of the facts that are served; `benchmarks.gpu.engine` has the same."""

WAYS = ("injected", "text", "floor")
QUERY_STEPS = ("embed_ms", "retrieve_ms", "plan_ms", "inject_ms")


def _served(row: Row) -> str:
    gpus = f", {row['gpus']} GPUs" if row.get("gpus", 1) > 1 else ""
    storage = row.get("storage", "cache")
    return f"{row['model']}{gpus}" + (f", {storage} chunks" if storage != "cache" else "")


def _ttft(rows: Sequence[Row]) -> str:
    has_launches = any("launch_ms" in row for row in rows)

    def launches(row: Row) -> list[str]:
        return [_if_known(row, "launch_ms")] if has_launches else []

    lines = [
        [
            _served(row),
            row["block_size"],
            row["k"],
            *(f"{row[way]:.1f}" for way in WAYS),
            f"{row['injected_minus_floor']:+.2f}",
            f"{row['floor'] / row['injected']:.0%}",
            *(_if_known(row, f"gpu_{way}") for way in WAYS),
            *launches(row),
        ]
        for row in sorted(rows, key=lambda row: (_served(row), row["k"]))
    ]
    busy = [f"GPU {way}" for way in WAYS]
    return table(
        [
            "model",
            "block",
            "k",
            *WAYS,
            "injected − floor",
            "floor / injected",
            *busy,
            *["launch"] * has_launches,
        ],
        lines,
    ) + source(rows)


def _if_known(row: Row, name: str) -> str:
    return f"{row[name]:.2f}" if name in row else ""


def _throughput(rows: Sequence[Row]) -> str:
    lines = [
        [
            _served(row),
            row["block_size"],
            row["clients"],
            *(f"{row[way]:.1f}" for way in WAYS),
            f"{row['injected'] / row['floor']:.0%}",
            f"{row['injected'] / row['text']:.1f}×",
        ]
        for row in sorted(rows, key=lambda row: (_served(row), row["clients"]))
    ]
    head = ["model", "block", "clients", *WAYS, "of the floor", "of text"]
    return table(head, lines) + source(rows)


def _kernels(rows: Sequence[Row]) -> str:
    own = [row for row in rows if row["layers_per_program"] == LAYERS_PER_PROGRAM]
    lines = [
        [
            row["num_tokens"],
            row.get("storage", "cache"),
            f"{row['floor_ms']:.3f}",
            f"{row['compose_ms']:.3f}",
            f"{row['compose_ms'] / row['floor_ms']:.2f}×",
            f"{row['capture_ms']:.3f}",
            f"{row['capture_ms'] / row['floor_ms']:.2f}×",
            f"{row['host_ms']:.2f}",
        ]
        for row in own
    ]
    head = ["tokens", "storage", "floor", "compose", "of the floor", "capture", "of the floor"]
    return table([*head, "launch"], lines) + source(rows)


def _no_op(rows: Sequence[Row]) -> str:
    lines = [
        [
            row["model"],
            row["k"],
            *(f"{row[kind]:.2f}" for kind in ("none", "no_op", "ours")),
            f"{row['no_op_minus_none']:+.2f}",
            f"{row['ours_minus_none']:+.2f}",
        ]
        for row in rows
    ]
    kinds = ["no connector", "one that does nothing", "ours, idle"]
    return table(["model", "k", *kinds, "nothing − none", "ours − none"], lines) + source(rows)


def _gate(rows: Sequence[Row]) -> str:
    layouts = sorted({row["layout"] for row in rows})
    names = dict.fromkeys((_tests(row), row["selection"], row["block_size"]) for row in rows)
    by_place = {
        (_tests(row), row["selection"], row["block_size"], row["layout"]): row for row in rows
    }
    lines = []
    for name in names:
        found = [by_place.get((*name, layout)) for layout in layouts]
        lines.append([*name, *(_passed(row) for row in found)])
    return table(["tests", "selection", "block", *layouts], lines) + source(rows)


def _tests(row: Row) -> str:
    return str(row["tests"]) + ("" if row.get("eager", True) else ", CUDA graphs")


def _passed(row: Row | None) -> str:
    if row is None:
        return "not run"
    return f"{row['passed']} of {row['passed'] + row['failed']} passed"


def _encode(rows: Sequence[Row]) -> str:
    lines: list[list[object]] = []
    for row in rows:
        lines += [[row["model"], *line] for line in _encode_lines(row)]
    return table(["model", "figure", "value"], lines) + source(rows)


def _encode_lines(row: Row) -> list[list[object]]:
    match row["kind"]:
        case "encode_at_once":
            # Rows of before it was asked for others are of 32.
            users = f"{row['clients']} users at once, m = {row.get('neighbours', 32)}"
            rate = f"{row['injected']:.0f} / {row['floor']:.0f} / {row['text']:.0f} requests/s"
            share = row["forwarded_tokens_per_s"] / row["prefill_tokens_per_s"]
            return [
                [f"{users}: encode / prefix hit / prefill of the same shape", rate],
                [f"{users}: of the prefix hit", f"{row['injected'] / row['floor']:.0%}"],
                [
                    f"{users}: forwarded tokens/s, and of the prefill rate",
                    f"{row['forwarded_tokens_per_s']:.0f}, {share:.0%}",
                ],
            ]
        case "encode_one_user":
            about = f"{row['facts']} facts of one user, m = {row['neighbours']}"
            waves = f"{row['waves']} waves, {row['ms_per_wave']:.1f} ms each"
            return [[about, f"{row['seconds']:.2f} s in {waves}"]]
        case _:
            about = f"a chat beside {row['encode_in_flight']} encode requests"
            times = f"{row['beside']:.1f} ms to its first token instead of {row['alone']:.1f}"
            return [[about, f"{times} ({row['slower']:.2f}×)"]]


def _encode_load(rows: Sequence[Row]) -> str:
    lines = [
        [
            row["model"],
            row["clients"],
            row.get("neighbours", 32),
            f"{row['step_tokens']:,}",
            f"{row['injected']:.0f}",
            f"{row['floor']:.0f}",
            f"{row['share']:.0%}",
            f"{min(row['shares']):.0%} to {max(row['shares']):.0%}",
            f"{row['evictions']:,}",
        ]
        for row in rows
    ]
    head = ["model", "users", "neighbours", "tokens of a step", "encode", "prefix hit"]
    return table([*head, "of the prefix hit", "turn by turn", "chunks evicted"], lines) + source(
        rows
    )


def _beside_decoding(rows: Sequence[Row]) -> str:
    lines = [
        [
            row["model"],
            row["clients"],
            row["facts"],
            *(f"{row[name]:.2f}" for name in ("ms", "ms_p95", "embed", "search")),
        ]
        for row in rows
    ]
    return table(
        ["model", "answers generated", "facts", "ms", "95th percentile", "embed", "search"], lines
    ) + source(rows)


def _facts_per_gb(rows: Sequence[Row]) -> str:
    lines = [
        [
            row["model"],
            row["ranks"],
            row["dtype"],
            f"{row['bytes_per_token']:,}",
            f"{row['bytes_per_fact'] / 1e3:,.0f} kB",
            f"{row['facts_per_gb']:,}",
        ]
        for row in rows
    ]
    size = ["bytes per token", "per fact of 28 tokens", "facts per GB"]
    return table(["model", "GPUs", "storage", *size], lines) + source(rows)


def _retrieval(rows: Sequence[Row]) -> str:
    ways = {
        "retrieval_one": "one question",
        "retrieval_sixteen_in_one_pass": "16 in one pass",
        "retrieval_sixteen_threads": "each of 16 threads at once",
    }
    lines = [
        [
            ways[row["kind"]],
            f"{row['facts']:,}",
            f"{row['ms']:.2f}",
            f"{row['ms_p95']:.2f}",
            f"{row['floor']:.3f}",
            row["places_that_differ"],
        ]
        for row in rows
    ]
    head = ["questions", "facts", "ms", "95th percentile", "floor"]
    return table([*head, "places that differ"], lines) + source(rows)


def _query(rows: Sequence[Row]) -> str:
    lines = [
        [
            row["model"],
            row["k"],
            row["served"],
            *(f"{row[name]:.1f}" for name in ("query", "floor")),
            f"{row['query_minus_floor']:+.2f}",
            *(f"{row[step]:.2f}" for step in QUERY_STEPS),
        ]
        for row in rows
    ]
    head = ["model", "k", "served", "from text to first token", "floor", "difference"]
    head += [step.removesuffix("_ms") for step in QUERY_STEPS]
    return table(head, lines) + source(rows)


def _break_even(rows: Sequence[Row]) -> str:
    lines = [
        [
            row["model"],
            row["tokens"],
            f"{row['tokens'] / FACT_TOKENS:.0f}",
            f"{row['text']:.2f}",
            f"{row['injected']:.2f}",
            row["min_injected_tokens"],
        ]
        for row in rows
    ]
    facts = f"facts of {FACT_TOKENS}"
    head = ["model", "tokens of memory", facts, "text", "injected", "injected from … tokens on"]
    return table(head, lines) + source(rows)


GPU_TABLES: dict[str, Callable[[Sequence[Row]], str]] = {
    "gpu_ttft": _ttft,
    "gpu_throughput": _throughput,
    "gpu_ttft_slow_host": _ttft,
    "gpu_query_slow_host": _query,
    "gpu_encode_slow_host": _encode,
    "gpu_throughput_slow_host": _throughput,
    "gpu_kernels": _kernels,
    "gpu_no_op": _no_op,
    "gpu_gate": _gate,
    "gpu_encode": _encode,
    "gpu_encode_load": _encode_load,
    "gpu_retrieval_beside_decoding": _beside_decoding,
    "facts_per_gb": _facts_per_gb,
    "gpu_retrieval": _retrieval,
    "gpu_query": _query,
    "gpu_break_even": _break_even,
}
