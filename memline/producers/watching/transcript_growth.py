"""Measure how session transcripts grow, and so which of those that changed are read on now.

A transcript is written to with every message. It is read on when it has grown by `sync.sessions.deltaBytes`
or `sync.sessions.deltaMessages`, whichever comes first, and when it has not changed for `QUIET_S`. The index
says up to where it was read, so a restart forgets nothing. `debounce` says when a change is measured.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.index import driver, ledger
from memline.shared.index.ledger import LedgerEntry
from memline.shared.sources.paths import is_archive
from memline.shared.sources.safe_open import FileRefused
from memline.shared.sources.transcripts.formats import Transcripts

#: Seconds without a change after which what there is of a transcript is read, however little.
QUIET_S = 300.0

#: Bytes read at a time to count lines.
_BLOCK_BYTES = 1 << 18


class TranscriptGrowth:
    """Measures the growth of one agent's transcripts. Safe to use from several threads."""

    def __init__(self, settings: AgentSettings, transcripts: Transcripts, *, clock: Clock) -> None:
        self._index_path = settings.index_path
        self._limits = settings.memory.sync.sessions
        self._transcripts = transcripts
        self._clock = clock
        #: By ledger path: size when it was read, size up to which lines were counted since, and their number.
        #: What was counted is not read again five seconds later.
        self._counted: dict[str, tuple[int, int, int]] = {}
        self._lock = threading.Lock()

    def check(self, paths: Iterable[str]) -> tuple[list[str], bool]:
        """Return those of the changed transcripts that are to be read on, and whether a session is new."""
        due: list[str] = []
        has_new_session = False
        with self._lock, driver.reading_if_any(self._index_path) as reader:
            for path in paths:
                known = ledger.entry(reader, path) if reader else None
                if known is None or known.outcome == ledger.REMOVED:
                    has_new_session = has_new_session or not is_archive(path)
                    due.append(path)
                elif self._is_due(path, known):
                    due.append(path)
                    self._counted.pop(path, None)
        return due, has_new_session

    def _is_due(self, path: str, known: LedgerEntry) -> bool:
        try:
            opened = self._transcripts.open(path)
        except FileRefused:
            # Gone, or not a file any more: reading it says what it is.
            return True
        with opened.file as file:
            grown = opened.size - known.size
            if grown <= 0 or known.mtime_ns == ledger.PARTIALLY_READ:
                # Cut short, written anew, or not read to its end yet; unless nothing changed at all.
                times = (known.mtime_ns, known.ctime_ns)
                return bool(grown) or times != (opened.mtime_ns, opened.ctime_ns)
            if grown >= self._limits.delta_bytes or self._limits.delta_messages == 0:
                return True
            if self._clock.now() - opened.mtime_ns / 1e9 >= QUIET_S:
                return True
            base, upto, lines = self._counted.get(path, (-1, 0, 0))
            if base != known.size or upto > opened.size:
                upto, lines = known.size, 0
            file.seek(upto)
            while upto < opened.size and (block := file.read(min(_BLOCK_BYTES, opened.size - upto))):
                upto, lines = upto + len(block), lines + block.count(b"\n")
            self._counted[path] = known.size, upto, lines
            return lines >= self._limits.delta_messages
