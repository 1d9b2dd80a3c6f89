"""Steps with progress and time: a moving line in a terminal, plain lines everywhere else."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

PLAIN_LINE_EVERY_S = 10.0
TITLE_WIDTH = 32
DETAIL_WIDTH = 60


_WHO_AND_WHEN = re.compile(
    r"""^(\([^)]*\)\s*)?            # (EngineCore pid=7)
        ([A-Z]+\s+\d\d-\d\d\s\S+\s\[[^\]]*\]\s | \S+T\S+Z\s[A-Z]+\s)?  # INFO 11-29 18:59 [x.py:7]
    """,
    re.VERBOSE,
)


def shorten_line(line: str) -> str:
    """A line of a log as a detail: what it says, within `DETAIL_WIDTH`."""
    said = " ".join(_WHO_AND_WHEN.sub("", line).split())
    return said if len(said) <= DETAIL_WIDTH else f"{said[: DETAIL_WIDTH - 1]}…"


class Step:
    """One step that is going on. `say` as often as you like; what is shown is limited."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.detail = ""

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    def say(self, detail: str, share: float | None = None) -> None:
        """`detail` replaces the last one; `share` (0 to 1) fills a bar. None leaves the bar out."""
        self.detail = detail

    def result(self, detail: str) -> None:
        """What stands beside the title once the step is done."""
        self.detail = detail


class _LiveStep(Step):
    def __init__(self, progress: Progress, title: str) -> None:
        super().__init__()
        self._progress = progress
        self._task = progress.add_task(title, total=None, detail="")

    def say(self, detail: str, share: float | None = None) -> None:
        super().say(detail, share)
        total = None if share is None else 1.0
        self._progress.update(
            self._task, detail=escape(detail), total=total, completed=share or 0.0
        )


class Steps:
    """Shows steps one after the other on `console`."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """The body's last `say` or `result` stands beside the title, with the time, at its end."""
        with self._live(title) if self._console.is_terminal else self._plain(title) as step:
            yield step
        self._line("[green]✓[/]", title, step)

    @contextmanager
    def _live(self, title: str) -> Iterator[Step]:
        columns = (
            SpinnerColumn(),
            TextColumn(f"{{task.description:<{TITLE_WIDTH}}}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[detail]}"),
        )
        with Progress(
            *columns, console=self._console, transient=True, refresh_per_second=4
        ) as progress:
            yield _LiveStep(progress, title)

    @contextmanager
    def _plain(self, title: str) -> Iterator[Step]:
        self._console.print(f"  … {title}", style="dim")
        step, is_over = Step(), Event()
        showing = Thread(target=self._show_now_and_then, args=(step, is_over), daemon=True)
        showing.start()
        try:
            yield step
        finally:
            is_over.set()
            showing.join()

    def _show_now_and_then(self, step: Step, is_over: Event) -> None:
        """Also of a step that says nothing itself, since it waits."""
        while not is_over.wait(PLAIN_LINE_EVERY_S):
            detail = escape(step.detail) or "still going on"
            self._console.print(f"      {detail} ({step.elapsed_s:.0f} s)", style="dim")

    def _line(self, mark: str, title: str, step: Step) -> None:
        detail = f"  [dim]{escape(step.detail)}[/]" if step.detail else ""
        self._console.print(f"  {mark} {title:<{TITLE_WIDTH}} {step.elapsed_s:6.1f} s{detail}")
