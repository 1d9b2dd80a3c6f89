"""The demo's services as processes that cannot outlive it.

Each runs in a session of its own, so that Ctrl-C reaches only the demo, which then ends them in
order; the engine's own processes are ended with their group. Should the demo be killed outright,
the kernel sends its children SIGTERM.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

STOP_AFTER_S = 25.0
PR_SET_PDEATHSIG = 1


class ServiceFailed(Exception):
    """A service ended, or did not get ready. The message holds the end of its log."""


class Service:
    """One running service: starting, then running until `stop`, which may be called twice."""

    def __init__(self, name: str, module: str, env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=dict(env),
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def require_running(self) -> None:
        code = self._process.poll()
        if code is not None:
            raise ServiceFailed(f"{self.name} ended with exit code {code}.\n{self.explain()}")

    def explain(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        end = "\n".join(f"    {line}" for line in lines[-12:])
        return f"The end of {self.log}:\n{end}"

    def stop(self) -> None:
        """SIGTERM, time to end its calls, then SIGKILL for the whole group."""
        self._signal_group(signal.SIGTERM, only_leader=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_AFTER_S)
        self._signal_group(signal.SIGKILL)
        self._process.wait()

    def _signal_group(self, number: signal.Signals, *, only_leader: bool = False) -> None:
        with contextlib.suppress(ProcessLookupError):
            if not only_leader:
                os.killpg(self._process.pid, number)
            elif self._process.poll() is None:
                os.kill(self._process.pid, number)


def _end_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that every `finally` of the demo runs."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
