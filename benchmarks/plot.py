"""A line plot as an SVG that reads well on light and dark pages, without a plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 128, 104, 56
LABEL_HEIGHT = 38

_NAMESPACE = "http://www.w3.org/2000/svg"
_STYLE = """
  .card { fill: #ffffff; stroke: #d7dbe0 }
  .text { fill: #1d2430; font: 13px system-ui, -apple-system, "Segoe UI", sans-serif }
  .soft { fill: #5f6b7a }
  .title { font-size: 17px; font-weight: 600 }
  .grid { stroke: #e6e9ed; stroke-width: 1 }
  .line { fill: none; stroke-width: 3; stroke-linejoin: round; stroke-linecap: round }
  .c0 { stroke: #0b7a75 } .d0 { fill: #0b7a75 }
  .c1 { stroke: #c2571a } .d1 { fill: #c2571a }
  .c2 { stroke: #5a6fb0; stroke-dasharray: 2 7 } .d2 { fill: #5a6fb0 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #14181f; stroke: #2b323c }
    .text { fill: #e8ecf1 } .soft { fill: #9aa6b4 } .grid { stroke: #262d37 }
    .c0 { stroke: #3fc9c1 } .d0 { fill: #3fc9c1 }
    .c1 { stroke: #ff9a5c } .d1 { fill: #ff9a5c }
    .c2 { stroke: #93a7ec } .d2 { fill: #93a7ec }
  }
"""


@dataclass(frozen=True)
class Series:
    """points: (x, y) in order of x."""

    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class LinePlot:
    """x and y start at 0. unit: of y, as written behind a number."""

    title: str
    subtitle: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    unit: str = ""

    def svg(self) -> str:
        description = "; ".join(
            f"{series.label}: " + ", ".join(f"{y:.1f} at {x:g}" for x, y in series.points)
            for series in self.series
        )
        body = [self._head(), *self._axes(), *self._lines()]
        return "\n".join(
            [
                f'<svg xmlns="{_NAMESPACE}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<desc>{escape(description)}</desc>",
                f"<style>{_STYLE}</style>",
                *body,
                "</svg>\n",
            ]
        )

    def _head(self) -> str:
        size = f'width="{WIDTH - 1}" height="{HEIGHT - 1}"'
        return "\n".join(
            [
                f'<rect class="card" x="0.5" y="0.5" {size} rx="10"/>',
                _text(24, 34, self.title, "title"),
                _text(24, 56, self.subtitle, "soft"),
            ]
        )

    def _axes(self) -> list[str]:
        shapes = []
        for tick in _ticks(self._y_max):
            y, right = self._y(tick), WIDTH - RIGHT
            shapes.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
            shapes.append(_text(LEFT - 10, y + 4, f"{tick:g}", "soft", "end"))
        for x in sorted({x for series in self.series for x, _ in series.points}):
            shapes.append(_text(self._x(x), HEIGHT - BOTTOM + 22, f"{x:g}", "soft", "middle"))
        middle = (LEFT + WIDTH - RIGHT) / 2
        shapes.append(_text(middle, HEIGHT - 12, self.x_label, "soft", "middle"))
        shapes.append(_text(24, TOP - 20, self.y_label, "soft"))
        return shapes

    def _lines(self) -> list[str]:
        shapes = []
        label_places = _apart([self._y(series.points[-1][1]) for series in self.series])
        for index, series in enumerate(self.series):
            places = [(self._x(x), self._y(y)) for x, y in series.points]
            path = " ".join(f"{x},{y}" for x, y in places)
            shapes.append(f'<polyline class="line c{index}" points="{path}"/>')
            shapes += [f'<circle class="d{index}" cx="{x}" cy="{y}" r="4.5"/>' for x, y in places]
            x, y = places[-1][0] + 14, label_places[index]
            number = f"{series.points[-1][1]:.1f}{self.unit}"
            shapes.append(_text(x, y - 2, series.label, f"d{index}"))
            shapes.append(_text(x, y + 15, number, f"d{index}"))
        return shapes

    @property
    def _y_max(self) -> float:
        return max(y for series in self.series for _, y in series.points) * 1.05

    def _x(self, x: float) -> float:
        x_max = max(x for series in self.series for x, _ in series.points)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * x / x_max, 1)

    def _y(self, y: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / self._y_max, 1)


def _apart(places: Sequence[float]) -> list[float]:
    """The places, each moved down from the one above as far as its label needs; all of them back
    up when the last would leave the plot."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    found, lowest = dict.fromkeys(order, 0.0), HEIGHT - BOTTOM - 10.0
    last = float("-inf")
    for index in order:
        found[index] = last = max(places[index], last + LABEL_HEIGHT)
    limit = lowest
    for index in reversed(order):
        found[index] = min(found[index], limit)
        limit = found[index] - LABEL_HEIGHT
    return [round(found[index], 1) for index in range(len(places))]


def _ticks(maximum: float, about: int = 5) -> Sequence[float]:
    """Multiples of 1, 2 or 5 times a power of ten, from 0 up to `maximum`."""
    rough = maximum / about
    power = 10 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    ticks = (round(index * step, 10) for index in range(ceil(maximum / step) + 1))
    return [tick for tick in ticks if tick <= maximum]


def _text(x: float, y: float, text: str, style: str, anchor: str = "start") -> str:
    place = f'x="{x}" y="{y}" text-anchor="{anchor}"'
    return f'<text class="text {style}" {place}>{escape(text)}</text>'
