"""Which sessions are to be flushed now: one flush in a compaction cycle, of sessions that are alive."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.config.schema import AgentSettings
from shared.flush import state as flush_state
from shared.flush.state import SessionState
from shared.flush.threshold import flush_at, window_of

#: Seconds since its last growth after which a session is taken for over: nobody will compact it. Else the
#: first start beside a year of transcripts would flush all of them.
ALIVE_S = 3_600.0

#: Seconds after which a flush that was asked for and never answered is asked for again.
ASK_AGAIN_S = 900.0

#: Times a flush is tried in a cycle, and seconds before the second time; twice as long before the third.
MAX_ATTEMPTS = 3
FIRST_RETRY_S = 60.0

#: What a session's key says of runs that have nobody to remember for.
_OF_NOBODY = (":cron:", ":heartbeat", ":subagent:", ":hook:")

#: The original's own register of sessions, beside the transcripts; it is only read.
_REGISTER = "sessions.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What the original's register says of a session."""

    key: str = ""
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


def threshold_of(settings: AgentSettings, registered: Registered) -> int:
    """Tokens at which a session of this agent is flushed; 0: never."""
    compaction = settings.sessions.compaction
    window = window_of(settings.sessions, model=registered.model, told=registered.window)
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
    to nothing.
    """
    size = session.size
    if now - grown_at > ALIVE_S:
        return ""
    if session.cycle == size.compactions and not _may_try_again(session, now):
        return ""
    if threshold and size.tokens >= threshold:
        return f"{size.tokens} tokens of {threshold}"
    if force_bytes and size.bytes_since_compaction >= force_bytes:
        return f"{size.bytes_since_compaction} bytes since the last compaction"
    return ""


def _may_try_again(session: SessionState, now: float) -> bool:
    if session.outcome in flush_state.SETTLED or session.attempts >= MAX_ATTEMPTS:
        return False
    wait_s = FIRST_RETRY_S * 2.0 ** (session.attempts - 1)
    return now - session.at >= (ASK_AGAIN_S if session.outcome == flush_state.ASKED else wait_s)


def registered(folder: Path) -> dict[str, Registered]:
    """What the original's register says, by the name of the transcript; empty when it cannot be read."""
    try:
        content = json.loads((folder / _REGISTER).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    found: dict[str, Registered] = {}
    for key, entry in content.items() if isinstance(content, dict) else ():
        if isinstance(entry, dict) and isinstance(entry.get("sessionId"), str):
            found[f"{entry['sessionId']}.jsonl"] = Registered(
                key=str(key), model=_text(entry.get("model")), window=_count(entry.get("contextTokens"))
            )
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31
    return value if is_count else 0
