"""What is generated from the protocol is what is committed, and the protocol keeps its promises."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inferscale_core import errors
from inferscale_core.rpc.status import statuses

ROOT = Path(__file__).resolve().parents[3]
BUF = Path(sys.executable).parent / "buf"
RELEASED = ROOT / "proto" / "released.binpb"


def _run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The protocol in a folder where it may be broken."""
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    return tmp_path


def _edit(folder: Path, old: str, new: str) -> None:
    path = folder / "proto" / "inferscale" / "v1" / "memory.proto"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_the_generated_code_is_what_the_protocol_gives() -> None:
    done = _run(sys.executable, "scripts/generate_proto.py", "--check")
    assert done.returncode == 0, done.stdout


def test_the_api_reference_is_what_the_protocol_gives() -> None:
    done = _run(sys.executable, "scripts/generate_api_docs.py", "--check")
    assert done.returncode == 0, done.stdout


def test_the_protocol_passes_lint() -> None:
    assert _run(BUF, "lint").stdout == ""


def test_a_field_without_a_comment_fails_lint(copy: Path) -> None:
    _edit(copy, "  // The statement as it was given. 1 to 8,000 characters.\n", "")
    done = _run(BUF, "lint", cwd=copy)
    assert 'Field "text" should have a non-empty comment' in done.stdout


def test_the_protocol_breaks_no_released_client() -> None:
    done = _run(BUF, "breaking", "--against", RELEASED)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("uint32 revision = 4;", "uint32 revision = 40;", 'field "4"'),
        ("uint32 revision = 4;", "string revision = 4;", "changed type"),
        ("rpc GetMemory(", "rpc ReadMemory(", '"GetMemory"'),
    ],
)
def test_a_change_that_breaks_clients_is_found(
    copy: Path, old: str, new: str, complaint: str
) -> None:
    _edit(copy, old, new)
    done = _run(BUF, "breaking", "--against", RELEASED, cwd=copy)
    assert done.returncode != 0
    assert complaint in done.stdout


def test_the_tree_of_errors_states_the_status_that_each_is_sent_as() -> None:
    drawn = dict(re.findall(r"[├└]── (\w+) .* ([A-Z_]+)$", errors.__doc__ or "", re.MULTILINE))
    sent = {error.__name__: status.name for error, status in statuses().items()}
    del sent["InferScaleError"]
    assert drawn == sent


def test_generated_code_imports_nothing_by_absolute_path() -> None:
    folder = ROOT / "inferscale_core" / "rpc" / "pb"
    sources = [path for path in folder.rglob("*") if path.suffix in {".py", ".pyi"}]
    assert len(sources) > 10
    assert [
        str(path)
        for path in sources
        if re.search(r"^(from|import) inferscale", path.read_text(), re.MULTILINE)
    ] == []
