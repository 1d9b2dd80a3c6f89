"""Take rows measured elsewhere into the results: `python -m benchmarks.gpu.collect FILE …`.

Rows of a benchmark that a file holds replace all rows of that benchmark; several files may hold
rows of the same one.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from benchmarks.rows import GPU_RESULTS, Row, replace_rows


def main() -> None:
    rows: list[Row] = []
    for name in sys.argv[1:]:
        rows += map(_anywhere, json.loads(Path(name).read_text()))
    replace_rows(rows, GPU_RESULTS)
    print(f"{len(rows)} rows into {GPU_RESULTS.name}")


def _anywhere(row: Row) -> Row:
    """Where the rows were written to, the gate's and the embedder say nothing about them."""
    command = re.sub(r"--out \S+", "--out rows.json", row["command"])
    command = re.sub(r"--embedder \S*/\S*", "--embedder FOLDER", command)
    return {**row, "command": re.sub(r"\S*/(?=[^/\s]+\.json\b)", "", command)}


if __name__ == "__main__":
    main()
