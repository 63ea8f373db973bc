"""Measure sessions, and request a flush of one before it is compacted.

Called often, cheap when nothing grew: a transcript is opened only when its time changed, and one call reads
only so much that following the files is not held up. All that is known is in the state beside the
transcripts, so another producer goes on with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from memline.producers.actions.perform import Asker, Done
from memline.producers.reports.session_list import SET_UP, outcome, why_off
from memline.producers.watching.loop_errors import FLUSH, LoopErrors
from memline.shared.clock import Clock, SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import BadRequest, ConfigError, MemlineError
from memline.shared.flush import flush_plan
from memline.shared.flush import state as flush_state
from memline.shared.flush.run import run
from memline.shared.flush.state import SessionState
from memline.shared.flush.transcript import SessionSize, measure
from memline.shared.logs import Log
from memline.shared.queue.broker import on_redis, send
from memline.shared.queue.messages import FlushMemory
from memline.shared.sources.safe_open import FileRefused

#: Seconds between two scans of the transcripts, as with their indexing.
SCAN_EVERY_S = 5.0

#: Bytes read in one call.
BYTES_A_TICK = 4 << 20

_LOG = Log("flush")


class FlushProducer:
    """Requests flushes of the sessions of those agents that have a model or a command for it."""

    def __init__(
        self,
        agents: Sequence[AgentSettings],
        *,
        errors: LoopErrors | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`errors` notes what fails for one agent, so that the others are scanned all the same."""
        self._errors = errors or LoopErrors(clock=clock)
        self._agents = tuple(agent for agent in agents if flush_plan.is_on(agent))
        self._clock = clock or SystemClock()
        self._next_scan_s = 0.0

    @property
    def is_needed(self) -> bool:
        """Whether there is an agent whose sessions are flushed."""
        return bool(self._agents)

    def tick(self) -> None:
        """Scan all sessions, when it is due; what fails is retried by the next scan."""
        now = self._clock.now()
        if now < self._next_scan_s:
            return
        self._next_scan_s = now + SCAN_EVERY_S
        left = BYTES_A_TICK
        for settings in self._agents:
            with self._errors.guard(settings, FLUSH):
                left = self._scan(settings, left, now)
                self._errors.clear(settings, FLUSH)
        if left <= 0:
            # The next call goes on.
            self._next_scan_s = now

    def _scan(self, settings: AgentSettings, left: int, now: float) -> int:
        """Measure what grew, and request what is due; return what is left of the bytes to read.

        Raises OSError and QueueError. Then nothing is recorded, so the next scan does it again, and a message
        that was sent is one without a request. A worker that is faster than the edit waits for it.
        """
        folder = flush_plan.folder_of(settings)
        changed_ns = dict(_transcripts(folder))
        is_quiet = all(now - time_ns / 1e9 > flush_plan.ALIVE_S for time_ns in changed_ns.values())
        if is_quiet and not (folder / flush_state.STATE_NAME).exists():
            return left
        with flush_state.editing(folder) as state:
            read_registry = cache(flush_plan.read_registry)
            for name in sorted(state.sessions.keys() | changed_ns.keys()):
                session = state.sessions.get(name) or SessionState()
                before, grown_at = session.size, changed_ns.get(name, 0) / 1e9
                if now - grown_at <= flush_plan.ALIVE_S:
                    state.sessions[name] = session
                    if left > 0 and before.changed_ns != changed_ns[name]:
                        with suppress(FileRefused):
                            flush_plan.record_size(
                                session, measure(str(folder), name, before, max_bytes=left)
                            )
                            left -= max(session.size.offset - before.offset, 0)
                elif not session.reply and not (grown_at and session.outcome):
                    state.sessions.pop(name, None)
                    continue
                if session.size.changed_ns == before.changed_ns and not flush_plan.is_retry_due(session, now):
                    continue
                entry = read_registry(folder).get(name) or flush_plan.RegistryEntry()
                reason = flush_plan.reason_to_flush(
                    session,
                    threshold=flush_plan.threshold_of(settings, entry, session.size.model),
                    force_bytes=settings.sessions.compaction.memory_flush.force_flush_transcript_bytes,
                    grown_at=grown_at,
                    now=now,
                )
                if not reason or entry.is_background:
                    continue
                flush_plan.record_request(session, reason, now)
                send(FlushMemory(agent=settings.agent, session=name, cycle=session.cycle))
                _LOG.info("flush.requested", agent=settings.agent, session=name, reason=reason)
        return left


def _transcripts(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield name and time (ns) of the transcripts; archives have other endings."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as listing:
        for entry in listing:
            with suppress(FileNotFoundError):
                is_transcript = entry.name.endswith(".jsonl") and flush_state.can_be_named(entry.name)
                if is_transcript and entry.is_file(follow_symlinks=False):
                    yield entry.name, entry.stat(follow_symlinks=False).st_mtime_ns


def flush_now(settings: AgentSettings, name: str, *, url: str = "") -> SessionState:
    """Flush a session whatever its size: here, or with the address of a queue by a worker of the fleet.

    Returns what is known of it then. Raises ConfigError when no flush is configured, MemlineError for a
    session that is not there or that another process has just flushed.
    """
    if not flush_plan.is_on(settings):
        why, example = why_off(settings), '{ model: "qwen3:8b", baseUrl: "http://127.0.0.1:11434/v1" }'
        raise ConfigError(
            f"no session of {settings.agent} is flushed: {why}",
            hint=f"write memoryFlush: {example}, with your model and its address"
            if why == SET_UP
            else "set that key to true",
        )
    folder = flush_plan.folder_of(settings)
    if not flush_state.can_be_named(name):
        raise MemlineError(f"{name!r} is not a valid name of a transcript", hint="memline flush")
    try:
        size = measure(str(folder), name, SessionSize())
    except (FileRefused, OSError) as error:
        raise MemlineError(f"there is no transcript {name} in {folder}", hint="memline flush") from error
    clock = SystemClock()
    try:
        with flush_state.editing(folder) as state:
            requested = state.sessions.setdefault(name, SessionState())
            flush_plan.record_size(requested, size)
            requested.attempts = 0
            flush_plan.record_request(requested, "requested manually", clock.now())
            if url:
                # Recorded only when it could be sent.
                on_redis(url)
                send(FlushMemory(agent=settings.agent, session=name, cycle=requested.cycle))
                return requested

        done = run(settings, name, cycle=requested.cycle, clock=clock)
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise MemlineError(f"{folder} cannot be written: {words}", hint=f"ls -ld {folder}") from error
    if done is None:
        raise MemlineError("another process has just flushed this session", hint="memline flush")
    return done


def flush_session(asker: Asker, session: str = "", *, here: bool = False) -> Done:
    """Write a session down now: `here`, or where there is a fleet by one of its workers."""
    (settings,) = asker.agents
    name = session if session.endswith(".jsonl") else f"{session}.jsonl"
    if not session:
        raise BadRequest("no session is named", hint="memline flush lists them")
    if "/" in session:
        raise BadRequest(f"{session[:80]!r} is not a name of a session", hint="memline flush lists them")
    url = "" if here else asker.queue_url
    done = flush_now(settings, name, url=url)
    words = f"{done.outcome}: {done.reason}"
    if url:
        words = f"{name}: a worker of the queue flush writes it down"
    return Done(
        value={"session": name, **outcome(done)},
        words=(words,),
        audit={"agent": settings.agent, "session": name},
        is_changed=done.outcome not in (flush_state.FAILED, flush_state.SKIPPED),
    )
