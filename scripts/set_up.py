"""Make .venv and install what a target needs. Plain Python 3.11, no package needed.

    python3 scripts/set_up.py demo    what `make demo` needs
    python3 scripts/set_up.py test    that and the tools of tests and checks

The machine is checked first. Each step is done once: a step's stamp in .venv/stamps holds the
digest of the files that decide it, so nothing is installed again until one of them changes, and an
interrupted step is done again. pip's own output goes to .venv/set_up.log.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOG = VENV / "set_up.log"
GB = 1_000_000_000

MACHINE_MEMORY_GB = 7.5
FREE_MEMORY_GB = 7.8
MOST_SWAP_GB = 1.5
"""As in examples/preflight.py, which has the reasons; a test compares them."""
MODEL_GB = 5.0
"""The packaged model while it is converted: 1.1 GB of parts, 3.4 GB of weights. The demo's only."""
MODEL_CACHE_DIR = "~/.cache/inferscale/models"
"""The setting's default; a test compares them, since nothing is installed yet."""
PACKAGES_GB = 3.5
TORCH_CPU_GB = 1.5
TORCH_CUDA_GB = 6.5
"""A build with CUDA and its libraries takes 3.9 GB; pip needs room for what it unpacks."""

PROGRESS_EVERY_S = 15.0
INSTALLING = "Installing collected packages: "


class SetUpError(Exception):
    """Set-up cannot go on. The message says what to do."""


@dataclass(frozen=True)
class Step:
    name: str
    title: str
    decided_by: tuple[str, ...]
    """Files, relative to the root, whose content decides whether the step is done."""
    run: Callable[[], None]

    def digest(self) -> str:
        content = b"".join((ROOT / name).read_bytes() for name in self.decided_by)
        return hashlib.sha256(sys.version.encode() + content).hexdigest()

    def is_done(self) -> bool:
        stamp = VENV / "stamps" / self.name
        return PYTHON.exists() and stamp.exists() and stamp.read_text() == self.digest()

    def mark_done(self) -> None:
        stamp = VENV / "stamps" / self.name
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(self.digest())


def steps(target: str) -> list[Step]:
    found = [
        Step("venv", "virtual environment", (), make_venv),
        Step("torch", "torch", ("requirements/torch.txt",), install_torch),
        Step("cpu", "packages to run", ("requirements/cpu.txt",), install_lock("cpu.txt")),
    ]
    if target == "test":
        found.append(
            Step("dev", "packages to test", ("requirements/dev.txt",), install_lock("dev.txt"))
        )
    found.append(Step("project", "InferScale itself", ("pyproject.toml",), install_project))
    return found


def main() -> None:
    target = sys.argv[1] if len(sys.argv) == 2 else ""
    if target not in ("demo", "test"):
        raise SystemExit("usage: set_up.py demo|test")
    try:
        check_python()
        check_memory(target)
        todo = [step for step in steps(target) if not step.is_done()]
        check_disk(target, {step.name for step in todo})
        for number, step in enumerate(todo, start=1):
            carry_out(step, f"set-up {number}/{len(todo)}")
    except SetUpError as problem:
        raise SystemExit(f"set-up: {problem}") from None


def carry_out(step: Step, label: str) -> None:
    print(f"{label}: {step.title} ...", flush=True)
    started = time.monotonic()
    step.run()
    step.mark_done()
    print(f"{label}: {step.title} done in {time.monotonic() - started:.0f} s", flush=True)


def check_python() -> None:
    version = sys.version_info[:3]
    if not ((3, 11) <= version < (3, 15)):
        raise SetUpError(
            f"Python 3.11 to 3.14 is needed, this is {'.'.join(map(str, version))}. "
            "Install one and name it: make PYTHON=python3.11 demo"
        )


def check_memory(target: str) -> None:
    total, available = memory_bytes()
    if total < MACHINE_MEMORY_GB * GB:
        raise SetUpError(
            f"8 GB of memory are needed, this machine (or container) has {total / GB:.1f} GB. "
            "Use a larger one."
        )
    if target != "demo":
        return
    if available < FREE_MEMORY_GB * GB:
        raise SetUpError(
            f"the demo needs {FREE_MEMORY_GB} GB of memory that nothing else uses (up to "
            f"{MOST_SWAP_GB} GB of it may be swap), {available / GB:.1f} GB are free now. "
            "End other programs, or add swap, and try again."
        )


def memory_bytes() -> tuple[int, int]:
    """Total and available bytes, with some swap; a container's limit counts when it is smaller."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    kib_by_name = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    total = kib_by_name["MemTotal"] * 1024
    swap = min(kib_by_name["SwapFree"] * 1024, int(MOST_SWAP_GB * GB))
    available = kib_by_name["MemAvailable"] * 1024 + swap
    try:
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return total, available
    file_cache = int(stat.get("inactive_file", 0))  # given back when someone asks
    return min(total, limit), min(available, limit - used + file_cache)


def check_disk(target: str, todo: set[str]) -> None:
    needed = 0.0
    if target == "demo" and needs_model() and is_on_this_disk(model_folder()):
        needed += MODEL_GB
    if "cpu" in todo:
        needed += PACKAGES_GB
    torch_gb = 0.0
    if "torch" in todo:
        torch_gb = TORCH_CPU_GB if finds_cpu_build() else TORCH_CUDA_GB
    free = shutil.disk_usage(ROOT).free / GB
    if free < needed + torch_gb:
        build = " (pip finds no CPU build of torch here, so it takes the CUDA build)"
        raise SetUpError(
            f"{needed + torch_gb:.0f} GB of free disk are needed, {free:.1f} GB are free at {ROOT}"
            f"{build if torch_gb == TORCH_CUDA_GB else ''}. Free some, or clone to a larger disk."
        )


def needs_model() -> bool:
    """Whether the packaged model is still to be made."""
    if os.environ.get("INFERSCALE_ENGINE__MODEL", "packaged") != "packaged":
        return False
    return not any(model_folder().glob("*/*.safetensors"))


def model_folder() -> Path:
    return Path(os.environ.get("INFERSCALE_ENGINE__MODEL_CACHE_DIR", MODEL_CACHE_DIR)).expanduser()


def is_on_this_disk(folder: Path) -> bool:
    """On another disk the demo looks by itself, once it is installed."""
    return existing(folder).stat().st_dev == ROOT.stat().st_dev


def existing(folder: Path) -> Path:
    return folder if folder.exists() else existing(folder.parent)


def finds_cpu_build() -> bool:
    """Whether pip would take a build of torch without CUDA. Asks pip, which downloads nothing."""
    pin = torch_pin().removeprefix("torch==")
    python = PYTHON if PYTHON.exists() else sys.executable
    command = [str(python), "-m", "pip", "index", "versions", "torch"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{pin}+cpu" in answer.stdout


def torch_pin() -> str:
    lines = (ROOT / "requirements" / "torch.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def make_venv() -> None:
    command = [sys.executable, "-m", "venv", str(VENV)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SetUpError(
            f"python -m venv failed: {(done.stdout + done.stderr).strip()[-400:]}\n"
            "On Debian and Ubuntu: apt-get install python3-venv"
        )


def install_torch() -> None:
    pip("install", "-r", "requirements/torch.txt")


def install_lock(name: str) -> Callable[[], None]:
    return lambda: pip("install", "--no-deps", "-r", f"requirements/{name}")


def install_project() -> None:
    # The lock holds the build tools, so that nothing is downloaded for the build.
    pip("install", "--no-deps", "--no-build-isolation", "-e", ".")


def pip(*arguments: str) -> None:
    """Run pip in .venv; show now and then what it is at."""
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", *arguments]
    with LOG.open("a") as log:
        log.write(f"\n$ {' '.join(command)}\n")
        log.flush()
        running = subprocess.Popen(
            command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        wait_and_show(running)
    if running.returncode != 0:
        raise SetUpError(
            f"pip failed. Its last lines:\n{last_lines(12)}\n\nAll of it: {LOG}\n"
            "Without a network, or with no room left, free that and run the same command again: "
            "finished steps are kept."
        )


def wait_and_show(running: subprocess.Popen[bytes]) -> None:
    started, began_at = time.monotonic(), time.time()
    while True:
        try:
            running.wait(PROGRESS_EVERY_S)
            return
        except subprocess.TimeoutExpired:
            at = what_pip_is_at(began_at)
            print(f"    {time.monotonic() - started:4.0f} s  {at}", flush=True)
        except BaseException:
            running.terminate()
            running.wait()
            raise


def what_pip_is_at(began_at: float) -> str:
    """Its last line; while it installs what it lists, how much of that it did since `began_at`."""
    lines = [line.strip() for line in last_lines(200).splitlines()]
    last = next((line for line in reversed(lines) if line and "WARNING" not in line), "")
    if last.startswith(INSTALLING):
        total = last.count(",") + 1
        return f"installing, {min(num_installed(began_at), total)} of {total} packages"
    return "starting" if last.startswith("$ ") else last[:60]


def num_installed(since: float) -> int:
    found = VENV.glob("lib/python*/site-packages/*.dist-info/METADATA")
    return sum(path.stat().st_ctime >= since for path in found)


def last_lines(count: int) -> str:
    return "\n".join(LOG.read_text(errors="replace").splitlines()[-count:])


if __name__ == "__main__":
    os.umask(0o022)
    main()
