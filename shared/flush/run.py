"""One flush from the request to the note, and what is known of it at every step.

A turn is paid for, so its answer is kept in the state before anything is done with it: whoever is killed in
between is followed by somebody who writes the same answer down.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from shared.clock import Clock
from shared.config.schema import AgentSettings
from shared.errors import ProviderError
from shared.flush import note, plan, prompts, turn
from shared.flush import state as flush_state
from shared.flush.recent import recent_turns
from shared.flush.state import FAILED, NOTHING, SETTLED, SKIPPED, STORED, SessionState
from shared.sources.append import NotAppended
from shared.sources.masking import mask

_TURN_LOCK = "memline-flush.turn.lock"


def run(settings: AgentSettings, name: str, *, cycle: int, clock: Clock) -> SessionState | None:
    """Flush the session with this transcript for a compaction cycle; what became of it, None: not asked for.

    Safe twice, late and at the same time: one turn an agent at a time, and none in a cycle that is settled.
    Raises OSError when the folder of the transcripts cannot be written.
    """
    folder = plan.folder_of(settings)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(folder / _TURN_LOCK, flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        session = flush_state.read(folder).sessions.get(name)
        if session is None or session.cycle != cycle or session.outcome in SETTLED:
            return None
        outcome, reason = _flush(settings, folder, name, session, clock)
        return _note_outcome(folder, name, cycle, outcome, reason, clock.now())
    finally:
        os.close(lock)


def _flush(
    settings: AgentSettings, folder: Path, name: str, session: SessionState, clock: Clock
) -> tuple[str, str]:
    """The outcome and its reason."""
    now = prompts.local_time(settings.sessions.user_timezone, clock.now())
    relative = note.daily_note(now)
    if reason := note.why_not_writable(settings.workspace, relative):
        return SKIPPED, reason
    answer = session.reply
    if not answer:
        turns, is_cut = recent_turns(
            folder,
            name,
            start=session.size.compacted_at,
            max_tokens=_turn_tokens(settings, folder, name),
            now=clock.now(),
        )
        if not turns:
            return NOTHING, "the session has no text"
        flush = settings.sessions.compaction.memory_flush
        try:
            answer = turn.take(
                settings,
                system=prompts.system_prompt(flush.system_prompt),
                conversation=prompts.conversation(turns, is_cut=is_cut),
                request=prompts.request(flush.prompt, now),
            )
        except ProviderError as error:
            return FAILED, f"{error.message}; {error.hint}" if error.hint else error.message
        # A model repeats what it was shown, and a note is sent to an embedding provider.
        answer = mask(answer)
        _keep_reply(folder, name, session.cycle, answer)
    entry = prompts.entry(answer)
    if not entry:
        return NOTHING, "there was nothing to keep"
    try:
        written = note.write(settings.workspace, relative, entry)
    except NotAppended as error:
        return SKIPPED, error.message
    if not written.start_line:
        return NOTHING, f"all of it stands in {relative} already"
    return STORED, f"{relative}#L{written.start_line}-L{written.end_line}"


def _turn_tokens(settings: AgentSettings, folder: Path, name: str) -> int:
    """Tokens of conversation that a turn is given: as many as the session's own model could still take."""
    registered = plan.registered(folder).get(name, plan.Registered())
    return plan.threshold_of(settings, registered)


def _keep_reply(folder: Path, name: str, cycle: int, answer: str) -> None:
    with flush_state.editing(folder) as state:
        session = state.sessions.setdefault(name, SessionState(cycle=cycle))
        if session.cycle == cycle:
            session.reply = answer


def _note_outcome(
    folder: Path, name: str, cycle: int, outcome: str, reason: str, now: float
) -> SessionState | None:
    with flush_state.editing(folder) as state:
        session = state.sessions.setdefault(name, SessionState(cycle=cycle))
        if session.cycle != cycle:
            # The session was compacted meanwhile; what is asked now is another flush.
            return None
        session.outcome, session.reason, session.at = outcome, reason, now
        if outcome in SETTLED:
            session.reply = ""
        return session
