"""Keep a long-lived loop going when something of one agent fails: log it, record it, and go on.

`memline up` and `memline watch` run for weeks; one odd record in one transcript must not end them. What fails
is kept as a value of the agent's index, so that `memline status` shows it, until the same part works again.
"""

import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexCorrupt, IndexFault, MemlineError
from memline.shared.index import meta
from memline.shared.index.driver import faults, open_writer, reading_if_any, transaction
from memline.shared.logs import Log

#: The part of an agent that is guarded: finding changed files.
FILES = "files"

_log = Log("loop")


class LoopErrors:
    """Notes the errors of a loop by agent and part. For the thread of that loop."""

    def __init__(self) -> None:
        #: Agent and part -> the error that was logged last.
        self._logged: dict[tuple[str, str], str] = {}
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
            self.note(settings, part, error)

    def note(self, settings: AgentSettings, part: str, error: Exception) -> None:
        """Record an error, and log it unless it goes on."""
        entry = _entry(error)
        if self._logged.get((settings.agent, part)) != entry["error"]:
            self._logged[settings.agent, part] = entry["error"]
            hint = entry["action"]
            _log.error("loop.failed", agent=settings.agent, part=part, error=entry["error"], hint=hint)
        _record(settings, part, entry)

    def clear(self, settings: AgentSettings, part: str) -> None:
        """Note that a part of an agent works (again)."""
        self._logged.pop((settings.agent, part), None)
        _record(settings, part, None)


def _record(settings: AgentSettings, part: str, entry: dict[str, str] | None) -> None:
    """Set or remove what the index, if there is one, says of a part."""
    path = settings.index_path
    try:
        with reading_if_any(path) as reader:
            if reader is None or meta.get(reader, meta.LOOP_ERRORS, {}).get(part) == entry:
                return
        with closing(open_writer(path)) as writer, faults(path), transaction(writer):
            entries = {**meta.get(writer, meta.LOOP_ERRORS, {}), part: entry}
            meta.put(writer, meta.LOOP_ERRORS, {key: each for key, each in entries.items() if each} or None)
    except IndexFault as error:
        _log.warning("loop.not_recorded", agent=settings.agent, error=error.message)


def _entry(error: Exception) -> dict[str, str]:
    """Describe an error and what to do. A fault in our code is named by its place, never by its text."""
    if isinstance(error, MemlineError):
        return {"error": error.message, "action": error.hint, "code": error.code}
    if isinstance(error, OSError):
        words, hint = f"{error.filename or ''}: {(error.strerror or str(error)).lower()}", "memline doctor"
        return {"error": words.removeprefix(": "), "action": hint, "code": ""}
    frame = traceback.extract_tb(error.__traceback__)[-1]
    words = f"{type(error).__name__} in {Path(frame.filename).name}, line {frame.lineno}"
    return {"error": words, "action": "report this line as a fault of Memline", "code": ""}
