"""Count what the processes of a home do, for its metrics: searches and requests.

A process counts in memory, and some seconds later adds what it counted to rows of the account file
(`shared.index.accounts`). So no search waits for the disk, a count outlives its process, and every `/metrics`
of a home says what all its processes did, also those that serve none. A process that is killed loses the
counts of `WRITE_AFTER_S`.
"""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from sqlite3 import Connection
from typing import Protocol, TypeVar

from memline.shared.errors import ConfigError, IndexFault
from memline.shared.index.accounts import AccountFile

#: Names of the counters; those of a histogram are its buckets and the sum of its values.
SEARCHES, SECONDS, SECONDS_SUM = "searches", "search_seconds", "search_seconds_sum"
REQUESTS = "http_requests"

#: When an agent was backed up last (seconds since the epoch): it is set, not added to.
BACKED_UP = "backed_up_at"

#: Who asks a question; `cli` is a command that a process which stays answers.
HTTP, MCP, PYTHON, QUEUE, CLI = "http", "mcp", "python", "queue", "cli"

#: Seconds that counts are kept in memory.
WRITE_AFTER_S = 5.0

#: Ends of the buckets of a histogram, in seconds; what takes longer is in one more.
ENDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

#: Name of a counter, and its labels in their order.
Key = tuple[str, tuple[tuple[str, str], ...]]


class Answered(Protocol):
    """What is counted of an answer (`shared.search.results.Answer`)."""

    @property
    def mode(self) -> str: ...
    @property
    def hits(self) -> Sequence[object]: ...
    @property
    def stale(self) -> bool: ...


A = TypeVar("A", bound=Answered)


class Tally:
    """The counts of this process for one home. Safe to use from several threads; write it when done."""

    def __init__(self, path: Path) -> None:
        """`path`: the account file of the home."""
        self._path = path
        self._lock = threading.Lock()
        self._counts: dict[Key, float] = {}
        self._timer: threading.Timer | None = None

    def add(self, name: str, count: float = 1, /, **labels: str) -> None:
        """Count something; its row is written some seconds later."""
        with self._lock:
            key = name, tuple(labels.items())
            self._counts[key] = self._counts.get(key, 0) + count
            if self._timer is None:
                self._timer = threading.Timer(WRITE_AFTER_S, self.write)
                self._timer.daemon = True
                self._timer.start()

    def write(self) -> None:
        """Write what was counted. A home that cannot be written has no counts: all works without them."""
        with self._lock:
            counts, self._counts = self._counts, {}
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
        if counts:
            with suppress(IndexFault), closing(AccountFile(self._path)) as file, file.writing() as connection:
                write(connection, ((name, dict(labels), count) for (name, labels), count in counts.items()))

    def close(self) -> None:
        """Write what is left; what is counted later is written later."""
        self.write()

    def search(self, agent: str, face: str, ask: Callable[[], A]) -> A:
        """Ask a question of an agent's memory, and count it with its outcome, its mode and its seconds.

        One that is asked in a wrong way (ConfigError) is not counted.
        """
        began = time.perf_counter()
        mode, outcome = "hybrid", "error"
        try:
            answer = ask()
            mode, outcome = answer.mode, outcome_of(answer)
        except ConfigError:
            outcome = ""
            raise
        finally:
            if outcome:
                took_s = time.perf_counter() - began
                self.add(SEARCHES, agent=agent, face=face, mode=mode, outcome=outcome)
                self.add(SECONDS, agent=agent, le=bucket_of(took_s))
                self.add(SECONDS_SUM, took_s, agent=agent)
        return answer


def write(connection: Connection, counts: Iterable[tuple[str, Mapping[str, str], float]]) -> None:
    """Add to counters: name, labels and how much more of each, in the caller's transaction."""
    rows = [(name, json.dumps(dict(labels)), count) for name, labels, count in counts]
    connection.executemany(_ADD, rows)


_ADD = (
    "INSERT INTO counters VALUES (?, ?, ?)"
    " ON CONFLICT (name, labels) DO UPDATE SET value = value + excluded.value"
)

_TALLIES: dict[Path, Tally] = {}
_TALLIES_LOCK = threading.Lock()


def tally_of(path: Path) -> Tally:
    """Return the tally of this process for the home with this account file: one, however many agents."""
    with _TALLIES_LOCK:
        return _TALLIES.setdefault(path, Tally(path))


def outcome_of(answer: Answered) -> str:
    """Name what came of a question: `none` without a hit; `stale` for hits of an index that is behind."""
    return "none" if not answer.hits else "stale" if answer.stale else "hits"


def bucket_of(seconds: float) -> str:
    """Return the end of the bucket for a duration, as a label."""
    place = bisect_left(ENDS, seconds)
    return f"{ENDS[place]:g}" if place < len(ENDS) else "+Inf"


def put(path: Path, name: str, value: float, **labels: str) -> None:
    """Set a figure that is no sum. A home that cannot be written goes without."""
    with suppress(IndexFault), closing(AccountFile(path)) as file, file.writing() as connection:
        row = (name, json.dumps(labels), value)
        connection.execute("INSERT OR REPLACE INTO counters VALUES (?, ?, ?)", row)


#: Counters by name: labels and value of each.
Counted = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]


def read(file: AccountFile) -> Counted:
    """Return the counters of a home. Raises IndexFaults."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    with file.reading() as connection:
        query = "SELECT name, labels, value FROM counters ORDER BY name, labels"
        for name, labels, value in connection.execute(query) if connection is not None else ():
            found.setdefault(name, []).append((json.loads(labels), value))
    return found


def cumulative(counts: Mapping[str, float]) -> Sequence[tuple[str, float]]:
    """Return the buckets of a histogram as Prometheus wants them: each with those before it."""
    total, found = 0.0, []
    for label in (*(f"{end:g}" for end in ENDS), "+Inf"):
        total += counts.get(label, 0.0)
        found.append((label, total))
    return found
