"""What holds for the files of the project as a whole."""

from __future__ import annotations

import importlib
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("inferscale_core", "services", "migrations")

# Written in pieces, so that this file does not hold what it looks for.
FORBIDDEN = {
    "a package registry's host": re.compile(
        "|".join(
            ("pypi" + r"\.org", "python" + r"hosted\.org", "npm" + r"js\.org", "deb" + r"ian\.org")
        )
    ),
    "a path of one machine": re.compile(r"(?<![\w.}])/(work|root|home|Users|opt/wheels)/\w"),
    "a merge conflict": re.compile(r"^(<{7}|>{7}) ", re.MULTILINE),
}

READS_THE_ENVIRONMENT = {"inferscale_core/settings.py"}


@cache
def tracked_files() -> tuple[Path, ...]:
    command = ["git", "ls-files", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return tuple(ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file())


@cache
def texts() -> dict[str, str]:
    found = {}
    for path in tracked_files():
        try:
            found[str(path.relative_to(ROOT))] = path.read_text()
        except UnicodeDecodeError:
            continue
    return found


def test_the_tree_has_files_to_look_at() -> None:
    assert "pyproject.toml" in texts()


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_no_file_holds(kind: str) -> None:
    found = [
        f"{name}: {match[0].strip()}"
        for name, text in texts().items()
        for match in FORBIDDEN[kind].finditer(text)
    ]
    assert found == []


def test_no_large_file_is_committed() -> None:
    large = [str(path) for path in tracked_files() if path.stat().st_size > 1_000_000]
    assert large == []


def test_the_services_read_the_environment_in_settings_alone() -> None:
    readers = {
        name
        for name, text in texts().items()
        if name.startswith(SERVICES) and name.endswith(".py")
        if re.search(r"\bos\.environ\b|\bgetenv\(|from os import .*environ", text)
    }
    assert readers <= READS_THE_ENVIRONMENT


def test_every_package_of_the_core_has_a_layer() -> None:
    layers = next(
        contract["layers"]
        for contract in pyproject()["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    )
    placed = set(re.findall(r"inferscale_core\.(\w+)", " ".join(layers)))
    parts = {
        name.split("/")[1].removesuffix(".py")
        for name in texts()
        if name.startswith("inferscale_core/") and name.endswith(".py")
    }
    assert parts - {"__init__"} - placed == set()


@pytest.mark.parametrize(("source", "lock"), [("cpu", "cpu"), ("dev", "dev")])
def test_a_lock_holds_a_version_within_the_range_of_everything_asked_for(
    source: str, lock: str
) -> None:
    pinned = pins("cpu") | pins(lock)
    for item in requirements(f"requirements/{source}.in"):
        version = pinned.get(canonicalize_name(item.name))
        assert version, f"{item.name} is not in requirements/{lock}.txt; run scripts/lock.py"
        assert item.specifier.contains(version), f"{item} against the locked {version}"


def test_the_lock_suits_the_ranges_that_the_package_declares() -> None:
    project = pyproject()["project"]
    texts_ = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        texts_ += extra
    pinned = pins("cpu")
    elsewhere = {"inferscale-memory", "torch", "vllm"}
    for item in map(Requirement, texts_):
        if item.name not in elsewhere:
            version = pinned[canonicalize_name(item.name)]
            assert item.specifier.contains(version), f"{item} against the locked {version}"


def test_the_lock_leaves_torch_to_its_own_step() -> None:
    assert not {"torch", "torchvision", "torchaudio", "torchcodec"} & set(pins("cpu") | pins("dev"))


def test_every_direct_dependency_is_explained() -> None:
    page = texts()["docs/dependencies.md"]
    named = {canonicalize_name(name) for name in re.findall(r"`([\w.\-]+)(?:\[[\w,]+\])?`", page)}
    asked = {
        canonicalize_name(item.name)
        for name in ("cpu.in", "dev.in", "torch.txt")
        for item in requirements(f"requirements/{name}")
    }
    assert asked - named == set()


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for name, text in texts().items():
        if not name.endswith(".md"):
            continue
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in target and not ((ROOT / name).parent / target).exists():
                broken.append(f"{name}: {target}")
    assert broken == []


def test_links_into_a_page_name_a_heading_that_it_has() -> None:
    broken = []
    for name, text in texts().items():
        if not name.endswith(".md"):
            continue
        for target, heading in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", text):
            page = (ROOT / name).parent / target if target else ROOT / name
            if "://" not in target and heading not in headings(page.read_text()):
                broken.append(f"{name}: {target}#{heading}")
    assert broken == []


def headings(page: str) -> set[str]:
    """As links name them: lower case, hyphens for spaces, other signs left out."""
    found = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in found}


def test_python_on_pages_can_be_pasted() -> None:
    blocks = [
        (name, block)
        for name, text in texts().items()
        if name.endswith(".md")
        for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]
    assert {"README.md", "docs/operations.md"} <= {name for name, _ in blocks}
    for name, block in blocks:
        compile(block, name, "exec")
        for module, names in re.findall(r"^from (inferscale_core[\w.]*) import (.+)$", block, re.M):
            missing = set(names.split(", ")) - set(dir(importlib.import_module(module)))
            assert missing == set(), f"{name}: {module} has no {missing}"


def test_pages_name_only_targets_that_make_has() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]+):", texts()["Makefile"], re.MULTILINE))
    named = {
        (name, target)
        for name, text in texts().items()
        if name.endswith(".md")
        for target in re.findall(r"`make ([a-z][a-z-]+)", text)
    }
    assert {entry for entry in named if entry[1] not in targets} == set()


def test_every_folder_of_tests_is_a_package_so_that_names_of_files_may_repeat() -> None:
    names = [Path(name) for name in texts() if name.startswith("tests/") and name.endswith(".py")]
    folders = {path.parent for path in names}
    assert {folder for folder in folders if folder / "__init__.py" not in names} == set()


def test_the_ci_script_can_be_executed_from_a_clone() -> None:
    command = ["git", "ls-files", "-s", ".ci/run"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert listed.startswith("100755 ")


def pyproject() -> dict[str, dict]:  # type: ignore[type-arg]
    return tomllib.loads(texts()["pyproject.toml"])


def requirements(name: str) -> list[Requirement]:
    lines = [line.split("  #")[0].strip() for line in texts()[name].splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def pins(name: str) -> dict[str, str]:
    return {
        canonicalize_name(item.name): next(iter(item.specifier)).version
        for item in requirements(f"requirements/{name}.txt")
    }
