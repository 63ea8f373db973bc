"""Know how far the index is behind the files, at a bounded cost.

A look walks the workspace: 2 ms for 100 notes, 100 ms for 10,000. Taken by every search it would be most of
the work. So a look that takes longer than `CHEAP_S` is taken again only when it has been paid for `SHARE`
times over: with 10,000 notes every five seconds. A hundred notes are looked at by every search.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from memline.shared.sync.plan import EmptiedRoot, Plan

#: A look may take one part in so many of the time.
SHARE = 50

#: Seconds of a look that every search can afford: less than a warm search over some notes takes.
CHEAP_S = 0.002


class DiskState(msgspec.Struct, frozen=True, kw_only=True):
    """How the index compares to the files, as an answer reports it."""

    files_behind: int = 0
    #: Of these, files that are gone and that the index still has.
    removed: int = 0
    #: Seconds of CPU the look took, without the time for storing what it found.
    look_s: float = 0.0
    #: Roots of which no file is left, and whose rows stay.
    emptied: tuple[EmptiedRoot, ...] = ()

    @classmethod
    def of(cls, plan: Plan) -> DiskState:
        """Return the state by a comparison."""
        behind, removed = plan.changes.count, len(plan.changes.removed)
        return cls(files_behind=behind, removed=removed, look_s=plan.look_s, emptied=plan.emptied)


class Staleness:
    """Cache the last look at one agent's files. Safe to use from several threads."""

    def __init__(
        self, look: Callable[[], DiskState], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._look = look
        self._monotonic = monotonic
        self._looking = threading.Lock()
        self._state = DiskState()
        #: Whether it was looked once, and when the next look is due.
        self._is_known = False
        self._due_at = 0.0

    def state(self) -> DiskState:
        """Return how the index compares to the files. Raises what the look raises.

        A caller that finds another thread looking takes the last state, unless there is none.
        """
        if not self._looking.acquire(blocking=not self._is_known):
            return self._state
        try:
            if not self._is_known or self._monotonic() >= self._due_at:
                self._refresh()
            return self._state
        finally:
            self._looking.release()

    def look_now(self) -> DiskState:
        """Look whatever is known: this process has just changed a file, or the index was removed."""
        with self._looking:
            self._refresh()
            return self._state

    def _refresh(self) -> None:
        self._state = self._look()
        # The time of the first has imports in it, and says nothing of the next.
        is_dear = self._is_known and self._state.look_s > CHEAP_S
        self._due_at = self._monotonic() + SHARE * self._state.look_s if is_dear else 0.0
        self._is_known = True
