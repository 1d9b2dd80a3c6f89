"""Everything that can be said about the sources without running them. `make check` calls it.

    python scripts/check.py            run all checks, two at a time, and say what each took
    python scripts/check.py --write    write again what is generated

Each `scripts/generate_*.py` writes files that are committed, and compares them with --check; so
does `benchmarks.report` with the tables and pictures of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Result:
    title: str
    passed: bool
    took_s: float
    output: str


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the sources.")
    parser.add_argument("--write", action="store_true", help="write generated files again")
    if parser.parse_args().write:
        results = [run(title, command) for title, command in generators().items()]
    else:
        # Types take longest, so they start first.
        with ThreadPoolExecutor(max_workers=2) as pool:
            results = list(pool.map(lambda check: run(*check), checks().items()))
    failed = [result for result in results if not result.passed]
    for result in results:
        mark = "ok  " if result.passed else "FAIL"
        print(f"{mark} {result.took_s:5.1f} s  {result.title}")
    for result in failed:
        print(f"\n--- {result.title}\n{result.output}")
    return 1 if failed else 0


def checks() -> dict[str, list[str]]:
    ruff, buf, concise = str(BIN / "ruff"), str(BIN / "buf"), "--output-format=concise"
    found = {
        "types (mypy --strict)": [str(BIN / "mypy")],
        "formatting (ruff format)": [ruff, "format", "--check", concise, "."],
        "lint (ruff check)": [ruff, "check", concise, "."],
        "layers (import-linter)": [str(BIN / "lint-imports"), "--verbose"],
        "proto (buf lint)": [buf, "lint"],
        "proto (buf breaking)": [buf, "breaking", "--against", "proto/released.binpb"],
    }
    for title, command in generators().items():
        found[f"up to date ({title})"] = [*command, "--check"]
    return found


def generators() -> dict[str, list[str]]:
    scripts = sorted((ROOT / "scripts").glob("generate_*.py"))
    found = {path.name: [sys.executable, str(path)] for path in scripts}
    found["benchmarks.report"] = [sys.executable, "-m", "benchmarks.report"]
    return found


def run(title: str, command: list[str]) -> Result:
    started = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    output = (done.stdout + done.stderr).strip()
    return Result(title, done.returncode == 0, time.monotonic() - started, output)


if __name__ == "__main__":
    sys.exit(main())
