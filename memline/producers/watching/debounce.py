"""Decide when a change is acted upon: after a quiet time, but never later than a ceiling.

Notes wait `sync.watchDebounceMs` (1.5 s by default) after their last change, at most `CEILING` times that.
Transcripts wait `TRANSCRIPT_QUIET_S` after their first; `transcript_growth` then decides if that was enough.
"""

from __future__ import annotations

#: Times the quiet time a file that is saved without a pause has to wait at most.
CEILING = 5.0

#: Seconds after a change of a transcript until its growth is measured. A session is written to with every
#: message, so writing on does not put it off: the ceiling is the quiet time.
TRANSCRIPT_QUIET_S = 5.0
TRANSCRIPT_CEILING = 1.0

#: Share of the quiet time by which a name may be early when another is due: an editor's "save all" or a pull
#: touches many files within a moment, and one message for all is cheaper than one each.
_TOLERANCE = 0.1


class Debounce:
    """Keeps names with the times of their changes. Has no clock: each call passes the time, in seconds.

    Each name waits on its own, so a file that is written all the time does not delay the others.
    """

    def __init__(self, quiet_s: float, ceiling: float = CEILING) -> None:
        """With a `ceiling` of 1 a change waits the quiet time, whatever comes after it."""
        self._quiet_s = quiet_s
        self._ceiling = ceiling
        #: Times of the first and the last change.
        self._changes: dict[str, tuple[float, float]] = {}

    def add(self, name: str, now: float) -> None:
        """Record that `name` changed; its quiet time starts again, its ceiling does not."""
        first, _ = self._changes.get(name, (now, now))
        self._changes[name] = (first, now)

    def due_at(self) -> float | None:
        """Return when the next name is due; None when nothing waits."""
        return min(map(self._due, self._changes.values()), default=None)

    def pop_due(self, now: float) -> set[str]:
        """Remove and return the names that are due, and those that soon would be."""
        due = self.due_at()
        if due is None or due > now:
            return set()
        latest = now + _TOLERANCE * self._quiet_s
        names = {name for name, times in self._changes.items() if self._due(times) <= latest}
        for name in names:
            del self._changes[name]
        return names

    def _due(self, times: tuple[float, float]) -> float:
        first, last = times
        return min(last + self._quiet_s, first + self._ceiling * self._quiet_s)
