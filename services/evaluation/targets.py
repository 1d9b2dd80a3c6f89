"""What is wanted of a recipe beside what was seen, in Markdown.

Wanted at k = 20 and 50, against joint prefill of the same facts: token F1 at most a point lower,
with less than two points to its interval's lower end, and the given answers' log-likelihood at most
0.03 nats worse. At k = 50 also: F1 at least five points above the paper's window of 50 turns, and
the interval of that clear of 0. Of a model that was not trained to answer F1 says little: there the
likelihood alone counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from inferscale_core.memory.recipes import DEFAULT_RECIPE
from services.evaluation.figures import Row
from services.evaluation.scores import TEXT, TEXT_AGAIN

AT_K = (20, 50)
WINDOW = "window-50"
WINDOW_K = 50

MAX_F1_LOSS = 0.01
MAX_F1_LOSS_OF_INTERVAL = 0.02
MAX_NLL_LOSS = 0.03
MIN_F1_OVER_WINDOW = 0.05

_HEAD = (
    *("recipe", "storage", "missed"),
    *(f"F1, k = {k}" for k in AT_K),
    *(f"NLL, k = {k}" for k in AT_K),
    f"F1 above `{WINDOW}`, k = {WINDOW_K}",
)
IN_ONE_CHAPTER = "progressive-16-arrival"
"""As the default encodes users of one chapter, as which it was asked."""

_ABSENT, _NOT_COMPARED = "–", "not compared"


@dataclass(slots=True)
class _Marks:
    """Makes bold what is worse than wanted. missed: how many numbers were. wants_f1: F1 counts."""

    wants_f1: bool
    missed: int = 0

    def __call__(self, text: str, met: bool) -> str:
        self.missed += not met
        return text if met else f"**{text}**"

    def of_f1(self, text: str, met: bool) -> str:
        return self(text, met or not self.wants_f1)


def targets_table(rows: Sequence[Row], *, wants_f1: bool = True) -> str:
    """A line for each recipe and storage that was asked all questions at such a k, fewest misses
    first. Empty where nothing was compared with the window, which says what there was to win."""
    found: dict[tuple[str, str], dict[int, Row]] = {}
    most = max((row["n"] for row in rows), default=0)
    for row in rows:
        is_asked = row["k"] in AT_K and row["n"] == most
        if is_asked and row["recipe"] not in (TEXT, TEXT_AGAIN):
            found.setdefault((row["recipe"], row["dtype"]), {})[row["k"]] = row
    if not any(WINDOW in row.get("compared", {}) for row in rows):
        return ""
    made = (_line(way, by_k, _Marks(wants_f1)) for way, by_k in found.items())
    lines = sorted(made, key=itemgetter(0))
    head = [f"| {' | '.join(_HEAD)} |", f"|---|---|{'---:|' * (len(_HEAD) - 2)}"]
    return "\n".join([*head, *(line for _, line in lines)]) + "\n"


def _line(
    way: tuple[str, str], by_k: dict[int, Row], marked: _Marks
) -> tuple[tuple[int, int], str]:
    """At how many k it was not asked and how many numbers miss, and the line."""
    cells = [
        *(_f1(by_k.get(k), marked) for k in AT_K),
        *(_nll(by_k.get(k), marked) for k in AT_K),
        _above_window(by_k.get(WINDOW_K), marked, is_window=way[0] == WINDOW),
    ]
    start = [f"`{way[0]}`{_mark(*way)}", way[1], str(marked.missed)]
    return (len(set(AT_K) - by_k.keys()), marked.missed), f"| {' | '.join(start + cells)} |"


def _mark(recipe: str, storage: str) -> str:
    if storage != DEFAULT_RECIPE.storage:
        return ""
    marks = {DEFAULT_RECIPE.name: " (default)", IN_ONE_CHAPTER: " (default, one chapter)"}
    return marks.get(recipe, "")


def _f1(row: Row | None, marked: _Marks) -> str:
    if row is None:
        return _ABSENT
    mean, (low, high) = row["f1_to_text"], row["f1_to_text_interval"]
    digits = row.get("digits", 4)
    end = marked.of_f1(_points(low, digits), low > -MAX_F1_LOSS_OF_INTERVAL)
    loss = marked.of_f1(_points(mean, digits), mean >= -MAX_F1_LOSS)
    return f"{loss} [{end}, {_points(high, digits)}]"


def _nll(row: Row | None, marked: _Marks) -> str:
    if row is None:
        return _ABSENT
    mean, (low, high) = row["nll_to_text"], row["nll_to_text_interval"]
    return f"{marked(f'{mean:+.3f}', mean <= MAX_NLL_LOSS)} [{low:+.3f}, {high:+.3f}]"


def _above_window(row: Row | None, marked: _Marks, *, is_window: bool) -> str:
    if row is None or is_window:
        return _ABSENT
    found = row.get("compared", {}).get(WINDOW)
    if found is None:
        return _NOT_COMPARED
    mean, (low, high) = found["f1"], found["f1_interval"]
    end = marked.of_f1(_points(low), low > 0)
    return f"{marked.of_f1(_points(mean), mean >= MIN_F1_OVER_WINDOW)} [{end}, {_points(high)}]"


def _points(share: float, digits: int = 4) -> str:
    """Of F1, in hundredths. digits: that are known of the share behind the point."""
    return f"{100 * share:+.{digits - 2}f}"
