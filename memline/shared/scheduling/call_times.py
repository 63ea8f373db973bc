"""Count how calls of a provider account end and how long they take, and say the latency of a day.

A call falls into a bucket of a logarithmic scale, a fifth wide each, so that a percentile is a tenth off at
most and a day of an account is some hundred rows, whatever it sends. They are beside what else all processes
of a home know of an account (`shared.index.accounts`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memline.shared.digests import shake_256
from memline.shared.embedders.protocol import OK, Attempt
from memline.shared.figures import counters
from memline.shared.index.accounts import AccountFile, note_settled

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Hours that are kept, and reported together.
KEPT_HOURS = 24

#: A bucket ends at this power of its number, in ms.
_BASE = 1.2

#: Longest call that is told from longer ones: an hour.
_MAX_MS = 3_600_000


def ended(attempts: Sequence[Attempt]) -> tuple[tuple[str, int], ...]:
    """Return what `record` takes of attempts."""
    return tuple((each.end, round(1000 * each.took_s)) for each in attempts)


def record(
    file: AccountFile, account: str, calls: Iterable[tuple[str, int]], now: float, *, of: str = ""
) -> None:
    """Count attempts of calls of an account: how each ended, and its ms. One transaction, none without.

    `of`: the request whose calls they are; the same ones of it count once, whatever message comes twice.
    """
    calls = tuple(calls)
    hour = int(now // 3_600)
    counts = Counter((kind, _bucket(took_ms)) for kind, took_ms in calls)
    if not counts:
        return
    with file.writing() as connection:
        if of and not note_settled(connection, f"{of} {shake_256(repr(calls).encode(), 8).hex()}"):
            return
        connection.executemany(
            "INSERT INTO calls VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (account, hour, kind, bucket) DO UPDATE SET count = count + excluded.count",
            ((account, hour, *key, count) for key, count in counts.items()),
        )
        _count(connection, account.partition(":")[0], counts)
        connection.execute("DELETE FROM calls WHERE hour <= ? OR hour > ?", (hour - KEPT_HOURS, hour + 1))


def _count(connection: Connection, provider: str, counts: Mapping[tuple[str, int], int]) -> None:
    """Count the same calls for the metrics, where they stay."""
    for (kind, _), count in counts.items():
        counters.write(connection, [(counters.ASKED, {"provider": provider, "kind": kind}, count)])


def of_account(file: AccountFile, account: str, now: float) -> dict[str, Any]:
    """Report the calls of an account in the last day: how many, errors by kind, p50 and p95 (ms, or None)."""
    query = "SELECT kind, bucket, sum(count) FROM calls WHERE account = ? AND hour >= ? GROUP BY kind, bucket"
    rows = _rows(file, query, account, _first_hour(now))
    errors: Counter[str] = Counter()
    for kind, _, count in rows:
        errors[kind] += count if kind != OK else 0
    answered = sorted((bucket, count) for kind, bucket, count in rows if kind == OK)
    return {
        "calls": sum(count for _, _, count in rows),
        "errors": {kind: count for kind, count in sorted(errors.items()) if count},
        "p50Ms": _percentile(answered, 0.50),
        "p95Ms": _percentile(answered, 0.95),
    }


def _rows(file: AccountFile, query: str, *values: object) -> list[Any]:
    """Return rows of `calls`; none where the file, or the table of a later release, is not there."""
    known = "SELECT 1 FROM sqlite_master WHERE name = 'calls'"
    with file.reading() as connection:
        if connection is None or connection.execute(known).fetchone() is None:
            return []
        return connection.execute(query, values).fetchall()


def _first_hour(now: float) -> int:
    return int(now // 3_600) - KEPT_HOURS + 1


def _bucket(took_ms: int) -> int:
    return round(math.log(min(max(took_ms, 1), _MAX_MS), _BASE))


def _percentile(answered: list[tuple[int, int]], part: float) -> int | None:
    """Return the ms within which this part of the calls ended; `answered`: (bucket, count), in order."""
    left = part * sum(count for _, count in answered)
    for bucket, count in answered:
        left -= count
        if left <= 0:
            return round(_BASE**bucket)
    return None
