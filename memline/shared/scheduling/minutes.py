"""Keep what an index embedded and what is pending, a row a minute for a day: the chart of the dashboard.

The dispatcher writes a row when one of them changed, so a minute without a row is like the one before.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from memline.shared.index import identities, meta, vectors
from memline.shared.index.accounts import AccountFile, Accounts

#: Minutes that are kept and drawn.
MINUTES = 24 * 60

_ROWS = "SELECT minute, embedded, pending FROM minutes WHERE path = ? ORDER BY minute"

# The last row that is older than a day is kept: it is what the day began with.
_PRUNE = """
DELETE FROM minutes WHERE minute < (
    SELECT max(minute) FROM minutes AS later WHERE later.path = minutes.path AND later.minute <= ?)
"""


def note(accounts: Accounts, path: str, now: float) -> None:
    """Keep the figures of the index at a path as those of this minute, unless they are as before."""
    target, minute = identities.target(accounts.index), int(now // 60)
    if target is None:
        return
    embedded = int(meta.get(accounts.index, meta.EMBEDDED_TOTAL, 0))
    figures = (embedded, vectors.backlog(accounts.index, target.id).in_progress)
    with accounts.file.reading() as connection:
        rows = connection.execute(_ROWS, (path,)).fetchall() if connection else []
    if rows and rows[-1][1:] == figures:
        return
    with accounts.file.writing() as connection:
        # What was embedded before the first row was not embedded in its minute.
        row = (path, minute if rows else minute - 1, *figures)
        connection.execute("INSERT OR REPLACE INTO minutes VALUES (?, ?, ?, ?)", row)
        connection.execute(_PRUNE, (minute - MINUTES,))


def last_day(file: AccountFile, paths: Iterable[str], now: float) -> tuple[list[int], list[int]]:
    """Return what indexes embedded in each of the last `MINUTES`, oldest first, and what was pending."""
    first = int(now // 60) - MINUTES + 1
    embedded, pending = [0] * MINUTES, [0] * MINUTES
    with file.reading() as connection:
        for path in paths:
            rows = connection.execute(_ROWS, (path,)).fetchall() if connection else []
            for (minute, total, waiting), (end, next_total, _) in pairwise([*rows, (first + MINUTES, 0, 0)]):
                for at in range(max(minute - first, 0), min(end - first, MINUTES)):
                    pending[at] += waiting
                if 0 <= end - first < MINUTES:
                    # The total of an index that was built again begins anew.
                    embedded[end - first] += max(0, next_total - total)
    return embedded, pending
