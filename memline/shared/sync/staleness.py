"""Know how far the index is behind the files, at a bounded cost.

A look walks the workspace: 2 ms for 100 notes, 100 ms for 10,000. Taken by every search it would be most of
the work; taken by a clock, a note that was just saved would be missed. So a search looks when the last look
has been paid for `SHARE` times over: with 100 notes at every search of a person, with 10,000 every five
seconds. A query worker, which stores nothing, looks in the background instead while searches come often: the
search that found the last look too old, one in twenty, waited 40 ms for it at 2,000 files. While `watch` or
`up` says that nothing is behind (`shared.sync.freshness`) no search looks. A process that goes on takes the
kernel's queue of changes first, and looks when there is one that is not stored yet: it misses no save that
ended before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from memline.shared.errors import MemlineError
from memline.shared.values import field, replace, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object

#: A look may take one part in so many of the time.
SHARE = 50

#: Seconds between two looks at most, however long they take.
LONGEST_S = 5.0

#: A look of fewer seconds is taken by every search where the system does not tell of saves.
CHEAP_S = 0.02

#: With looks in the background: seconds after which a search starts one, and after which it waits for one.
BACKGROUND_AFTER_S = 1.0
BACKGROUND_LONGEST_S = 2.0


@value
class DiskState:
    """How the index compares to the files, as an answer reports it."""

    files_behind: int = 0
    #: Of these, files that are gone and that the index still has.
    removed: int = 0
    #: Seconds the look took, without the time for storing what it found.
    look_s: float = 0.0
    #: Files that are gone and kept in the index: path -> root, and since when.
    kept: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    #: A file may have been saved since the look: the system does not tell of it.
    is_unsure: bool = False
    #: Seconds since the look; 0 where the system says that nothing was saved since.
    age_s: float = 0.0


class News(Protocol):
    """Tells of changes that are not seen yet."""

    def watch(self) -> None:
        """Begin to watch, before a look."""

    def has_news(self, *, is_settled: bool) -> bool | None:
        """Take what is known; True when a file may have changed, None when that cannot be told.

        `is_settled`: nothing was behind at the last look.
        """


class Staleness:
    """Cache the last look at one agent's files. Safe to use from several threads."""

    def __init__(
        self,
        look: Callable[[], DiskState],
        *,
        is_fresh: Callable[[], bool] = lambda: False,
        background: bool = False,
        news: News | None = None,
        hears_all: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_fresh`: whether a process that follows the files says that a look would find nothing to do.

        `hears_all`: `news` tells of all files, so that other looks are only for what a system may lose.
        """
        self._look = look
        self._is_fresh = is_fresh
        self._background = background
        self._news = news
        self._hears_all = hears_all
        #: Held from the news until the look at them ends: another search waits for it.
        self._hearing = threading.Lock()
        self._monotonic = monotonic
        self._looking = threading.Lock()
        self._state: DiskState | None = None
        self._looked_at = 0.0

    def state(self) -> DiskState:
        """Return how the index compares to the files. Raises what the look raises.

        A caller that finds another thread looking takes the last state, unless there is none.
        """
        if self._news is not None:
            with self._hearing:
                state = self._state
                is_settled = state is not None and not state.files_behind and not state.kept
                is_cheap = state is not None and state.look_s < CHEAP_S
                try:
                    has_news = self._news.has_news(is_settled=is_settled)
                    if has_news or state is None or (has_news is None and is_cheap):
                        return self.look_now()
                except Exception:
                    # What was taken of the news is not told again.
                    self._state = None
                    raise
            if has_news is None:
                return replace(self._aged(self._paced()), is_unsure=True)
            # What was behind may be stored by now, and what is kept be there again: of that no save tells.
            return self._paced(is_heard=self._hears_all and is_settled)
        return self._aged(self._paced())

    def _aged(self, state: DiskState) -> DiskState:
        return replace(state, age_s=self._monotonic() - self._looked_at)

    def _paced(self, *, is_heard: bool = False) -> DiskState:
        """Look when the last look has been paid for; `is_heard`: nothing was saved since."""
        state = self._state
        if state is None:
            with self._looking:
                # Another thread may have looked while this one waited.
                return self._state or self._refresh()
        age_s = self._monotonic() - self._looked_at
        if is_heard and age_s < LONGEST_S:
            return state
        longest_s = BACKGROUND_LONGEST_S if self._background else min(LONGEST_S, SHARE * state.look_s)
        if age_s >= (BACKGROUND_AFTER_S if self._background else longest_s):
            if not self._looking.acquire(blocking=False):
                return state
            if self._background and age_s < longest_s:
                threading.Thread(target=self._refresh_in_background, name="staleness", daemon=True).start()
                return state
            try:
                return self._refresh()
            finally:
                self._looking.release()
        return state

    def look_now(self) -> DiskState:
        """Look whatever is known: this process has just changed a file, or the index was removed."""
        with self._looking:
            return self._refresh(is_trusting=False)

    def _refresh(self, *, is_trusting: bool = True) -> DiskState:
        if self._news is not None:
            self._news.watch()
        is_fresh = is_trusting and self._is_fresh()
        self._state = DiskState() if is_fresh else self._look()
        self._looked_at = self._monotonic()
        return self._state

    def _refresh_in_background(self) -> None:
        try:
            self._refresh()
        except MemlineError as error:
            # The next search that has to look for itself raises it.
            # Late: logging costs a search 4 ms.
            from memline.shared.logs import Log

            Log("query").warning("look.failed", error=error.message)
        finally:
            self._looking.release()
