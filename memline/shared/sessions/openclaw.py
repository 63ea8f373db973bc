"""Read OpenClaw's sessions: JSONL files, and from 2026.9 on rows of the agent's database.

    <state dir>/agents/<agent>/sessions/*.jsonl                    a file a session, and its archives
    <state dir>/agents/<agent>/agent/openclaw-agent.sqlite         the same records as rows

A session is called the same in both, and its lines are the same: row by row in their order. So what was
indexed as a file stays what it is when OpenClaw takes the file into its database.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from memline.shared.config.schema import AgentSettings
from memline.shared.sessions import openclaw_rows
from memline.shared.sessions.said import MarkedParts, Record, Said, once, seconds_of, text_of
from memline.shared.sessions.stores import OpenTranscript, SessionFiles, TranscriptFormat, TranscriptStore
from memline.shared.sources.discover import DiscoveredFile, Discovery, first_link
from memline.shared.sources.paths import TRANSCRIPT_PREFIX, FileLocation, is_storable, is_transcript_name
from memline.shared.sources.safe_open import FileRefused
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
_THINKING = MarkedParts("think(?:ing)?|thought|antthinking")
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
        text = _INTERNAL.sub("", _FINAL.sub("", _THINKING.taken_out(text)))
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


#: The database, below the state directory, and what SQLite keeps beside it.
DATABASE = "openclaw-agent.sqlite"

_ENDING = ".jsonl"


class OpenClawTranscripts(SessionFiles):
    """The sessions of one agent: rows of its database, then files; a session that is both is its rows."""

    def __init__(self, state_dir: str | Path, agent: str) -> None:
        folder = os.path.join("agents", agent, "sessions")
        super().__init__(state_dir, TRANSCRIPT_PREFIX, folder, title="OpenClaw")
        self.folder = os.path.join(self.root, folder)
        self._database = Path(self.root, "agents", agent, "agent", DATABASE)

    def discover(self) -> Discovery:
        """Find all transcripts, and all that look so but cannot be read."""
        files = super().discover()
        if not self._has_rows():
            return files
        if not os.path.lexists(self.folder):
            files = Discovery()
        try:
            found = openclaw_rows.list_sessions(self._database)
        except FileRefused as error:
            return Discovery(issues=(error.problem.reason,)).joined(files)
        rows = {
            (path := f"{TRANSCRIPT_PREFIX}{row.session}{_ENDING}"): DiscoveredFile(
                path, os.path.join(self.folder, row.session + _ENDING), row.size, row.mtime_ns, row.ctime_ns
            )
            for row in found.rows
        }
        others = (file for file in files.files if file.path not in rows)
        cold = (f"{TRANSCRIPT_PREFIX}{session}{_ENDING}" for session in found.cold)
        return Discovery(
            files=(*rows.values(), *others),
            issues=(*found.issues, *files.issues),
            left_out=tuple((path, "OpenClaw has put it into cold storage") for path in cold),
        )

    def open(self, path: str) -> OpenTranscript:
        """Open the transcript of a ledger path. Raises FileRefused."""
        session = path.removeprefix(TRANSCRIPT_PREFIX).removesuffix(_ENDING)
        opened = openclaw_rows.open_session(self._database, session) if self._has_rows() else None
        return opened or super().open(path)

    def locate(self, path: str) -> FileLocation | None:
        """Return where the file of a ledger or absolute path is, or could be; None when it is no session."""
        above, name = os.path.split(path)
        is_named = above in (TRANSCRIPT_PREFIX.rstrip("/"), self.folder) and "\0" not in name
        if not is_named or not is_storable(name) or not is_transcript_name(name):
            return None
        absolute = os.path.join(self.folder, name)
        return FileLocation(path=TRANSCRIPT_PREFIX + name, absolute=absolute, anchor=self.root)

    def folders(self) -> tuple[str, ...]:
        """Return the folder of the files, and the one of the database."""
        return (self.folder, str(self._database.parent))

    def is_shared(self, absolute: str) -> bool:
        """Tell whether it is the database or its log."""
        return absolute in (str(self._database), f"{self._database}-wal")

    def sessions_of(self, key: str) -> set[str]:
        """Return the ids of the sessions that have this key in the database."""
        return openclaw_rows.sessions_of(self._database, key) if self._has_rows() else set()

    def _has_rows(self) -> bool:
        try:
            return self._database.is_file() and first_link(self.root, str(self._database)) is None
        except OSError:
            return False


def _find(settings: AgentSettings) -> tuple[TranscriptStore, ...]:
    return (OpenClawTranscripts(settings.state_dir, settings.agent),)


def said(records: Iterable[Record]) -> Iterator[Said]:
    """Yield messages of user and agent, and names of the session.

    Of a session that a cron job began, what comes before the user's own words is left out: reports to itself.
    """
    is_named = is_muted = False
    for line, record in once(records, "id"):
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
    name="openclaw",
    relevant=rb'"role"\s*:\s*"(?:user|assistant)"|"type"\s*:\s*"(?:session|session_info)"',
    said=said,
    find=_find,
)
