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

STOP_BEYOND_GRACE_S = 10.0
"""What a service has to end by itself once its calls have ended, as in the chart."""
PR_SET_PDEATHSIG = 1


class ServiceFailed(Exception):
    """A service ended, or did not get ready. The message holds the end of its log."""


class Service:
    """One running service: starting, then running until `stop`, which may be called twice."""

    def __init__(
        self,
        name: str,
        module: str,
        env: Mapping[str, str],
        log: Path,
        *,
        grace_s: float = 0.0,
    ) -> None:
        """grace_s: the time that the service gives its open calls."""
        self.name = name
        self.log = log
        self._grace_s = grace_s
        self._is_told = False
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

    def last_line(self) -> str:
        """Of its log; empty while there is none."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 4096))
            lines = log.read().decode(errors="replace").replace("\r", "\n").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def explain(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        end = "\n".join(f"    {line}" for line in lines[-12:])
        return f"The end of {self.log}:\n{end}"

    def begin_to_stop(self) -> None:
        """SIGTERM, without waiting: services that end together take the time of one. Once: Python
        that is told again while it is being taken down ends by the signal."""
        if not self._is_told:
            self._is_told = True
            self._signal_group(signal.SIGTERM, only_leader=True)

    def stop(self) -> None:
        """SIGTERM, time to end its calls, then SIGKILL for the whole group."""
        self.begin_to_stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(self._grace_s + STOP_BEYOND_GRACE_S)
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


class EndedBySignal(SystemExit):
    """exit_code: what a shell shows for the signal."""

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number
        super().__init__(self.exit_code)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into EndedBySignal, so that every `finally` of the demo runs."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise EndedBySignal(number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
