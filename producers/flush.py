"""The session producer of flushes: looks how large sessions are and asks for one before a compaction.

Called often, cheap when nothing grew: a transcript is opened only when its size or time changed, and of a
long one only so much is read in one call that following the files is not held up.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.errors import QueueError
from shared.flush import plan
from shared.flush import state as flush_state
from shared.flush.size import SessionSize, measuring
from shared.flush.state import SessionState
from shared.logs import Log
from shared.queue.messages import FlushMemory
from shared.queue.send import send
from shared.sources.safe_open import FileRefused

#: Seconds between two looks at the sizes of transcripts, as with their indexing.
LOOK_EVERY_S = 5.0

#: Bytes read in one call; and what opening a transcript counts for, however little there is to read.
BYTES_A_TICK = 4 << 20
_OPENING_BYTES = 16 << 10

_TRANSCRIPT = ".jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A transcript as a look found it."""

    #: Its bytes; -1: it could not be opened, and is tried again.
    bytes: int
    mtime_ns: int
    size: SessionSize


class Flushes:
    """Asks for flushes of the sessions of those agents that have somebody to take the turn."""

    def __init__(self, agents: Sequence[AgentSettings], *, clock: Clock | None = None) -> None:
        self._agents = tuple(agent for agent in agents if plan.is_on(agent))
        self._clock = clock or SystemClock()
        self._log = Log("flush")
        self._next_look_s = 0.0
        #: The look that is going on, as bytes read.
        self._look: Iterator[int] | None = None
        #: By agent and transcript. Also what cannot be written down is not read twice.
        self._seen: dict[str, dict[str, _Seen]] = {agent.agent: {} for agent in self._agents}
        #: Those whose size is not in the state yet.
        self._unsaved: dict[str, set[str]] = {agent.agent: set() for agent in self._agents}
        self._told: dict[str, str] = {}

    @property
    def is_needed(self) -> bool:
        """Whether there is an agent whose sessions are flushed."""
        return bool(self._agents)

    def tick(self) -> None:
        """Go on looking at all sessions, when that is due; what goes wrong has its turn at the next look."""
        if self._look is None:
            now = self._clock.now()
            if not self._agents or now < self._next_look_s:
                return
            self._next_look_s = now + LOOK_EVERY_S
            self._look = self._look_at_all()
        done = 0
        for read in self._look:
            done += read
            if done >= BYTES_A_TICK:
                return
        self._look = None

    def _look_at_all(self) -> Iterator[int]:
        for settings in self._agents:
            try:
                yield from self._look_at(settings)
                self._told.pop(settings.agent, None)
            except OSError as error:
                folder = plan.folder_of(settings)
                words = f"{folder}: {(error.strerror or str(error)).lower()}"
                if self._told.get(settings.agent) != words:
                    self._told[settings.agent] = words
                    self._log.warning("flush.skipped", agent=settings.agent, reason=words)

    def _look_at(self, settings: AgentSettings) -> Iterator[int]:
        """One look at the sessions of an agent. Raises OSError."""
        folder = plan.folder_of(settings)
        kept = flush_state.read(folder).sessions
        last = self._seen[settings.agent]
        seen: dict[str, _Seen] = {}
        for name, size, mtime_ns in _transcripts(folder):
            before = last.get(name)
            if before and before.mtime_ns == mtime_ns and before.bytes == size:
                seen[name] = before
                continue
            if before is None and not flush_state.can_be_named(name):
                continue
            known = before.size if before else _session(kept, name).size
            if self._clock.now() - mtime_ns / 1e9 <= plan.ALIVE_S:
                yield _OPENING_BYTES
                try:
                    for found in measuring(str(folder), name, known):
                        yield max(found.offset - known.offset, 0)
                        known = found
                except FileRefused:
                    size = -1
                self._unsaved[settings.agent].add(name)
            seen[name] = _Seen(bytes=size, mtime_ns=mtime_ns, size=known)
        self._seen[settings.agent] = seen
        self._decide(settings, folder, kept, seen)

    def _decide(
        self, settings: AgentSettings, folder: Path, kept: dict[str, SessionState], seen: dict[str, _Seen]
    ) -> None:
        """Write down what was found, and ask for what is due. Raises OSError."""
        now = self._clock.now()
        gone = {name for name, session in kept.items() if _is_over(session, seen.get(name), now)}
        unsaved = self._unsaved[settings.agent]
        grown = {name for name in unsaved & seen.keys() - gone if _is_alive(seen[name], now)}
        waiting = {name for name, session in kept.items() if plan.is_due_again(session, now)} - gone
        due: list[FlushMemory] = []
        if not (gone or grown or any(self._reasons(settings, folder, kept, waiting, seen, now))):
            return
        with flush_state.editing(folder) as state:
            # Read again under the lock: another producer, or a worker, may have been here.
            for name in gone & state.sessions.keys():
                del state.sessions[name]
            for name in grown:
                plan.grow(state.sessions.setdefault(name, SessionState()), seen[name].size)
            for name, reason in self._reasons(settings, folder, state.sessions, grown | waiting, seen, now):
                session = state.sessions[name]
                plan.ask(session, reason, now)
                due.append(FlushMemory(agent=settings.agent, session=name, cycle=session.cycle))
                self._log.info("flush.asked", agent=settings.agent, session=name, reason=reason)
        unsaved.clear()
        # After the state: the worker takes no turn that nobody wrote down.
        self._send(folder, due, now)

    def _reasons(
        self,
        settings: AgentSettings,
        folder: Path,
        sessions: dict[str, SessionState],
        names: set[str],
        seen: dict[str, _Seen],
        now: float,
    ) -> Iterator[tuple[str, str]]:
        """The sessions among `names` that are to be flushed, and why."""
        registered: dict[str, plan.Registered] | None = None
        for name in sorted(names & sessions.keys()):
            session, found = sessions[name], seen.get(name)
            if registered is None:
                registered = plan.registered(folder)
            entry = registered.get(name, plan.Registered())
            reason = plan.reason_to_flush(
                session,
                threshold=plan.threshold_of(settings, entry, model=session.size.model),
                force_bytes=settings.sessions.compaction.memory_flush.force_flush_transcript_bytes,
                grown_at=found.mtime_ns / 1e9 if found else 0.0,
                now=now,
            )
            if reason and not entry.is_of_nobody:
                yield name, reason

    def _send(self, folder: Path, due: list[FlushMemory], now: float) -> None:
        for number, message in enumerate(due):
            try:
                send(message)
            except QueueError as error:
                self._log.warning("queue.unavailable", error=error.message, action=error.hint)
                with flush_state.editing(folder) as state:
                    for lost in due[number:]:
                        if session := state.sessions.get(lost.session):
                            plan.take_back(session, error.message, now)
                return


def _session(sessions: dict[str, SessionState], name: str) -> SessionState:
    return sessions.get(name) or SessionState()


def _is_alive(found: _Seen, now: float) -> bool:
    return now - found.mtime_ns / 1e9 <= plan.ALIVE_S and (
        not found.size.last_at or now - found.size.last_at <= plan.ALIVE_S
    )


def _is_over(session: SessionState, found: _Seen | None, now: float) -> bool:
    """Whether nothing has to be known of a session any more: its transcript is gone, or it rests and nothing
    was ever asked for.
    """
    if session.reply:
        return False
    return found is None or (not session.outcome and not _is_alive(found, now))


def _transcripts(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Name, size and time (ns) of the transcripts; archives have other endings."""
    try:
        with os.scandir(folder) as listing:
            entries = [entry for entry in listing if entry.name.endswith(_TRANSCRIPT)]
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        try:
            if entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                yield entry.name, status.st_size, status.st_mtime_ns
        except FileNotFoundError:
            continue
