"""How the demo looks: questions, tables and bars, at 80 columns and without a terminal too."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from examples.answers import Asked, Pair
from examples.asking import Onlooker
from examples.progress import Steps
from inferscale_core.client import Served, ServingMode

BAR_WIDTH = 40
FACTS_SHOWN = 3


def show_heading(console: Console, text: str) -> None:
    console.print()
    console.rule(f"[bold]{text}[/]", align="left", style="dim")


def show_question(console: Console, number: int, of: int, question: str) -> None:
    console.print()
    console.print(f"[bold cyan]{number}/{of}  {escape(question)}[/]")


class PairView(Onlooker):
    """Shows how long each half of a pair takes to its first token, while it takes it."""

    def __init__(self, console: Console, steps: Steps, subject: str = "First token") -> None:
        self._console = console
        self._steps = steps
        self._subject = subject

    def waiting(self, mode: ServingMode) -> AbstractContextManager[object]:
        way = "as text" if mode is ServingMode.TEXT else "injected"
        return self._steps.step(f"{self._subject}, {way}")

    def not_counted(self, problem: str) -> None:
        self._console.print(f"  [yellow]not counted, asked again: {problem}[/]")


class AnswerView(PairView):
    """Shows one answer as it streams: first the best facts, then the text, wrapped by words."""

    def __init__(self, console: Console, steps: Steps) -> None:
        super().__init__(console, steps)
        self._column = 0

    def served(self, served: Served) -> None:
        best = list(reversed(served.facts))
        for fact in best[:FACTS_SHOWN]:
            line = f"     [dim]{fact.score:.2f}  {escape(fact.text.strip())}[/]"
            self._console.print(line, no_wrap=True, overflow="ellipsis")
        if len(best) > FACTS_SHOWN:
            self._console.print(f"     [dim]      and {len(best) - FACTS_SHOWN} more[/]")
        self._console.print("     ", end="")

    def text(self, piece: str) -> None:
        piece = piece.replace("\n", " ")
        if self._column + len(piece) > self._console.width - 10 and piece.startswith(" "):
            self._console.print("\n     ", end="")
            self._column, piece = 0, piece.lstrip()
        self._console.print(escape(piece), style="bold", end="", soft_wrap=True)
        self._column += len(piece)

    def answered(self, asked: Asked) -> None:
        self._console.print()
        num_tokens, seconds = asked.usage.completion_tokens, asked.total_s
        self._console.print(f"     [dim]{seconds:.1f} s, tokens: {num_tokens}[/]")
        self._column = 0


def show_pair(console: Console, pair: Pair) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("served", no_wrap=True)
    for head in ("facts", "prompt\ntokens", "injected", "prefilled", "prefix-\ncached"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("first\ntoken", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_row(*_line("injected", pair.injected), f"[bold green]{pair.speedup:.1f}x faster[/]")
    table.add_row(*_line("as text", pair.text), "")
    console.print(table)


def show_sweep(console: Console, pairs: Sequence[Pair]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for head in ("k", "facts\ninjected", "tokens\ninjected", "tokens\nprefilled"):
        table.add_column(head, justify="right")
    for head in ("first token\ninjected", "first token\nas text", ""):
        table.add_column(head, justify="right")
    for pair in pairs:
        usage = pair.injected.usage
        table.add_row(
            str(pair.k),
            str(usage.facts_injected),
            str(usage.injected_tokens),
            str(usage.prefilled_tokens),
            f"{pair.injected.ttft_s:.2f} s",
            f"{pair.text.ttft_s:.2f} s",
            f"[bold green]{pair.speedup:.1f}x[/]",
        )
    console.print(table)


def show_bars(console: Console, pairs: Sequence[Pair]) -> None:
    longest = max(max(pair.injected.ttft_s, pair.text.ttft_s) for pair in pairs)
    for pair in pairs:
        label = f"k = {pair.k:<3}"
        console.print(f"  {label} injected  {_bar(pair.injected.ttft_s, longest, 'green')}")
        console.print(f"  {'':{len(label)}} as text   {_bar(pair.text.ttft_s, longest, 'yellow')}")


def _line(name: str, asked: Asked) -> list[str]:
    usage = asked.usage
    return [
        name,
        str(len(asked.facts)),
        str(usage.prompt_tokens),
        str(usage.injected_tokens),
        str(usage.prefilled_tokens),
        str(usage.native_hit_tokens),
        f"{asked.ttft_s:.2f} s",
    ]


def _bar(seconds: float, longest: float, colour: str) -> str:
    width = max(1, round(BAR_WIDTH * seconds / longest))
    return f"[{colour}]{'█' * width}[/] {seconds:.2f} s"
