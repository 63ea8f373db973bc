"""Keep points for the charts of an hour and of a day, and draw them as lines of an SVG."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from memline.shared.values import value

#: Seconds between two points, and how many are kept: an hour and a day.
HOUR, DAY = (15, 240), (300, 288)

#: Width and height of a chart in its own units.
WIDTH, HEIGHT = 240, 48


@value
class Point:
    """What the charts show of one moment."""

    #: Vectors wanted or in flight.
    backlog: float
    #: Vectors a second.
    rate: float
    #: Age of the oldest message that waits, in seconds.
    oldest_s: float
    #: Answers 429 since the point before.
    limited: float

    def joined(self, other: Point) -> Point:
        """Join two points of one period: the largest values, and all 429s."""
        return Point(
            backlog=max(self.backlog, other.backlog),
            rate=max(self.rate, other.rate),
            oldest_s=max(self.oldest_s, other.oldest_s),
            limited=self.limited + other.limited,
        )


class Ring:
    """Points that are `every_s` seconds apart, the last `count` of them; a moment without one stays empty."""

    def __init__(self, every_s: int, count: int) -> None:
        self.every_s = every_s
        self.count = count
        #: (number of the period since the epoch, its point)
        self._points: deque[tuple[int, Point]] = deque(maxlen=count)

    def add(self, at: float, point: Point) -> None:
        """Add a point at `at`, seconds since the epoch; those of a period are joined."""
        period = int(at // self.every_s)
        if self._points and self._points[-1][0] == period:
            _, before = self._points.pop()
            point = before.joined(point)
        self._points.append((period, point))

    def values(self, now: float, name: str) -> list[float | None]:
        """Return `count` values of this field up to now, oldest first; None where nothing was seen."""
        last = int(now // self.every_s)
        known = {period: getattr(point, name) for period, point in self._points}
        return [known.get(period) for period in range(last - self.count + 1, last + 1)]


class Series:
    """The points of all charts: the last hour and the last day."""

    def __init__(self) -> None:
        self.hour = Ring(*HOUR)
        self.day = Ring(*DAY)

    def add(self, at: float, point: Point) -> None:
        self.hour.add(at, point)
        self.day.add(at, point)


@value
class Chart:
    """A line through values, as points of an SVG of WIDTH by HEIGHT."""

    #: One text of `x,y x,y …` for each run of values without a gap.
    lines: tuple[str, ...]
    top: float
    last: float | None
    width: int = WIDTH
    height: int = HEIGHT


def draw(values: Sequence[float | None], least: float = 0.0) -> Chart:
    """Draw values from left to right, zero at the bottom and the largest at the top.

    Where all are smaller than `least`, that is the top: small values must not look like large ones.
    """
    top = max((each for each in values if each is not None), default=0.0)
    scale = max(top, least) or 1.0
    step = WIDTH / max(1, len(values) - 1)
    runs: list[list[str]] = [[]]
    for number, each in enumerate(values):
        if each is None:
            runs.append([])
            continue
        y = HEIGHT - 1 - each / scale * (HEIGHT - 2)
        runs[-1].append(f"{number * step:.1f},{y:.1f}")
    # A single point is no line: it is drawn as a short one.
    lines = (
        " ".join(
            run
            if len(run) > 1
            else [*run, f"{float(run[0].split(',')[0]) + step:.1f},{run[0].split(',')[1]}"]
        )
        for run in runs
        if run
    )
    last = next((each for each in reversed(values) if each is not None), None)
    return Chart(lines=tuple(lines), top=top, last=last)
