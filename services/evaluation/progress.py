"""How far a run is, on the terminal's last line; one line a tenth where there is no terminal."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 24
_EVERY_S = 0.1


class Progress:
    """Counts steps of one kind of work. Use it as a context: at its end the line is finished."""

    def __init__(self, title: str, total: int, stream: TextIO | None = None) -> None:
        self._title = title
        self._total = max(1, total)
        self._stream = stream or sys.stderr
        self._done = 0
        self._started = time.monotonic()
        self._shown_at = 0.0
        self._tenth = -1

    def __enter__(self) -> Progress:
        self._show()
        return self

    def __exit__(self, *_: object) -> None:
        self._show(last=True)

    def step(self) -> None:
        self._done += 1
        self._show()

    def _show(self, *, last: bool = False) -> None:
        if self._stream.isatty():
            self._draw(last)
        else:
            self._log(last)

    def _draw(self, last: bool) -> None:
        now = time.monotonic()
        if not last and now - self._shown_at < _EVERY_S:
            return
        self._shown_at = now
        filled = _WIDTH * self._done // self._total
        bar = "#" * filled + "." * (_WIDTH - filled)
        self._stream.write(f"\r{self._line(f'[{bar}] ')}\x1b[K" + ("\n" if last else ""))
        self._stream.flush()

    def _log(self, last: bool) -> None:
        tenth = 10 * self._done // self._total
        if tenth > self._tenth or last:
            self._tenth = tenth
            print(self._line(""), file=self._stream, flush=True)

    def _line(self, bar: str) -> str:
        seconds = time.monotonic() - self._started
        return f"{self._title}: {bar}{self._done}/{self._total} in {seconds:.0f} s"
