"""One flush from the request to the note, and what is known of it at every step.

A turn is paid for, so its answer is kept in the state before anything is done with it: whoever is killed in
between is followed by somebody who writes the same answer down.
"""

from __future__ import annotations

from pathlib import Path

from shared.clock import Clock
from shared.config.schema import AgentSettings
from shared.errors import ProviderError, ProviderTooBig
from shared.flush import note, plan, prompts, turn
from shared.flush import state as flush_state
from shared.flush.lock import held
from shared.flush.recent import recent_turns
from shared.flush.state import ASKED, FAILED, NOTHING, SETTLED, SKIPPED, STORED, SessionState
from shared.flush.threshold import known_window
from shared.sources.append import NotAppended
from shared.sources.daily import local_time, log_path
from shared.sources.entries import visible
from shared.sources.masking import mask

_TURN_LOCK = "memline-flush.turn.lock"

#: Tokens below which a turn that is too long for its model is not shortened further, and how much it is.
LEAST_TURN_TOKENS = 1_000
_SHORTER = 4


def run(settings: AgentSettings, name: str, *, cycle: str, clock: Clock) -> SessionState | None:
    """Flush the session with this transcript for a compaction cycle; what became of it, None: not asked for.

    Safe twice, late and at the same time: one turn an agent at a time, and one for each time it was asked
    for. Raises OSError when the folder of the transcripts cannot be written.
    """
    folder = plan.folder_of(settings)
    if not folder.is_dir():
        return None
    with held(folder / _TURN_LOCK):
        session = _taken(folder, name, cycle, clock.now())
        if session is None:
            return None
        outcome, reason = _flush(settings, folder, name, session, clock)
        return _note_outcome(folder, name, cycle, outcome, reason, clock.now())


def _taken(folder: Path, name: str, cycle: str, now: float) -> SessionState | None:
    """The session, when its flush is still asked for. From now on it is on its way.

    It is written down before the turn is paid: who cannot write here could not keep the answer either.
    """
    if name not in flush_state.read(folder).sessions:
        return None
    with flush_state.editing(folder) as state:
        session = state.sessions.get(name)
        if session is None or session.cycle != cycle or session.outcome != ASKED:
            return None
        session.at = now
        return session


def _flush(
    settings: AgentSettings, folder: Path, name: str, session: SessionState, clock: Clock
) -> tuple[str, str]:
    """The outcome and its reason."""
    zone = settings.sessions.user_timezone
    relative = log_path(local_time(clock.now(), zone).date())
    if reason := note.why_not_writable(settings.workspace, relative):
        return SKIPPED, reason
    answer = session.reply
    if not answer:
        try:
            said = _answer(settings, folder, name, session, clock)
        except ProviderError as error:
            return FAILED, f"{error.message}; {error.hint}" if error.hint else error.message
        if said is None:
            return NOTHING, "the session has no text"
        # A model repeats what it was shown, and a note is sent to an embedding provider.
        answer = mask(visible(said))
    entry = prompts.entry(answer)
    if not entry:
        return NOTHING, "there was nothing to keep"
    if not session.reply:
        _keep_reply(folder, name, session.cycle, answer)
    try:
        written = note.write(settings.workspace, relative, entry)
    except NotAppended as error:
        # The answer stays in the state, so that trying again costs nothing.
        return FAILED, error.message
    if written.start_line:
        return STORED, f"{relative}#L{written.start_line}-L{written.end_line}"
    # With a reply from before, it was written by who was killed then.
    return STORED if session.reply else NOTHING, f"all of it stands in {relative} already"


def _answer(
    settings: AgentSettings, folder: Path, name: str, session: SessionState, clock: Clock
) -> str | None:
    """What the model says to as much of the conversation as it can take; None when nothing was said in it."""
    flush = settings.sessions.compaction.memory_flush
    now = local_time(clock.now(), settings.sessions.user_timezone)
    max_tokens = _turn_tokens(settings, folder, name, session)
    while True:
        turns, is_cut = recent_turns(
            folder, name, session.size, start=session.start, max_tokens=max_tokens, now=clock.now()
        )
        if not turns:
            return None
        try:
            return turn.take(
                settings,
                system=prompts.system_prompt(flush.system_prompt, now),
                conversation=prompts.conversation(turns, is_cut=is_cut),
                request=prompts.request(flush.prompt, now),
            )
        except ProviderTooBig:
            if max_tokens // _SHORTER < LEAST_TURN_TOKENS:
                raise
            max_tokens //= _SHORTER


def _turn_tokens(settings: AgentSettings, folder: Path, name: str, session: SessionState) -> int:
    """Tokens of conversation that a turn is given: as many as the session's own model could still take, and
    no more than that of the flush can, where its window is known.
    """
    registered = plan.registered(folder).get(name, plan.Registered())
    tokens = plan.threshold_of(settings, registered, model=session.size.model)
    if window := known_window(settings.sessions, settings.sessions.compaction.memory_flush.model):
        tokens = min(tokens, plan.threshold_in(settings, window))
    return max(tokens, LEAST_TURN_TOKENS)


def _keep_reply(folder: Path, name: str, cycle: str, answer: str) -> None:
    with flush_state.editing(folder) as state:
        session = state.sessions.setdefault(name, SessionState(cycle=cycle))
        if session.cycle == cycle:
            session.reply = answer


def _note_outcome(
    folder: Path, name: str, cycle: str, outcome: str, reason: str, now: float
) -> SessionState | None:
    with flush_state.editing(folder) as state:
        session = state.sessions.setdefault(name, SessionState(cycle=cycle))
        if session.cycle != cycle:
            # The session was compacted meanwhile; what is asked now is another flush.
            return None
        # A provider's words may hold what cannot be written down.
        session.outcome, session.reason, session.at = outcome, visible(reason), now
        if outcome in SETTLED:
            session.reply = ""
        return session
