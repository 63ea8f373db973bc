"""Which sessions are to be flushed now: one flush in a compaction cycle, of sessions that are alive."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from shared.config.schema import AgentSettings
from shared.flush.size import SessionSize
from shared.flush.state import ASKED, FAILED, SessionState
from shared.flush.threshold import flush_at, window_of
from shared.sources.safe_open import FileRefused, open_regular

#: Seconds since its last growth after which a session is taken for over: nobody will compact it. Else the
#: first start beside a year of transcripts would flush all of them.
ALIVE_S = 3_600.0

#: Seconds after which a flush that was asked for and never answered is asked for again.
ASK_AGAIN_S = 900.0

#: Times a flush is tried in a cycle, and seconds before the second time; twice as long before the third.
MAX_ATTEMPTS = 3
FIRST_RETRY_S = 60.0

#: A reply that is paid for is tried to be written until it is, as rarely as this at last.
MAX_RETRY_S = 3_600.0

#: What a session's key says of runs that have nobody to remember for.
_OF_NOBODY = (":cron:", ":heartbeat", ":subagent:", ":hook:")

#: The original's own register of sessions, beside the transcripts; it is only read. It keeps whole prompts of
#: each session, so it may be large.
_REGISTER = "sessions.json"
_MAX_REGISTER_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What the original's register says of a session."""

    key: str = ""
    #: As `provider/model` when it says both.
    model: str = ""
    #: Window in tokens; 0: it does not say.
    window: int = 0

    @property
    def is_of_nobody(self) -> bool:
        """Whether it is a run of a timer or a helper, whose memory is not wanted."""
        return any(mark in f"{self.key}:" for mark in _OF_NOBODY)


def is_on(settings: AgentSettings) -> bool:
    """Whether this agent's sessions are flushed: it is enabled, and there is somebody to take the turn."""
    flush = settings.sessions.compaction.memory_flush
    return settings.memory.enabled and flush.enabled and bool(flush.model or flush.command)


def folder_of(settings: AgentSettings) -> Path:
    """Where the transcripts of an agent are."""
    return settings.state_dir / "agents" / settings.agent / "sessions"


def threshold_of(settings: AgentSettings, registered: Registered, *, model: str = "") -> int:
    """Tokens at which a session of this agent is flushed; 0: never. `model`: the one in its transcript."""
    window = window_of(settings.sessions, model=model or registered.model, told=registered.window)
    return threshold_in(settings, window)


def threshold_in(settings: AgentSettings, window: int) -> int:
    """The same for a window of so many tokens."""
    compaction = settings.sessions.compaction
    return flush_at(
        window,
        reserve_tokens=compaction.reserve_tokens_floor,
        soft_tokens=compaction.memory_flush.soft_threshold_tokens,
    )


def reason_to_flush(
    session: SessionState, *, threshold: int, force_bytes: int, grown_at: float, now: float
) -> str:
    """Why this session is to be flushed now, in words; empty when it is not.

    Safe to ask again and again: in a compaction cycle it says yes once, and a few times more when that came
    to nothing. A reply that waits to be written comes before everything else.
    """
    size = session.size
    if session.reply:
        return "an answer waits to be written" if is_due_again(session, now) else ""
    if now - min(grown_at, size.last_at or grown_at) > ALIVE_S:
        return ""
    if session.outcome and session.cycle == size.cycle and not is_due_again(session, now):
        return ""
    if threshold and size.tokens >= threshold:
        return f"{size.tokens} tokens of {threshold}"
    if force_bytes and size.bytes_since_compaction >= force_bytes:
        return f"{size.bytes_since_compaction} bytes since the last compaction"
    return ""


def grow(session: SessionState, size: SessionSize) -> None:
    """Write down how large a session is now."""
    was = session.size
    is_rewritten = size.head != was.head and size.head_bytes == was.head_bytes
    if is_rewritten or size.offset < was.offset:
        session.start = size.compacted_at
    session.size = size


def ask(session: SessionState, reason: str, now: float) -> None:
    """Write down that a flush is asked for: of the present cycle, or of the one whose reply still waits."""
    size = session.size
    if not session.reply and (session.cycle != size.cycle or not session.outcome):
        session.cycle, session.start, session.attempts = size.cycle, size.compacted_at, 0
    session.outcome, session.reason, session.at = ASKED, reason, now
    session.attempts += 1


def take_back(session: SessionState, reason: str, now: float) -> None:
    """Write down that nobody could be asked, so that it counts for nothing."""
    session.outcome, session.reason, session.at = FAILED, reason, now
    session.attempts -= 1


def is_due_again(session: SessionState, now: float) -> bool:
    """Whether what was asked for came to nothing so far, and it is time to try again."""
    if not session.is_open or (session.attempts >= MAX_ATTEMPTS and not session.reply):
        return False
    wait_s = min(FIRST_RETRY_S * 2.0 ** min(max(session.attempts - 1, 0), 16), MAX_RETRY_S)
    if session.outcome == ASKED and not session.reply:
        wait_s = ASK_AGAIN_S
    return now - session.at >= wait_s


def is_given_up(session: SessionState, now: float) -> bool:
    """Whether a session's flush was not possible as often as it is tried, or nobody took it in time."""
    if session.outcome == ASKED:
        return now - session.at >= ASK_AGAIN_S
    return session.is_open and session.attempts >= MAX_ATTEMPTS


class _Entry(msgspec.Struct):
    """An entry of the register, as far as it is read; values may be anything."""

    sessionId: Any = None
    sessionFile: Any = None
    model: Any = None
    modelProvider: Any = None
    contextTokens: Any = None


def registered(folder: Path) -> dict[str, Registered]:
    """What the original's register says, by the name of the transcript; empty when it cannot be read."""
    try:
        opened = open_regular(str(folder), _REGISTER)
    except FileRefused:
        return {}
    with os.fdopen(opened, "rb") as file:
        entries = _decoded(file.read(_MAX_REGISTER_BYTES), dict[str, msgspec.Raw]) or {}
    found: dict[str, Registered] = {}
    for key, raw in entries.items():
        entry = _decoded(raw, _Entry)
        if entry is not None:
            told = Registered(key=key, model=_model(entry), window=_count(entry.contextTokens))
            if name := os.path.basename(_text(entry.sessionFile)):
                found[name] = told
            elif name := _text(entry.sessionId):
                found[f"{name}.jsonl"] = told
    return found


def _decoded(content: bytes | msgspec.Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _model(entry: _Entry) -> str:
    provider, model = _text(entry.modelProvider), _text(entry.model)
    return f"{provider}/{model}" if provider and model else model


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31
    return value if is_count else 0
