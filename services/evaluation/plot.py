"""Lines over k as an SVG that reads well on light and dark pages, with a list of what they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, TOP, LEFT, BOTTOM, PLOT_HEIGHT = 860, 84, 64, 52, 320
PLOT_WIDTH = 480
_ENTRY_HEIGHT = 20
_COLOURS = (
    ("#1d2430", "#e8ecf1"),
    ("#0b7a75", "#3fc9c1"),
    ("#c2571a", "#ff9a5c"),
    ("#3d5fc4", "#8aa8ff"),
    ("#9b2f6b", "#f08cc0"),
    ("#6a7a12", "#c3d44e"),
    ("#7a4fb5", "#c6a3ff"),
    ("#b03030", "#ff8a8a"),
)
"""On a light and on a dark page."""
_DASHES = ("none", "7 4", "2 3")


@dataclass(frozen=True, slots=True)
class Line:
    """points: (x, y) in order of x."""

    label: str
    points: tuple[tuple[float, float], ...]


def line_plot(title: str, subtitle: str, x_label: str, lines: Sequence[Line]) -> str:
    scale = _Scale.of(lines)
    height = max(TOP + PLOT_HEIGHT + BOTTOM, TOP + _ENTRY_HEIGHT * len(lines) + 20)
    described = "; ".join(
        f"{line.label}: " + ", ".join(f"{y:.3f} at {x:g}" for x, y in line.points) for line in lines
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(described)}</desc>",
        f"<style>{_style()}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
        _text(24, 34, title, "title"),
        _text(24, 56, subtitle, "soft"),
        *scale.axes(lines, x_label),
    ]
    for index, line in enumerate(lines):
        parts += _drawn(line, index, scale)
    return "\n".join([*parts, "</svg>\n"])


@dataclass(frozen=True, slots=True)
class _Scale:
    x_max: float
    y_min: float
    y_max: float

    @classmethod
    def of(cls, lines: Sequence[Line]) -> _Scale:
        points = [point for line in lines for point in line.points]
        ys = [y for _, y in points]
        room = 0.08 * (max(ys) - min(ys)) or 0.05
        return cls(max(x for x, _ in points) or 1.0, min(ys) - room, max(ys) + room)

    def x(self, value: float) -> float:
        return round(LEFT + PLOT_WIDTH * value / self.x_max, 1)

    def y(self, value: float) -> float:
        share = (value - self.y_min) / (self.y_max - self.y_min)
        return round(TOP + PLOT_HEIGHT * (1 - share), 1)

    def axes(self, lines: Sequence[Line], x_label: str) -> list[str]:
        shapes = []
        for step in range(6):
            value = self.y_min + (self.y_max - self.y_min) * step / 5
            y = self.y(value)
            end = LEFT + PLOT_WIDTH
            shapes.append(f'<line class="grid" x1="{LEFT}" x2="{end}" y1="{y}" y2="{y}"/>')
            shapes.append(_text(LEFT - 8, y + 4, f"{value:.3f}", "soft", "end"))
        bottom = TOP + PLOT_HEIGHT
        for x in sorted({x for line in lines for x, _ in line.points}):
            shapes.append(_text(self.x(x), bottom + 20, f"{x:g}", "soft", "middle"))
        shapes.append(_text(LEFT + PLOT_WIDTH / 2, bottom + 40, x_label, "soft", "middle"))
        return shapes


def _drawn(line: Line, index: int, scale: _Scale) -> list[str]:
    places = [(scale.x(x), scale.y(y)) for x, y in line.points]
    path = " ".join(f"{x},{y}" for x, y in places)
    colour = index % len(_COLOURS)
    dash = _DASHES[index // len(_COLOURS) % len(_DASHES)]
    left, middle = LEFT + PLOT_WIDTH + 28, TOP + _ENTRY_HEIGHT * index
    style = f'class="line c{colour}" stroke-dasharray="{dash}"'
    return [
        f'<polyline {style} points="{path}"/>',
        *(f'<circle class="d{colour}" cx="{x}" cy="{y}" r="3.5"/>' for x, y in places),
        f'<line {style} x1="{left}" x2="{left + 26}" y1="{middle}" y2="{middle}"/>',
        _text(left + 34, middle + 4, line.label, ""),
    ]


def _style() -> str:
    def colours(page: int) -> str:
        return " ".join(
            f".c{i} {{ stroke: {pair[page]} }} .d{i} {{ fill: {pair[page]} }}"
            for i, pair in enumerate(_COLOURS)
        )

    font = '12px system-ui, -apple-system, "Segoe UI", sans-serif'
    return f"""
  .card {{ fill: #ffffff; stroke: #d7dbe0 }}
  .text {{ fill: #1d2430; font: {font} }} .soft {{ fill: #5f6b7a }}
  .title {{ font-size: 17px; font-weight: 600 }}
  .grid {{ stroke: #e6e9ed; stroke-width: 1 }} .line {{ fill: none; stroke-width: 2.2 }}
  {colours(0)}
  @media (prefers-color-scheme: dark) {{
    .card {{ fill: #14181f; stroke: #2b323c }} .text {{ fill: #e8ecf1 }}
    .soft {{ fill: #9aa6b4 }} .grid {{ stroke: #262d37 }}
    {colours(1)}
  }}
"""


def _text(x: float, y: float, text: str, style: str, anchor: str = "start") -> str:
    place = f'x="{x}" y="{y}" text-anchor="{anchor}"'
    return f'<text class="text {style}" {place}>{escape(text)}</text>'
