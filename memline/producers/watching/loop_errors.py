"""Keep a long-lived loop going when something of one agent fails: log it, record it, and go on.

`memline up` and `memline watch` run for weeks; one odd record in one transcript must not end them. What fails
is kept as a value of the agent's index, so that `memline status` shows it, until the same part works again.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexCorrupt, IndexFault, MemlineError
from memline.shared.index import meta
from memline.shared.index.driver import faults, open_writer, reading_if_any, transaction
from memline.shared.logs import Log

#: The part of an agent that is guarded: finding changed files.
FILES = "files"

#: Seconds after which an error that goes on is logged again.
REMIND_S = 600.0

_CLEAR = ("", 0.0)


class LoopErrors:
    """Notes the errors of a loop by agent and part. For the thread of that loop."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._log = Log("loop")
        #: Agent and part -> the error that goes on, and when it was logged last; `_CLEAR`: none is recorded.
        self._current: dict[tuple[str, str], tuple[str, float]] = {}
        #: The damaged index that was met last; `up` moves it aside and builds it again.
        self.corrupt: IndexCorrupt | None = None

    @contextmanager
    def guard(self, settings: AgentSettings, part: str) -> Iterator[None]:
        """Run a block for an agent; whatever it raises is logged and recorded, and the caller goes on."""
        try:
            yield
        except Exception as error:
            if isinstance(error, IndexCorrupt):
                self.corrupt = error
            self._note(settings, part, error)

    def clear(self, settings: AgentSettings, part: str) -> None:
        """Note that a part of an agent works (again)."""
        key = (settings.agent, part)
        if self._current.get(key) != _CLEAR and self._record(settings, part, None):
            self._current[key] = _CLEAR

    def _note(self, settings: AgentSettings, part: str, error: Exception) -> None:
        key, now = (settings.agent, part), self._clock.now()
        text, hint = _words(error)
        before, logged_at = self._current.get(key, _CLEAR)
        if text == before and now - logged_at < REMIND_S:
            return
        self._current[key] = (text, now)
        self._log.error("loop.failed", agent=settings.agent, part=part, error=text, hint=hint)
        # Each time: there may have been no index before, or one that could not be written.
        self._record(settings, part, {"error": text, "action": hint, "since": now})

    def _record(self, settings: AgentSettings, part: str, entry: dict[str, object] | None) -> bool:
        """Set or remove what the index says of a part; False when the index cannot be read or written."""
        path = settings.index_path
        try:
            with reading_if_any(path) as reader:
                recorded = meta.get(reader, meta.LOOP_ERRORS, {}).get(part, {}) if reader else {}
                if reader is None or recorded.get("error") == (entry or {}).get("error"):
                    return True
            with closing(open_writer(path)) as writer, faults(path), transaction(writer):
                entries = {**meta.get(writer, meta.LOOP_ERRORS, {}), part: entry}
                entries = {key: each for key, each in entries.items() if each}
                meta.put(writer, meta.LOOP_ERRORS, entries or None)
            return True
        except IndexFault as error:
            self._log.warning("loop.not_recorded", agent=settings.agent, error=error.message)
            return False


def _words(error: Exception) -> tuple[str, str]:
    """Describe an error and what to do. A fault in our code is named by its place, never by its text."""
    if isinstance(error, MemlineError):
        return error.message, error.hint
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{(error.strerror or str(error)).lower()}", "memline doctor"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}", "report this line as a fault of Memline"
