"""The session producer of flushes: looks how large sessions are and asks for one before a compaction.

Called often, cheap when nothing grew: a transcript is opened only when its size or time changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.errors import QueueError
from shared.flush import plan
from shared.flush import state as flush_state
from shared.flush.size import measure
from shared.flush.state import ASKED, SessionState
from shared.logs import Log
from shared.queue.messages import FlushMemory
from shared.queue.send import send
from shared.sources.safe_open import FileRefused

#: Seconds between two looks at the sizes of transcripts, as with their indexing.
LOOK_EVERY_S = 5.0

_TRANSCRIPT = ".jsonl"


class Flushes:
    """Asks for flushes of the sessions of those agents that have somebody to take the turn."""

    def __init__(self, agents: Sequence[AgentSettings], *, clock: Clock | None = None) -> None:
        self._agents = tuple(agent for agent in agents if plan.is_on(agent))
        self._clock = clock or SystemClock()
        self._log = Log("flush")
        self._next_look_s = 0.0
        #: (agent, transcript) -> size and time at the last look.
        self._seen: dict[tuple[str, str], tuple[int, int]] = {}
        self._told: set[str] = set()

    @property
    def is_needed(self) -> bool:
        """Whether there is an agent whose sessions are flushed."""
        return bool(self._agents)

    def tick(self) -> None:
        """Look at all sessions when that is due; a queue that is away has its turn at the next look."""
        now = self._clock.now()
        if not self._agents or now < self._next_look_s:
            return
        self._next_look_s = now + LOOK_EVERY_S
        for settings in self._agents:
            try:
                self._look(settings, now)
            except QueueError as error:
                # What was asked for stands in the state, and is asked for again when nobody answers.
                self._log.warning("queue.unavailable", error=error.message, action=error.hint)
            except OSError as error:
                folder = plan.folder_of(settings)
                words = f"{folder}: {(error.strerror or str(error)).lower()}"
                if words not in self._told:
                    self._told.add(words)
                    self._log.warning("flush.skipped", agent=settings.agent, reason=words)

    def _look(self, settings: AgentSettings, now: float) -> None:
        folder = plan.folder_of(settings)
        before = flush_state.read(folder)
        registered: dict[str, plan.Registered] | None = None
        for name, size, mtime_ns in _transcripts(folder):
            session = before.sessions.get(name, SessionState())
            key = (settings.agent, name)
            waits = session.outcome in (ASKED, flush_state.FAILED)
            if self._seen.get(key) == (size, mtime_ns) and not waits:
                continue
            if now - mtime_ns / 1e9 > plan.ALIVE_S:
                self._seen[key] = (size, mtime_ns)
                continue
            try:
                session.size = measure(str(folder), name, session.size)
            except FileRefused:
                continue
            if registered is None:
                registered = plan.registered(folder)
            entry = registered.get(name, plan.Registered())
            reason = "" if entry.is_of_nobody else self._reason(settings, session, entry, mtime_ns, now)
            self._keep(settings, folder, name, session, reason, now)
            self._seen[key] = (size, mtime_ns)

    def _reason(
        self,
        settings: AgentSettings,
        session: SessionState,
        entry: plan.Registered,
        mtime_ns: int,
        now: float,
    ) -> str:
        return plan.reason_to_flush(
            session,
            threshold=plan.threshold_of(settings, entry),
            force_bytes=settings.sessions.compaction.memory_flush.force_flush_transcript_bytes,
            grown_at=mtime_ns / 1e9,
            now=now,
        )

    def _keep(
        self,
        settings: AgentSettings,
        folder: Path,
        name: str,
        found: SessionState,
        reason: str,
        now: float,
    ) -> None:
        """Write down how far was counted and, with a reason, what is asked for; then ask."""
        cycle = found.size.compactions
        with flush_state.editing(folder) as state:
            session = state.sessions.setdefault(name, SessionState())
            session.size = found.size
            if reason:
                if session.cycle != cycle:
                    session.attempts, session.reply = 0, ""
                session.cycle, session.outcome = cycle, ASKED
                session.reason, session.at = reason, now
                session.attempts += 1
        if reason:
            self._log.info("flush.asked", agent=settings.agent, session=name, reason=reason)
            # After the state: the worker takes no turn that nobody wrote down. Lost on the way, it is asked
            # for again.
            send(FlushMemory(agent=settings.agent, session=name, cycle=cycle))


def _transcripts(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Name, size and time (ns) of the transcripts that are being written, by name."""
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.name.endswith(_TRANSCRIPT) and entry.is_file(follow_symlinks=False):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield entry.name, status.st_size, status.st_mtime_ns
