"""Decide which sessions are flushed now: once in a compaction cycle, and only sessions that are alive."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from memline.shared.config.schema import AgentSettings, Sessions
from memline.shared.flush.state import ASKED, SessionState
from memline.shared.flush.transcript import SessionSize
from memline.shared.sources.safe_open import FileRefused, open_regular
from memline.shared.values import value
from memline.shared.words import counted

#: Seconds since its last growth after which a session counts as over: it will not be compacted any more.
#: Else the first start beside a year of transcripts would flush all of them.
ALIVE_S = 3_600.0

#: Seconds after which a flush that was requested and never reported is requested again.
REQUEST_AGAIN_S = 900.0

#: Attempts in a cycle, and seconds before the second one; twice as long before the third.
FLUSH_ATTEMPTS = 3
FIRST_RETRY_S = 60.0

#: A reply that is paid for is retried until it is in the note, as rarely as this at last.
MAX_RETRY_S = 3_600.0

#: However large the reserve is, so much of a window stays for the conversation: 8,000 tokens, of a small
#: window half. The original has the same limits; without them a reserve of 20,000 tokens is more than a
#: window of 16,384 has, and its session was never flushed.
MIN_PROMPT_TOKENS = 8_000

#: Parts of a session's key that mark background runs, whose memory is not wanted.
_BACKGROUND = (":cron:", ":heartbeat", ":subagent:", ":hook:")

#: The original's own registry of sessions, beside the transcripts; it is only read. It keeps whole prompts of
#: each session, so it may be large.
_REGISTRY = "sessions.json"
_MAX_REGISTRY_BYTES = 256 << 20


def is_on(settings: AgentSettings) -> bool:
    """Tell whether this agent's sessions are flushed: it is enabled, with a model or a command."""
    return settings.memory.enabled and settings.sessions.compaction.memory_flush.is_on


def folder_of(settings: AgentSettings) -> Path:
    """Return the folder of an agent's transcripts."""
    return settings.state_dir / "agents" / settings.agent / "sessions"


@value
class RegistryEntry:
    """A session in the original's registry."""

    key: str = ""
    #: As `provider/model` when it names both.
    model: str = ""
    #: Window in tokens; 0: not known.
    window: int = 0

    @property
    def is_background(self) -> bool:
        """Whether it is a run of a timer or a subagent."""
        return any(mark in f"{self.key}:" for mark in _BACKGROUND)


def read_registry(folder: Path) -> dict[str, RegistryEntry]:
    """Read the original's registry, by the name of the transcript; empty when it cannot be read."""
    try:
        with os.fdopen(open_regular(str(folder), _REGISTRY), "rb") as file:
            records = msgspec.json.decode(file.read(_MAX_REGISTRY_BYTES), type=dict[str, Any])
    except (FileRefused, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    entries: dict[str, RegistryEntry] = {}
    for key, record in records.items():
        if not isinstance(record, dict):
            continue
        texts = map(record.get, ("sessionId", "sessionFile", "modelProvider", "model"))
        session, file_name, provider, model = (text if isinstance(text, str) else "" for text in texts)
        window: Any = record.get("contextTokens")
        if name := os.path.basename(file_name) or (session and f"{session}.jsonl"):
            model = f"{provider}/{model}" if provider and model else model
            is_count = isinstance(window, int) and window is not True and 0 < window < 2**31
            entries[name] = RegistryEntry(key=key, model=model, window=window if is_count else 0)
    return entries


def threshold_of(settings: AgentSettings, entry: RegistryEntry | None, model: str) -> int:
    """Return the tokens at which a session is flushed; 0: never. `model`: the one in its transcript."""
    sessions, entry = settings.sessions, entry or RegistryEntry()
    known = known_window(sessions, model or entry.model)
    return threshold_in(sessions, known or entry.window or sessions.context_tokens)


def known_window(sessions: Sessions, model: str) -> int:
    """Return the configured window of a model (`provider/model` or its bare id); 0: none."""
    windows = sessions.context_windows
    return windows.get(model) or windows.get(model.partition("/")[2], 0)


def threshold_in(sessions: Sessions, window: int) -> int:
    """Return the tokens at which a session with this window is flushed; 0: never.

    `window - reserve - soft`, where the reserve leaves `MIN_PROMPT_TOKENS` or half of a small window, and
    the soft threshold takes at most half of what the reserve left.
    """
    compaction = sessions.compaction
    prompt = min(MIN_PROMPT_TOKENS, window // 2)
    room = window - min(compaction.reserve_tokens_floor, window - prompt)
    return room - min(compaction.memory_flush.soft_threshold_tokens, room // 2)


def reason_to_flush(
    session: SessionState, *, threshold: int, force_bytes: int, grown_at: float, now: float
) -> str:
    """Say why this session is flushed now; empty when it is not.

    Safe to call again and again: in a compaction cycle it says yes once, and a few times more when that
    failed. A reply that waits to be written comes before everything else.
    """
    size = session.size
    if session.reply:
        return "an answer waits to be written" if is_retry_due(session, now) else ""
    if now - min(grown_at, size.last_at or grown_at) > ALIVE_S:
        return ""
    if session.outcome and session.cycle == size.cycle and not is_retry_due(session, now):
        return ""
    if threshold and size.tokens >= threshold:
        return f"{counted(size.tokens, 'token')} of {threshold:,}"
    if force_bytes and size.bytes_since_compaction >= force_bytes:
        return f"{size.bytes_since_compaction} bytes since the last compaction"
    return ""


def is_retry_due(session: SessionState, now: float) -> bool:
    """Tell whether the last request has failed so far, and it is time to try again."""
    if not session.is_open or (session.attempts >= FLUSH_ATTEMPTS and not session.reply):
        return False
    wait_s = min(FIRST_RETRY_S * 2.0 ** min(session.attempts - 1, 16), MAX_RETRY_S)
    if session.outcome == ASKED and not session.reply:
        wait_s = REQUEST_AGAIN_S
    return now - session.at >= wait_s


def is_given_up(session: SessionState, now: float) -> bool:
    """Tell whether all attempts failed, or no worker took the request in time."""
    if session.outcome == ASKED:
        return now - session.at >= REQUEST_AGAIN_S
    return session.is_open and session.attempts >= FLUSH_ATTEMPTS


def record_size(session: SessionState, size: SessionSize) -> None:
    """Record how large a session is now."""
    before = session.size
    is_rewritten = size.head != before.head and size.head_bytes == before.head_bytes
    if is_rewritten or size.offset < before.offset:
        session.start = size.compacted_at
    session.size = size


def record_request(session: SessionState, reason: str, now: float) -> None:
    """Record that a flush is requested: of the present cycle, or of the one whose reply still waits."""
    size = session.size
    if not session.reply and (session.cycle != size.cycle or not session.outcome):
        session.cycle, session.start, session.attempts = size.cycle, size.compacted_at, 0
    session.outcome, session.reason, session.at = ASKED, reason, now
    session.attempts += 1
