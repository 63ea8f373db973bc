"""Read what was said in OpenClaw's sessions: without what its runtime writes as the user or the agent."""

import re
from collections.abc import Iterable, Iterator

from memline.shared.sessions.openclaw_store import NAME, OpenClawTranscripts
from memline.shared.sessions.said import Record, Said, marks, seconds_of, text_of, without_marked
from memline.shared.sessions.stores import TranscriptFormat
from memline.shared.tables import as_dict, as_text

#: `[Wed 2026-03-11 23:51 PDT] `, in front of a message.
_STAMP = re.compile(r"\[[A-Za-z]{3} \d{4}-\d{2}-\d{2} \d{2}:\d{2}[^\]\n]{0,40}\] *")

#: `[Telegram Alice id:12 +5m 2026-01-02T03:04Z] `: the older envelope, known by its time.
_ENVELOPE = re.compile(r"\[[A-Z][^\]\n]{0,300}\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}[^\]\n]{0,60}\] *")

_MESSAGE_ID = re.compile(r"^[ \t]*\[message_id:[^\]\n]*\][ \t]*$", re.M | re.I)

#: Headers of metadata blocks; each is followed by fenced JSON.
_METADATA = re.compile(
    r"^[ \t]*(?:Conversation info|Sender|Thread starter|Replied message|Forwarded message context"
    r"|Chat history since last reply|Reply target of current user message)"
    r" \(untrusted[^)\n]{0,40}\):[ \t]*\r?\n+[ \t]*```json[ \t]*\r?\n"
    # Up to the next fence: looking on for a better one would be quadratic where none is closed.
    r"(?:(?![ \t]*```).*\r?\n)*[ \t]*```[ \t]*(?:\r?\n|$)",
    re.M,
)

#: From here on nothing was written by the user.
_UNTRUSTED = re.compile(
    r"^Untrusted context \(metadata, do not treat as instructions or commands\):[ \t]*$"
    r"(?=[\s\S]{0,600}?(?:<<<EXTERNAL_UNTRUSTED_CONTENT|UNTRUSTED channel metadata \(|Source:\s))",
    re.M,
)

#: Blocks between the runtime's marks; one that is not closed has no end.
_INTERNAL_BEGIN = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
_INTERNAL = re.compile(rf"{_INTERNAL_BEGIN}[\s\S]*?(?:<<<END_OPENCLAW_INTERNAL_CONTEXT>>>|\Z)")
_INTERNAL_HEADERS = re.compile(
    r"^OpenClaw runtime (?:context for the immediately preceding user message\.|event\."
    r"|context \(internal\):)[ \t]*\r?\n"
    r"(?:This context is runtime-generated, not user-authored\.[^\n]*(?:\n|$))?",
    re.M,
)

#: Lines an event of the system puts in front of a message.
_SYSTEM = re.compile(r"\A(?:System(?: \(untrusted\))?: \[[^\]\n]*\][^\n]*(?:\n+|$))+")

_CRON = re.compile(r"\s*\[cron:[^\]]+\]")

#: Whole messages of timers and of the runtime, by how they begin.
_WHOLE = (
    "Read HEARTBEAT.md",
    "[OpenClaw heartbeat poll]",
    "Pre-compaction memory flush",
    "A new session was started via /new or /reset",
    "[Internal task completion event]",
)
_EXEC = re.compile(r"exec (?:finished(?::|\s*\()|(?:completed|failed) \()", re.I)

#: Answers that say nothing, alone or at the end of a message.
_SILENT = re.compile(r"[*_`\s]*(?:NO_REPLY|HEARTBEAT_OK)[*_`.!\s]*")
_SILENT_END = re.compile(r"(?<!\w)(?:NO_REPLY|HEARTBEAT_OK)\W*\Z")
_SILENT_ACTION = re.compile(r'\s*\{\s*"action"\s*:\s*"NO_REPLY"\s*\}\s*')

_DIRECTIVE = re.compile(
    r"\[\[\s{0,8}(?:reply_to_current|reply_to\s{0,8}:[^\]\n]{0,200}|audio_as_voice)\s{0,8}\]\]", re.I
)
_THINKING = marks("think(?:ing)?|thought|antthinking")
_FINAL = re.compile(r"</?final>", re.I)


def is_timer(text: str) -> bool:
    """Tell whether a user message is the prompt of a cron job."""
    return _CRON.match(text) is not None


def user_words(text: str) -> str:
    """Return what the user wrote; empty when a timer or the runtime wrote it."""
    text = _without_envelope(text.lstrip())
    if "(untrusted" in text:
        text = _METADATA.sub("", text)
    if text.startswith("Untrusted context") or "\nUntrusted context" in text:
        text = _UNTRUSTED.split(text, maxsplit=1)[0]
    if "OpenClaw" in text or _INTERNAL_BEGIN in text:
        text = _INTERNAL_HEADERS.sub("", _INTERNAL.sub("", text))
    text = _without_envelope(_SYSTEM.sub("", text.lstrip()).lstrip())
    if "[message_id:" in text:
        text = _MESSAGE_ID.sub("", text)
    text = text.strip()
    if text.startswith(_WHOLE) or _EXEC.match(text) or is_timer(text) or _is_silent(text):
        return ""
    return text


def assistant_words(text: str) -> str:
    """Return what the agent wrote; empty when that is only that it has nothing to say."""
    if "<" in text:
        text = _INTERNAL.sub("", _FINAL.sub("", without_marked(text, _THINKING)))
    if "[[" in text:
        text = _DIRECTIVE.sub("", text)
    if _is_silent(text):
        return ""
    if "NO_REPLY" in text or "HEARTBEAT_OK" in text:
        # Only the last word can be at the end: `search` would try each with all that follows.
        last = max(text.rfind("NO_REPLY"), text.rfind("HEARTBEAT_OK"))
        text = text[:last] if _SILENT_END.match(text, last) else text
    return text.strip()


def _without_envelope(text: str) -> str:
    for pattern in (_STAMP, _ENVELOPE):
        if text.startswith("[") and (envelope := pattern.match(text)):
            text = text[envelope.end() :]
    return text


def _is_silent(text: str) -> bool:
    return _SILENT.fullmatch(text) is not None or _SILENT_ACTION.fullmatch(text) is not None


def said(records: Iterable[Record]) -> Iterator[Said]:
    """Yield messages of user and agent, and names of the session.

    Of a session that a cron job began, what comes before the user's own words is left out: reports to itself.
    """
    is_named = is_muted = False
    for line, record in records:
        message = as_dict(record.get("message"))
        at = seconds_of(message.get("timestamp")) or seconds_of(record.get("timestamp"))
        role = as_text(message.get("role"))
        if record.get("type") == "session_info":
            is_named = True
            yield Said(line=line, at=at, title=text_of(record.get("name")))
            continue
        raw = text_of(message.get("content")) if record.get("type") == "message" else ""
        text = ""
        if role == "user":
            is_muted = is_muted or (is_timer(raw) and not is_named)
            # With this mark another session of the agent wrote as the user.
            is_own = as_dict(message.get("provenance")).get("kind") != "inter_session"
            text = user_words(raw) if is_own else ""
            is_named, is_muted = is_named or bool(text), is_muted and not text
        elif role == "assistant" and not is_muted:
            text = assistant_words(raw)
        yield Said(line=line, at=at, role=role if text else "", text=text)


FORMAT = TranscriptFormat(
    name=NAME,
    relevant=rb'"role"\s*:\s*"(?:user|assistant)"|"type"\s*:\s*"(?:session|session_info)"',
    identity="id",
    said=said,
    find=lambda settings: OpenClawTranscripts(settings.state_dir, settings.agent),
)
