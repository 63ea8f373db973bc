"""When a change that was noticed is acted upon: after a quiet time, but never later than a ceiling."""

from __future__ import annotations

from collections.abc import Iterable

#: Times the quiet time a file that is saved without a pause has to wait at most.
CEILING = 5.0

#: Share of the quiet time by which others may go along with the one that is due: an editor's "save all" or a
#: pull touches many files within a moment, and one message for all is cheaper than one each.
_COMPANY = 0.1


class Debounce:
    """Names with the times they were noticed. Knows no clock: every call is told the time, in seconds.

    Each name waits on its own, so a file that is written all the time does not delay the others.
    """

    def __init__(self, quiet_s: float, ceiling: float = CEILING) -> None:
        """With a `ceiling` of 1 a change waits the quiet time, whatever comes after it."""
        self._quiet_s = quiet_s
        self._ceiling = ceiling
        #: First and last time noticed.
        self._noticed: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._noticed)

    def notice(self, name: str, now: float) -> None:
        """`name` changed; its quiet time starts again, its ceiling does not."""
        first, _ = self._noticed.get(name, (now, now))
        self._noticed[name] = (first, now)

    def due_at(self) -> float | None:
        """When the next name is due; None when nothing waits."""
        return min(map(self._due, self._noticed.values()), default=None)

    def take(self, now: float) -> set[str]:
        """The names that are due, and those that soon would be; they are forgotten here."""
        due = self.due_at()
        if due is None or due > now:
            return set()
        taken = {
            name
            for name, times in self._noticed.items()
            if self._due(times) <= now + _COMPANY * self._quiet_s
        }
        for name in taken:
            del self._noticed[name]
        return taken

    def put_back(self, names: Iterable[str], at: float) -> None:
        """Names that could not be acted upon wait a quiet time from `at` on."""
        for name in names:
            self.notice(name, at)

    def _due(self, times: tuple[float, float]) -> float:
        first, last = times
        return min(last + self._quiet_s, first + self._ceiling * self._quiet_s)
