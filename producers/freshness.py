"""Keeping a long-lived process in step with the files, at a bounded share of its time.

A look walks the workspace: 2 ms for 100 notes, 100 ms for 10,000. Taken by every search it would be most of
the work; taken by a clock, a note that was just saved would be missed. So a look is due when the last one has
been paid for `SHARE` times over: with 100 notes at every search of a person, with 10,000 every five seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from producers.ask import DiskState

#: A look may take one part in so many of the time.
SHARE = 50

#: Seconds between two looks at most, however long they take.
LONGEST_S = 5.0


class Freshness:
    """The state of one agent's files, looked up by its searches in turn. Safe to use from several threads."""

    def __init__(
        self, look: Callable[[], DiskState], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._look = look
        self._monotonic = monotonic
        self._looking = threading.Lock()
        self._state: DiskState | None = None
        self._due = 0.0

    def state(self) -> DiskState:
        """How the index stands to the files. Raises what the look raises.

        A caller that finds another one looking goes on with what was known before, unless nothing was.
        """
        state = self._state
        if state is not None and (self._monotonic() < self._due or self._looking.locked()):
            return state
        with self._looking:
            # Another thread may have looked while this one waited for it.
            if self._state is None or self._monotonic() >= self._due:
                return self._take()
            return self._state

    def look_now(self) -> DiskState:
        """Look whatever is known: this process itself has just changed a file, or the index is gone."""
        with self._looking:
            return self._take()

    def _take(self) -> DiskState:
        state = self._state = self._look()
        # What was stored meanwhile is no reason to look less often.
        self._due = self._monotonic() + min(LONGEST_S, SHARE * state.look_s)
        return state
