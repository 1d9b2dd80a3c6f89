"""Means of rows with their intervals, and how tables write them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from services.evaluation.bootstrap import mean_interval
from services.evaluation.locomo import CATEGORIES
from services.evaluation.scores import QuestionScore

Row = dict[str, Any]


def figure(name: str, values: Sequence[float]) -> Row:
    low, high = mean_interval(values)
    return {name: round(fmean(values), 4), f"{name}_interval": [round(low, 4), round(high, 4)]}


def by_category(
    name: str, scores: Sequence[QuestionScore], value: Callable[[QuestionScore], float]
) -> Row:
    values: dict[int, list[float]] = defaultdict(list)
    for score in scores:
        values[score.category].append(value(score))
    return {
        CATEGORIES.get(category, str(category)): {"n": len(own), **figure(name, own)}
        for category, own in sorted(values.items())
    }


def with_interval(figures: Row, name: str) -> str:
    low, high = figures[f"{name}_interval"]
    return f"{figures[name]:.3f} [{low:.3f}, {high:.3f}]"


def of_category(figures: Row | None, name: str) -> str:
    return "–" if figures is None else f"{with_interval(figures, name)} of {figures['n']}"


def signed(figures: Row, name: str) -> str:
    low, high = figures[f"{name}_interval"]
    return f"{figures[name]:+.3f} [{low:+.3f}, {high:+.3f}]"
