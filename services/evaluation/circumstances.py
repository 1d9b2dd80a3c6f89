"""When, with what and on what something was measured."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from services.worker.engine.host import device_name, engine_version

_DISTRIBUTIONS = ("inferscale-memory", "torch", "transformers", "triton")


def circumstances(*, with_engine: bool) -> dict[str, Any]:
    """`versions`, `hardware`, `date` and `command`. with_engine: it runs on this machine."""
    versions = {"python": platform.python_version()}
    hardware: dict[str, Any] = {"cores": os.cpu_count()}
    if with_engine:
        versions |= {"vllm": engine_version(), **_installed()}
        hardware["device"] = device_name()
    return {
        "versions": versions,
        "hardware": hardware,
        "date": datetime.now(UTC).date().isoformat(),
        "command": " ".join(["inferscale eval", *sys.argv[1:]]),
    }


def _installed() -> dict[str, str]:
    found = {}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
