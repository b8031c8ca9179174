"""Line charts as inline SVG: axes, units, and the values under the pointer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from outlive.cli.show.style import text

MAX_POINTS = 600  # about one for two pixels; more are joined, and the chart says how many
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 10, 34

STYLE = """
figure { margin: 0; }
figcaption { font-weight: 600; margin-bottom: 6px; display: flex; flex-wrap: wrap; gap: 4px 16px; }
figcaption .soft { font-weight: 400; font-size: 13px; line-height: 1.8; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--soft); font: 12px system-ui, "Segoe UI", sans-serif; font-variant-numeric: tabular-nums; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .rule { stroke: var(--soft); stroke-dasharray: 2 4; opacity: .6; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
svg .faint { opacity: .28; stroke-width: 1.2; }
svg .one { stroke: var(--one); } svg circle.one { fill: var(--one); }
svg .two { stroke: var(--two); } svg circle.two { fill: var(--two); }
svg .bad { stroke: var(--bad); stroke-width: 2; } svg .cursor { stroke: var(--soft); visibility: hidden; }
.key::before { content: ''; display: inline-block; width: 14px; height: 3px; border-radius: 2px; margin-right: 6px;
  vertical-align: 3px; background: var(--one); }
.key.two::before { background: var(--two); } .key.pale::before { opacity: .35; }
"""
SCRIPT = """
const short = v => v === null ? 'not finite' : Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3)
  ? v.toExponential(3) : String(+v.toPrecision(5));
document.querySelectorAll('svg[data-chart]').forEach(svg => {
  const chart = JSON.parse(svg.dataset.chart), cursor = svg.querySelector('.cursor');
  svg.addEventListener('mouseleave', event => { cursor.style.visibility = 'hidden'; tip(event, ''); });
  svg.addEventListener('mousemove', event => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * chart.width;
    const wanted = chart.low + (at - chart.left) / (chart.right - chart.left) * (chart.high - chart.low);
    let step = null;
    for (const series of chart.series) for (const x of series.x)
      if (step === null || Math.abs(x - wanted) < Math.abs(step - wanted)) step = x;
    if (step === null) return;
    const place = chart.left + (step - chart.low) / ((chart.high - chart.low) || 1) * (chart.right - chart.left);
    cursor.setAttribute('x1', place); cursor.setAttribute('x2', place); cursor.style.visibility = 'visible';
    const here = chart.series.filter(series => series.x.includes(step));
    const lines = here.map(series => series.name + '  ' + short(series.y[series.x.indexOf(step)]) + chart.unit);
    tip(event, ['step ' + step, ...lines].join('\\n'));
  });
});
"""


class Series(NamedTuple):
    """One line: x ascending, y of the same length, where NaN is a gap. `colour`: 'one' or 'two'.

    `bad`: the x of values that are not finite, or of steps that went wrong, each shown, also where points were joined.
    """

    name: str
    x: list[int]
    y: list[float]
    colour: str = "one"
    form: Literal["line", "faint", "points"] = "line"
    bad: tuple[int, ...] = ()


class Rule(NamedTuple):
    """A dashed line across the chart at `x`, with a word beside it."""

    x: int
    name: str


@dataclass(frozen=True)
class Frame:
    """Where values fall in the picture."""

    width: int
    height: int
    low: float
    high: float
    bottom: float
    top: float

    def x(self, value: float) -> float:
        """Pixels from the left."""
        share = (value - self.low) / ((self.high - self.low) or 1)
        return round(LEFT + share * (self.width - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        share = (value - self.bottom) / ((self.top - self.bottom) or 1)
        return round(self.height - BOTTOM - share * (self.height - TOP - BOTTOM), 1)


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    unit: str = "",
    size: tuple[int, int] = (1000, 320),
    from_zero: bool = False,
    rules: Sequence[Rule] = (),
    note: str = "",
) -> str:
    """A figure over steps. Series without a finite value are left out; without any, the figure says so."""
    series = [line for line in series if any(map(math.isfinite, line.y))]
    caption = f"<span>{text(title)}</span>{_keys(series)}" + (f'<span class="soft">{text(note)}</span>' if note else "")
    if not series:
        return f'<figure class="panel"><figcaption>{caption}</figcaption><p class="soft">no values</p></figure>'
    frame = _frame(series, size, from_zero)
    marks = [*_grid(frame, unit), *(_rule(frame, rule) for rule in rules)]
    for line in series:
        marks += _points(frame, line) if line.form == "points" else []
        marks.append(_path(frame, line))
        marks += _gaps(frame, line)
    marks.append(f'<line class="cursor" y1="{TOP}" y2="{size[1] - BOTTOM}"/>')
    label = f'role="img" aria-label="{text(title)} over steps"'
    svg = f'<svg viewBox="0 0 {size[0]} {size[1]}" {label} data-chart="{text(_data(frame, series, unit))}">'
    return f'<figure class="panel"><figcaption>{caption}</figcaption>{svg}{"".join(marks)}</svg></figure>'


def joined(
    x: Sequence[int], y: Sequence[float], how: Callable[[Sequence[float]], float]
) -> tuple[list[int], list[float]]:
    """At most MAX_POINTS points: of each few neighbours, the last x and `how` of the finite y."""
    size = -(-len(x) // MAX_POINTS) or 1
    if size == 1:
        return list(x), list(y)
    cuts = [slice(begin, begin + size) for begin in range(0, len(x), size)]
    values = [[value for value in y[cut] if math.isfinite(value)] for cut in cuts]
    return [x[cut][-1] for cut in cuts], [how(v) if v else math.nan for v in values]


def smooth(y: Sequence[float], window: int) -> list[float]:
    """The mean of the finite values up to `window` // 2 places away, so that the curve lags nothing; gaps stay."""
    half, means = window // 2, []
    for place, value in enumerate(y):
        near = [other for other in y[max(0, place - half) : place + half + 1] if math.isfinite(other)]
        means.append(sum(near) / len(near) if math.isfinite(value) else math.nan)
    return means


def ticks(low: float, high: float, number: int) -> list[float]:
    """Round values (1, 2 or 5 times a power of ten apart), about `number` of them, between low and high."""
    span = (high - low) or abs(high) or 1.0
    power = 10 ** math.floor(math.log10(span / number))
    step = next(factor * power for factor in (1, 2, 5, 10) if span / (factor * power) <= number)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [place * step for place in range(first, last + 1)]


def short(value: float) -> str:
    """A tick's value: 12,000 is 12k; 0.0001 is 1e-4."""
    size = abs(value)
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= limit * 0.9999:
            return f"{value / limit:.4g}{letter}"
    if size >= 1e-3 or value == 0:
        return f"{value:.4g}"
    digits, exponent = f"{value:.3e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"


def _frame(series: Sequence[Series], size: tuple[int, int], from_zero: bool) -> Frame:
    x = [value for line in series for value in line.x]
    y = [value for line in series for value in line.y if math.isfinite(value)]
    bottom, top = min(y), max(y)
    pad = (top - bottom) * 0.06 or abs(top) * 0.1 or 1.0
    bottom = 0.0 if from_zero and bottom >= 0 else max(0.0, bottom - pad) if bottom >= 0 else bottom - pad
    low, high = min(x), max(x)
    return Frame(*size, low, high if high > low else low + 1, bottom, top + pad)


def _grid(frame: Frame, unit: str) -> Iterator[str]:
    right, floor = frame.width - RIGHT, frame.height - BOTTOM
    for value in ticks(frame.bottom, frame.top, frame.height // 45):
        y = frame.y(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{short(value)}{text(unit)}</text>'
    whole = [value for value in ticks(frame.low, frame.high, max(2, frame.width // 110)) if value == int(value)]
    for value in whole:
        yield f'<text x="{frame.x(value)}" y="{floor + 18}" text-anchor="middle">{short(value)}</text>'
    yield f'<text x="{right}" y="{floor + 32}" text-anchor="end">step</text>'


def _rule(frame: Frame, rule: Rule) -> str:
    x = frame.x(rule.x)
    line = f'<line class="rule" x1="{x}" x2="{x}" y1="{TOP}" y2="{frame.height - BOTTOM}"/>'
    return line + f'<text x="{x + 4}" y="{TOP + 10}">{text(rule.name)}</text>'


def _path(frame: Frame, line: Series) -> str:
    commands, drawing = [], False
    for x, y in zip(line.x, line.y, strict=True):
        if math.isfinite(y):
            commands.append(f"{'L' if drawing else 'M'}{frame.x(x)} {frame.y(y)}")
        drawing = math.isfinite(y)
    if len(line.x) == 1 and line.form != "points":
        return f'<circle class="{line.colour}" cx="{frame.x(line.x[0])}" cy="{frame.y(line.y[0])}" r="3.5"/>'
    kind = f"line {line.colour}" + (" faint" if line.form == "faint" else "")
    return f'<path class="{kind}" d="{"".join(commands)}"/>'


def _points(frame: Frame, line: Series) -> list[str]:
    return [
        f'<circle class="{line.colour}" cx="{frame.x(x)}" cy="{frame.y(y)}" r="3.5"/>'
        for x, y in zip(line.x, line.y, strict=True)
        if math.isfinite(y)
    ]


def _gaps(frame: Frame, line: Series) -> Iterator[str]:
    """A red stroke on the axis wherever a value is bad."""
    floor = frame.height - BOTTOM
    for step in line.bad:
        x = frame.x(min(max(step, frame.low), frame.high))
        yield f'<line class="bad" x1="{x}" x2="{x}" y1="{floor - 8}" y2="{floor}"/>'


def _keys(series: Sequence[Series]) -> str:
    if len(series) < 2:
        return ""
    pale = {"faint": " pale"}
    return "".join(f'<span class="soft key {s.colour}{pale.get(s.form, "")}">{text(s.name)}</span>' for s in series)


def _data(frame: Frame, series: Sequence[Series], unit: str) -> str:
    lines = [
        {"name": line.name, "x": line.x, "y": [float(f"{y:.6g}") if math.isfinite(y) else None for y in line.y]}
        for line in series
    ]
    place = {"width": frame.width, "left": LEFT, "right": frame.width - RIGHT, "low": frame.low, "high": frame.high}
    return json.dumps({**place, "unit": unit, "series": lines}, separators=(",", ":"))
