"""Plots as inline SVG: axes, lines, dots with whiskers, bars. No script, no network, readable in light and dark.

A mark is drawn in a box of `WIDTH` x `HEIGHT`, or of a size of its own; colours come from the classes `c0` .. `c6` of
the page's style sheet, or from others that a page brings along. The reports of several rooms are drawn with it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from store.visible_text import html_text

WIDTH, HEIGHT = 470, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 22, 12, 44

STYLE = (
    "svg{width:100%;height:auto;max-width:34rem;display:block}svg.wide{max-width:none}"
    "svg text{font:11px system-ui,sans-serif;fill:var(--dim)}"
    ".grid{stroke:var(--line);stroke-width:1}.frame{stroke:var(--dim);stroke-width:1;fill:none}"
    ".c0{stroke:var(--c0);fill:var(--c0)}.c1{stroke:var(--c1);fill:var(--c1)}.c2{stroke:var(--c2);fill:var(--c2)}"
    ".c3{stroke:var(--c3);fill:var(--c3)}.c4{stroke:var(--c4);fill:var(--c4)}"
    ".c5{stroke:var(--c5);fill:var(--c5)}.c6{stroke:var(--c6);fill:var(--c6)}"
    "polyline{fill:none!important;stroke-width:2;stroke-linejoin:round}polyline.c0{stroke-width:3}"
    "polyline.dash{stroke-dasharray:5 4;stroke-width:1.5}rect{stroke:none}.whisker{stroke-width:1.5}"
)

# Of a plot that no page's style sheet colours: light alone.
_COLOURS = (
    "svg{background:#fff;--dim:#59636e;--line:#e3e6ea;--c0:#d6403b;--c1:#2f6fb5;--c2:#c98500;--c3:#2e8b57;--c4:#9aa4af;"
    "--c5:#7b52b9;--c6:#178a94}"
)

Point = tuple[float, float]


def standalone(drawn: str) -> str:
    """A plot as a file of its own."""
    head, rest = drawn.split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>{_COLOURS}{STYLE}</style>{rest}\n'


@dataclass(frozen=True, slots=True)
class Axis:
    """One side of a plot: what is on it, from where to where, in even or in tenfold steps."""

    title: str
    low: float
    high: float
    log: bool = False
    write: Callable[[float], str] = "{:g}".format

    def place(self, value: float) -> float:
        """Where a value stands, 0 to 1; what lies outside is put on the edge."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = (math.log10(max(one, 1e-12)) for one in (low, high, value))
        return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.5

    def ticks(self) -> list[float]:
        """Round values along the axis."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            steps = (1, 2, 5) if last - first <= 3 else (1,)
            return [s * 10.0**e for e in range(first, last + 1) for s in steps if self._holds(s * 10.0**e)]
        wide = (self.high - self.low) / 5 or 1.0
        size = 10.0 ** math.floor(math.log10(wide))
        step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= wide * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, first + 12) if self._holds(i * step)]

    def _holds(self, value: float) -> bool:
        slack = 1e-9 * (abs(self.low) + abs(self.high))
        return self.low - slack <= value <= self.high + slack


@dataclass(frozen=True, slots=True)
class Plot:
    """Two axes; its methods give marks, `drawn` puts them together. `left` = room for what is written beside it."""

    across: Axis
    up: Axis
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT

    def _x(self, value: float) -> float:
        return self.left + self.across.place(value) * (self.width - self.left - RIGHT)

    def _y(self, value: float) -> float:
        return self.height - BOTTOM - self.up.place(value) * (self.height - TOP - BOTTOM)

    def line(self, points: Iterable[Point], colour: str) -> str:
        """A line through points."""
        path = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in points)
        return f'<polyline class="{colour}" points="{path}"/>'

    def dot(self, point: Point, colour: str, title: str = "") -> str:
        """A dot that says something when pointed at."""
        x, y = self._x(point[0]), self._y(point[1])
        return f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{html_text(title)}</title></circle>'

    def whisker(self, x: float, interval: Sequence[float] | None, colour: str) -> str:
        """How sure a value is."""
        if interval is None:
            return ""
        at, low, high = self._x(x), self._y(interval[0]), self._y(interval[1])
        return (
            f'<line class="{colour} whisker" x1="{at:.1f}" x2="{at:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
            f'<line class="{colour} whisker" x1="{at - 4:.1f}" x2="{at + 4:.1f}" y1="{low:.1f}" y2="{low:.1f}"/>'
            f'<line class="{colour} whisker" x1="{at - 4:.1f}" x2="{at + 4:.1f}" y1="{high:.1f}" y2="{high:.1f}"/>'
        )

    def box(self, across: Point, up: Point, colour: str, title: str = "") -> str:
        """A filled rectangle between two values of each axis."""
        left, right = self._x(across[0]), self._x(across[1])
        low, high = self._y(up[0]), self._y(up[1])
        return (
            f'<rect class="{colour}" x="{left:.1f}" y="{high:.1f}" width="{max(right - left, 0.5):.1f}" '
            f'height="{max(low - high, 0.0):.1f}"><title>{html_text(title)}</title></rect>'
        )

    def note(self, point: Point, text: str, anchor: str = "middle", shift: Point = (0.0, 7.0)) -> str:
        """A few words at a point; `shift` is in pixels, rightwards and upwards."""
        x, y = self._x(point[0]) + shift[0], self._y(point[1]) - shift[1]
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html_text(text)}</text>'

    def drawn(self, label: str, marks: Iterable[str]) -> str:
        """The whole plot; `label` is what a screen reader says."""
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}"{self._wide()} role="img" aria-label="{html_text(label)}">'
            f"{self._frame()}{''.join(marks)}</svg>"
        )

    def _wide(self) -> str:
        return "" if self.width == WIDTH else ' class="wide"'

    def _frame(self) -> str:
        bottom, right = self.height - BOTTOM, self.width - RIGHT
        parts = []
        for value in self.across.ticks():
            x, text = self._x(value), html_text(self.across.write(value))
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{text}</text>')
        for value in self.up.ticks():
            y, text = self._y(value), html_text(self.up.write(value))
            parts.append(f'<line class="grid" x1="{self.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{self.left - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
        middle = (TOP + bottom) / 2
        parts.append(f'<path class="frame" d="M{self.left} {TOP}V{bottom}H{right}"/>')
        parts.append(
            f'<text x="{(self.left + right) / 2}" y="{self.height - 8}" text-anchor="middle">'
            f"{html_text(self.across.title)}</text>"
            f'<text transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">'
            f"{html_text(self.up.title)}</text>"
        )
        return "".join(parts)


def legend(names: Sequence[tuple[str, str]]) -> str:
    """Names beside their colours, as (name, class)."""
    parts = [
        f'<span><svg class="key" viewBox="0 0 22 8"><polyline class="{colour}" points="1,4 21,4"/></svg>'
        f"{html_text(name)}</span>"
        for name, colour in names
    ]
    return f'<p class="legend">{"".join(parts)}</p>'
