"""Take rows measured elsewhere into the results: `python -m benchmarks.gpu.collect FILE …`.

Rows of a benchmark that a file holds replace all rows of that benchmark; several files may hold
rows of the same one. With `--apart slow_host` they are kept apart from other rows of it, for a
table of their own: hosts of one description may differ by a factor of two.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from benchmarks.rows import GPU_RESULTS, Row, replace_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--apart", default="", help="what the rows' benchmarks are called beside")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for path in arguments.files:
        rows += map(_anywhere, json.loads(path.read_text()))
    if arguments.apart:
        rows = [{**row, "benchmark": f"{row['benchmark']}_{arguments.apart}"} for row in rows]
    replace_rows(rows, GPU_RESULTS)
    print(f"{len(rows)} rows into {GPU_RESULTS.name}")


def _anywhere(row: Row) -> Row:
    """Where the rows were written to, the gate's and the embedder say nothing about them."""
    command = re.sub(r"--out \S+", "--out rows.json", row["command"])
    command = re.sub(r"--embedder \S*/\S*", "--embedder FOLDER", command)
    return {**row, "command": re.sub(r"\S*/(?=[^/\s]+\.json\b)", "", command)}


if __name__ == "__main__":
    main()
