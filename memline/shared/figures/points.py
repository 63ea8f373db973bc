"""Keep the figures of a home over an hour, a day and a month, so that charts survive restarts.

A point says how things stood at the end of its period (gauges) and what happened in it (sums). Three rows are
written at a time, one of each span, in the account file: 3,120 at most, whatever runs. One process of a home
writes them, while its turn lasts; a period in which none did has no row, and a chart a gap.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from memline.shared.index.accounts import AccountFile
from memline.shared.values import field, value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Seconds between two points.
EVERY_S = 15

#: Seconds that a writer has its turn after each point, and for which a sum goes on from the point before.
TURN_S = 45.0

#: Points of a chart; those of a longer span are joined.
COLUMNS = 240

#: What stands between the name of a series and its labels.
LABEL = "\t"


@value
class Span:
    """How far back a chart goes: so many points, each of so many seconds."""

    every_s: int
    count: int

    @property
    def column_s(self) -> int:
        """Seconds of a column of its charts."""
        return self.every_s * self.count // COLUMNS


SPANS = {"hour": Span(every_s=15, count=240), "day": Span(every_s=60, count=1_440)}
SPANS["month"] = Span(every_s=1_800, count=1_440)


@value
class Point:
    """The figures of a period; a key is the name of a series and its labels, with LABEL between them.

    A sum or a gauge of an agent that is not there is zero; any other gauge that is not there was not known.
    """

    #: Seconds that the sums are of.
    seconds: float = 0.0
    #: As it stood at the end, and the largest value in the period where that is another.
    last: Mapping[str, float] = field(default_factory=dict)
    most: Mapping[str, float] = field(default_factory=dict)
    sums: Mapping[str, float] = field(default_factory=dict)

    def joined(self, later: Point) -> Point:
        """Join this point and a later one of the same period."""
        names = {*self.last, *later.last}
        most = {name: max(self.largest(name), later.largest(name)) for name in names}
        last = dict(later.last)
        return Point(
            seconds=self.seconds + later.seconds,
            last=last,
            most={name: each for name, each in most.items() if each > last.get(name, 0.0)},
            sums={
                name: self.sums.get(name, 0) + later.sums.get(name, 0) for name in {*self.sums, *later.sums}
            },
        )

    def largest(self, name: str) -> float:
        """Return the largest value of a gauge in the period."""
        return max(self.most.get(name, 0.0), self.last.get(name, 0.0))


@value
class Turn:
    """What a writer knows when it is its turn."""

    #: When the last point was written, and the totals then; 0 before the first.
    at: float
    totals: Mapping[str, float]


def take_turn(
    file: AccountFile, owner: str, now: float, *, is_alive: Callable[[str], bool] = lambda _: True
) -> Turn | None:
    """Take or keep the turn to write points; None while another process has it. Raises IndexFaults.

    `is_alive`: whether the process of an owner is known to be there.
    """
    with file.writing() as connection:
        row = connection.execute("SELECT owner, until, at, totals FROM sampler").fetchone()
        # A time far ahead is that of a clock that was set back.
        if row and row[0] != owner and now < row[1] <= now + 2 * TURN_S and is_alive(row[0]):
            return None
        connection.execute(
            "INSERT INTO sampler VALUES (1, ?, ?, 0, '{}')"
            " ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, until = excluded.until",
            (owner, now + TURN_S),
        )
    return Turn(at=row[2], totals=json.loads(row[3])) if row else Turn(at=0.0, totals={})


def end_turn(file: AccountFile, owner: str) -> None:
    """Let another process have the turn at once. Raises IndexFaults."""
    with file.writing() as connection:
        connection.execute("UPDATE sampler SET until = 0 WHERE owner = ?", (owner,))


def since(turn: Turn, totals: Mapping[str, float], now: float) -> Point:
    """Return the sums since the last point: none after a time without a writer.

    A total that fell was begun anew.
    """
    if not 0 < now - turn.at <= TURN_S:
        return Point()
    sums = {
        name: total - before if total >= (before := turn.totals.get(name, 0.0)) else total
        for name, total in totals.items()
    }
    return Point(seconds=now - turn.at, sums={name: count for name, count in sums.items() if count})


def write(file: AccountFile, point: Point, totals: Mapping[str, float], now: float) -> None:
    """Write a point of each span, and the totals from which the next one goes on. Raises IndexFaults."""
    with file.writing() as connection:
        for span in SPANS.values():
            period = int(now // span.every_s)
            known = _read(connection, span, period, period)
            joined = known[period].joined(point) if known else point
            values = (span.every_s, period, _to_text(joined))
            connection.execute("INSERT OR REPLACE INTO points VALUES (?, ?, ?)", values)
            # What lies ahead is of a clock that was set back.
            outside = "DELETE FROM points WHERE every_s = ? AND (period <= ? OR period > ?)"
            connection.execute(outside, (span.every_s, period - span.count, period))
        connection.execute("UPDATE sampler SET at = ?, totals = ?", (now, json.dumps(totals)))


def read(file: AccountFile, span: Span, now: float) -> list[Point | None]:
    """Return the points of a chart up to now, oldest first: COLUMNS of them, None for a gap."""
    last = int(now // span.column_s)
    first = last - COLUMNS + 1
    each_s = span.column_s // span.every_s
    found: dict[int, Point] = {}
    with file.reading() as connection:
        known = (
            _read(connection, span, first * each_s, (last + 1) * each_s - 1) if connection is not None else {}
        )
    for period, point in sorted(known.items()):
        column = period // each_s
        found[column] = found[column].joined(point) if column in found else point
    return [found.get(column) for column in range(first, last + 1)]


def _read(connection: Connection, span: Span, first: int, last: int) -> dict[int, Point]:
    query = "SELECT period, data FROM points WHERE every_s = ? AND period BETWEEN ? AND ?"
    return {
        period: Point(**json.loads(data))
        for period, data in connection.execute(query, (span.every_s, first, last))
    }


def _to_text(point: Point) -> str:
    fields = {name: getattr(point, name) for name in ("seconds", "last", "most", "sums")}
    return json.dumps({name: each for name, each in fields.items() if each}, separators=(",", ":"))
