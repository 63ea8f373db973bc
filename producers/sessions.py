"""How session transcripts grow: which of those that changed are worth reading on now.

A transcript is written to with every turn. It is read on when it has grown by `sync.sessions.deltaBytes` or
`sync.sessions.deltaMessages`, whichever comes first, and when nobody has written to it for a while. What it
was read up to is known from the index, so a restart forgets nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.index import driver, ledger
from shared.index.ledger import LedgerEntry
from shared.sources.safe_open import FileRefused, open_regular
from shared.sources.transcript_files import TranscriptScope
from shared.sources.transcript_names import is_archive

#: Seconds without a change after which what there is of a transcript is read, however little.
QUIET_S = 300.0

#: Seconds after a change until the growth is looked at; writing on does not put it off.
DEBOUNCE_S = 5.0

#: Bytes read at a time to count lines.
_BLOCK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """What is to be done about transcripts that changed."""

    #: Ledger paths to be looked at now.
    due: tuple[str, ...] = ()
    #: Whether a session has begun: a transcript that the index does not know.
    has_begun: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    """Lines counted behind the part of a transcript that was read."""

    #: Size of the transcript when it was read; another one makes the count void.
    base: int
    upto: int
    lines: int = 0


class Growth:
    """Measures the growth of one agent's transcripts. Safe to use from several threads."""

    def __init__(
        self, settings: AgentSettings, scope: TranscriptScope, *, clock: Clock | None = None
    ) -> None:
        self._index_path: Path = settings.index_path
        self._limits = settings.memory.sync.sessions
        self._scope = scope
        self._clock = clock or SystemClock()
        #: By ledger path: what was counted is not read again five seconds later.
        self._counted: dict[str, _Count] = {}
        self._lock = threading.Lock()

    def of(self, paths: Iterable[str]) -> Grown:
        """What is to be done about the transcripts of these ledger paths."""
        due: list[str] = []
        has_begun = False
        with self._lock, driver.reading_if_any(self._index_path) as reader:
            for path in paths:
                known = ledger.entry(reader, path) if reader else None
                if known is None or known.outcome == ledger.REMOVED:
                    has_begun = has_begun or not is_archive(path)
                    due.append(path)
                elif self._is_due(path, known):
                    due.append(path)
                    self._counted.pop(path, None)
        return Grown(due=tuple(due), has_begun=has_begun)

    def _is_due(self, path: str, known: LedgerEntry) -> bool:
        located = self._scope.locate(path)
        if located is None:
            return True
        try:
            opened = open_regular(located.anchor, os.path.relpath(located.absolute, located.anchor))
        except FileRefused:
            # Gone, or no file any more: the look says what it is.
            return True
        with os.fdopen(opened, "rb", buffering=0):
            status = os.fstat(opened)
            grown = status.st_size - known.size
            if grown <= 0 or known.mtime_ns == ledger.PARTLY:
                # Cut short, written anew, or not read to its end yet; unless nothing changed at all.
                return (status.st_size, status.st_mtime_ns) != (known.size, known.mtime_ns)
            if grown >= self._limits.delta_bytes or self._limits.delta_messages == 0:
                return True
            if self._clock.now() - status.st_mtime >= QUIET_S:
                return True
            counted = self._counted.get(path)
            if counted is None or counted.base != known.size or counted.upto > status.st_size:
                counted = _Count(base=known.size, upto=known.size)
            os.lseek(opened, counted.upto, os.SEEK_SET)
            while counted.upto < status.st_size and (block := os.read(opened, _BLOCK_BYTES)):
                counted = replace(
                    counted, upto=counted.upto + len(block), lines=counted.lines + block.count(b"\n")
                )
            self._counted[path] = counted
            return counted.lines >= self._limits.delta_messages
