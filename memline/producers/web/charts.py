"""Draw charts as pictures that need no script: a line for each series or a bar for each day, axes, a limit.

A script reads the value under the pointer from `Chart.data`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from memline.shared.values import value

#: Size of a chart in its own units, and of what lies outside its axes.
WIDTH, HEIGHT = 480, 150
LEFT, RIGHT, TOP, BOTTOM = 58, 6, 8, 18

#: Size of the small line of a table.
SPARK_WIDTH, SPARK_HEIGHT = 240, 48

#: Seconds between two marks of the axis of time for a chart of so many seconds, and how they are written.
_MARKS = ((7_200, 900, "%H:%M"), (172_800, 14_400, "%H:%M"), (3_456_000, 432_000, "%d %b"))

#: What a value of each point is, oldest first; None where it is not known.
Values = Sequence[float | None]


@value
class Line:
    """A series of a chart."""

    name: str
    #: One text of `x,y x,y …` for each run of values without a gap.
    runs: tuple[str, ...]
    #: Its last value in words.
    last: str


@value
class Bar:
    """A rectangle of a chart; `line` is the number of its series."""

    x: float
    y: float
    width: float
    height: float
    line: int


@value
class Chart:
    """A chart as the template draws it."""

    label: str
    lines: tuple[Line, ...]
    #: Place and words of the marks of both axes.
    rows: tuple[tuple[float, str], ...]
    columns: tuple[tuple[float, str], ...]
    #: All values in words, with their times, as JSON.
    data: str
    bars: tuple[Bar, ...] = ()
    #: Place and words of a line that the values must not pass.
    limit: tuple[float, str] | None = None
    #: The largest value in words.
    top: str = ""

    @property
    def words(self) -> str:
        """Say the picture in words, for who cannot see it."""
        last = ", ".join(f"{line.name} {line.last}".strip() for line in self.lines)
        return f"{self.label}: now {last or 'nothing'}, at most {self.top}"


def draw(
    label: str,
    series: Mapping[str, Values],
    words: Callable[[float], str],
    *,
    begin_s: float,
    step_s: float,
    least: float = 0.0,
    limit: float | None = None,
    is_stacked: bool = False,
) -> Chart:
    """Draw series of equal length; `begin_s` is the time of their first point, `step_s` between two.

    Zero is at the bottom. The axis ends at a round number above the largest value and `least`: small values
    must not look like large ones. The value in words may be one point old. `is_stacked`: bars, one series
    upon the other.
    """
    count = max((len(values) for values in series.values()), default=0)
    known = [each for values in series.values() for each in values if each is not None]
    if is_stacked:
        known = [sum(values[place] or 0.0 for values in series.values()) for place in range(count)]
    top = max(known, default=0.0)
    scale = _round_up(max(top, least, limit or 0.0) or 1.0)
    width = WIDTH - LEFT - RIGHT

    def y_of(number: float) -> float:
        return round(HEIGHT - BOTTOM - number / scale * (HEIGHT - BOTTOM - TOP), 1)

    def x_of(place: float) -> float:
        return round(LEFT + place * width / max(1, count if is_stacked else count - 1), 1)

    lines = tuple(
        Line(
            name=name,
            runs=() if is_stacked else _runs(values, x_of, y_of),
            last=_shown(next((each for each in values[:-3:-1] if each is not None), None), words),
        )
        for name, values in series.items()
    )
    bars: list[Bar] = []
    for place in range(count) if is_stacked else ():
        below = 0.0
        for line, values in enumerate(series.values()):
            part = values[place] or 0.0
            high = y_of(below + part)
            bars.append(
                Bar(
                    x=x_of(place + 0.15),
                    y=high,
                    width=round(width / count * 0.7, 1),
                    height=round(y_of(below) - high, 1),
                    line=line,
                )
            )
            below += part
    return Chart(
        label=label,
        lines=lines,
        rows=tuple((y_of(scale * part), words(scale * part)) for part in (0.0, 0.5, 1.0)),
        columns=tuple((x_of((at - begin_s) / step_s), text) for at, text in _times(begin_s, step_s, count)),
        data=json.dumps(_data(series, words, begin_s, step_s), separators=(",", ":"), ensure_ascii=False),
        bars=tuple(bar for bar in bars if bar.height),
        limit=None if not limit else (y_of(limit), words(limit)),
        top=words(top),
    )


def spark(values: Values) -> tuple[str, ...]:
    """Draw a small line without axes, as `runs` of a `Line` of SPARK_WIDTH by SPARK_HEIGHT."""
    scale = max((each for each in values if each is not None), default=0.0) or 1.0
    step = SPARK_WIDTH / max(1, len(values) - 1)
    return _runs(values, lambda x: x * step, lambda y: SPARK_HEIGHT - 1 - y / scale * (SPARK_HEIGHT - 2))


def _runs(values: Values, x_of: Callable[[float], float], y_of: Callable[[float], float]) -> tuple[str, ...]:
    """Return the runs of values without a gap; a single point is drawn as a short line."""
    runs: list[list[tuple[float, float]]] = [[]]
    for place, each in enumerate(values):
        if each is None:
            runs.append([])
        else:
            runs[-1].append((place, each))
    drawn = [[*run, (run[0][0] + 0.5, run[0][1])] if len(run) == 1 else run for run in runs if run]
    return tuple(" ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in run) for run in drawn)


def _data(
    series: Mapping[str, Values], words: Callable[[float], str], begin_s: float, step_s: float
) -> dict[str, Any]:
    shown = {
        name: [None if each is None else words(each) for each in values] for name, values in series.items()
    }
    return {"begin": begin_s, "step": step_s, "series": shown}


def _shown(number: float | None, words: Callable[[float], str]) -> str:
    return "–" if number is None else words(number)


def _round_up(number: float) -> float:
    """Return the next number above whose half is short as well: 1, 2, 4, 6, 8, 10 times a power of ten."""
    power = 10.0 ** (len(f"{int(number)}") - 1) if number >= 1 else 1.0
    while power > number:
        power /= 10
    return next(each * power for each in (1, 2, 4, 6, 8, 10) if each * power >= number * 0.999999)


def _times(begin_s: float, step_s: float, count: int) -> list[tuple[float, str]]:
    """Return the marks of the axis of time: when, and how it is written (UTC)."""
    end_s = begin_s + step_s * max(0, count - 1)
    every_s, form = next(
        ((every_s, form) for most_s, every_s, form in _MARKS if end_s - begin_s <= most_s), (432_000, "%d %b")
    )
    first = int(begin_s // every_s + 1) * every_s
    return [
        (at, datetime.fromtimestamp(at, UTC).strftime(form)) for at in range(first, int(end_s) + 1, every_s)
    ]
