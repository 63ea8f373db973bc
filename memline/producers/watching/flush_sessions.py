"""Flush the sessions of agents before they are compacted, beside the following of their files."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.flush.flush import NOT_DUE, flush, folder_of, is_on
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
        #: Path of a transcript -> its time (ns) when it was looked at.
        self._seen_ns: dict[Path, int] = {}

    def __enter__(self) -> Self:
        if self._agents:
            threading.Thread(target=self._run, name="flush", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Not waited for: a flush that ends with the process has appended its entry, or has not begun to.
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(SCAN_EVERY_S):
            try:
                self.scan()
            except OSError as error:
                # A folder that a network file system takes away comes back.
                _LOG.warning("flush.failed", reason=str(error))

    def scan(self) -> None:
        """Flush what is due among the transcripts that changed since the last scan."""
        for settings in self._agents:
            # Archives have other endings.
            for path in folder_of(settings).glob("*.jsonl"):
                try:
                    changed_ns = path.lstat().st_mtime_ns
                    is_alive = self._clock.now() - changed_ns / 1e9 <= ALIVE_S and not self._stop.is_set()
                    if not is_alive or self._seen_ns.get(path) == changed_ns:
                        continue
                    self._seen_ns[path] = changed_ns
                    flushed = flush(settings, path, self._clock, if_due=True)
                except Exception as error:
                    # One odd transcript must not end the flushes of the others.
                    reason = getattr(error, "message", type(error).__name__)
                    _LOG.warning("flush.failed", agent=settings.agent, session=str(path), reason=reason)
                else:
                    if flushed.outcome != NOT_DUE:
                        result = {"outcome": flushed.outcome, "reason": flushed.reason}
                        _LOG.info("flush.done", agent=settings.agent, session=str(path), **result)
