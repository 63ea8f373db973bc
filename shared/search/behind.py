"""How many files are behind, for searches: looked up beside them rather than in them while they come often.

A look walks the workspace, 40 ms for 2,000 files. Taken by the search that found the last one too old, it was
what one search in twenty waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from shared.errors import MemlineError
from shared.logs import Log

#: Seconds a look is good for.
GOOD_FOR_S = 2.0

#: Seconds after which a search starts the next look and does not wait for it.
AHEAD_S = 1.0


class FilesBehind:
    """The count of one agent, never older than `GOOD_FOR_S`. Safe to ask from several threads."""

    def __init__(self, look: Callable[[], int]) -> None:
        self._look = look
        self._count = 0
        #: When the last look ended (monotonic seconds); None before the first.
        self._at: float | None = None
        self._looking = threading.Lock()

    def count(self) -> int:
        """Files that changed and are not in the index yet. Raises what the look raises."""
        if self._age_s() >= GOOD_FOR_S:
            with self._looking:
                # Another thread may have looked while this one waited for it.
                if self._age_s() >= GOOD_FOR_S:
                    self._take()
        elif self._age_s() >= AHEAD_S and self._looking.acquire(blocking=False):
            threading.Thread(target=self._take_ahead, name="files-behind", daemon=True).start()
        return self._count

    def _age_s(self) -> float:
        return float("inf") if self._at is None else time.monotonic() - self._at

    def _take(self) -> None:
        self._count = self._look()
        self._at = time.monotonic()

    def _take_ahead(self) -> None:
        try:
            self._take()
        except MemlineError as error:
            # The next search that has to look for itself says it to whoever asks.
            Log("query").warning("look.failed", error=error.message)
        finally:
            self._looking.release()
