"""Flush the sessions of agents before they are compacted, beside the following of their files."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.flush.flush import NOT_DUE, SKIPPED, Session, flush, folder_of, is_on
from memline.shared.logs import Log

#: Seconds between two scans of the transcripts, as with their indexing.
SCAN_EVERY_S = 5.0

#: Seconds since its last growth after which a session counts as over: it will not be compacted any more.
#: Else the first start beside a year of transcripts would flush all of them.
ALIVE_S = 3_600.0

_LOG = Log("flush")


class FlushSessions:
    """Looks at the sessions that grow, in a thread of its own: a model may take minutes to answer."""

    def __init__(self, agents: Sequence[AgentSettings], *, clock: Clock | None = None) -> None:
        self._agents = tuple(filter(is_on, agents))
        self._clock = clock or SystemClock()
        self._stop = threading.Event()
        #: Path of a transcript -> its time (ns) when it was looked at, and what was said of it.
        self._seen_ns: dict[str, int] = {}
        self._said: dict[str, str] = {}

    def __enter__(self) -> FlushSessions:
        if self._agents:
            threading.Thread(target=self._run, name="flush", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Not waited for: a flush that ends with the process has appended its entry, or has not begun to.
        self._stop.set()

    def scan(self) -> None:
        """Flush what is due among the transcripts that changed since the last scan."""
        for settings in self._agents:
            for path, changed_ns in self._alive(folder_of(settings)):
                if self._seen_ns.get(path) != changed_ns and not self._stop.is_set():
                    self._seen_ns[path] = changed_ns
                    self._flush(settings, path)

    def _run(self) -> None:
        while not self._stop.wait(SCAN_EVERY_S):
            self.scan()

    def _flush(self, settings: AgentSettings, path: str) -> None:
        try:
            flushed = flush(Session(settings=settings, path=Path(path)), self._clock, if_due=True)
            outcome, reason = flushed.outcome, flushed.reason
        except Exception as error:
            # One odd transcript must not end the flushes of the others.
            outcome, reason = "failed", getattr(error, "message", f"{type(error).__name__}: {error}")
        if outcome != NOT_DUE and self._said.get(path) != reason:
            self._said[path] = reason
            tell = _LOG.warning if outcome in (SKIPPED, "failed") else _LOG.info
            tell("flush.done", agent=settings.agent, session=path, outcome=outcome, reason=reason)

    def _alive(self, folder: Path) -> Iterator[tuple[str, int]]:
        """Yield path and time (ns) of the transcripts that grew lately; archives have other endings."""
        with suppress(OSError), os.scandir(folder) as listing:
            for entry in listing:
                if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False):
                    changed_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                    if self._clock.now() - changed_ns / 1e9 <= ALIVE_S:
                        yield entry.path, changed_ns
