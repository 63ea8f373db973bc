"""Read OpenClaw's sessions: JSONL files, and from 2026.9 on rows of the agent's database.

    <state dir>/agents/<agent>/sessions/*.jsonl                    a file a session, and its archives
    <state dir>/agents/<agent>/agent/openclaw-agent.sqlite         the same records as rows

    transcript_events(session_id, seq, event_json | event_zstd, created_at)   a record a row, from 2026.5 on

A session is called the same in both, and its lines are the same: row by row in their order. So what was
indexed as a file stays what it is when OpenClaw takes the file into its database, of which no byte changes.
Records of a kilobyte and more are compressed from 2026.9 on. An older release has fewer tables and columns.

What the runtime writes as the user or the agent is left out.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection

import zstandard

from memline.shared.config.schema import AgentSettings
from memline.shared.sessions.said import Record, Said, marks, seconds_of, text_of, without_marked
from memline.shared.sessions.stores import (
    Opened,
    SessionFiles,
    as_ns,
    byte_length,
    path_of,
    reading_database,
)
from memline.shared.sources.discover import DiscoveredFile, Discovery, first_link
from memline.shared.sources.paths import TRANSCRIPT_PREFIX
from memline.shared.sources.safe_open import FileRefused
from memline.shared.values import as_dict, as_text

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
    if text.startswith(_WHOLE) or _EXEC.match(text) or _CRON.match(text) or _is_silent(text):
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


#: Bytes of a record at most, decompressed; OpenClaw compresses none above 4 MiB.
_MAX_DECOMPRESSED = 4 << 20

#: A session: its id, the bytes of all lines, when it was written last and when its records were written anew.
_Row = tuple[str, int, int, int]


class OpenClaw(SessionFiles):
    """The sessions of one agent: rows of its database, then files; a session that is both is its rows."""

    name = "openclaw"
    relevant = rb'"role"\s*:\s*"(?:user|assistant)"|"type"\s*:\s*"(?:session|session_info)"'
    identity = "id"

    def __init__(self, settings: AgentSettings) -> None:
        self.root = os.path.abspath(os.path.expanduser(settings.state_dir))
        self.patterns = (f"agents/{settings.agent}/sessions",)
        self._folder = Path(self.root, self.patterns[0])
        self._database = Path(self.root, "agents", settings.agent, "agent", "openclaw-agent.sqlite")

    @staticmethod
    def said(records: Iterable[Record]) -> Iterator[Said]:
        """Yield messages of user and agent, and names of the session.

        Of a session that a cron job began, what comes before the user's own words is left out.
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
                is_muted = is_muted or (bool(_CRON.match(raw)) and not is_named)
                # With this mark another session of the agent wrote as the user.
                is_own = as_dict(message.get("provenance")).get("kind") != "inter_session"
                text = user_words(raw) if is_own else ""
                is_named, is_muted = is_named or bool(text), is_muted and not text
            elif role == "assistant" and not is_muted:
                text = assistant_words(raw)
            yield Said(line=line, at=at, role=role if text else "", text=text)

    def folders(self) -> list[str]:
        return [str(self._folder), str(self._database.parent)]

    def discover(self) -> Discovery:
        files = super().discover()
        if not self._has_rows():
            return files
        if not os.path.lexists(self._folder):
            files = Discovery()
        try:
            with reading_database(self.name, self._database) as connection:
                forgotten = _table(connection, "memory_session_tombstones", "1")
                rows = {row[0]: row for row in _rows(connection) if row[0] not in forgotten}
        except FileRefused as error:
            return Discovery(issues=(error.problem.reason,)).joined(files)
        paths = {path: row for session, row in rows.items() if (path := path_of(self.name, session))}
        listed = [
            DiscoveredFile(path, str(self._folder / os.path.basename(path)), *row[1:])
            for path, row in paths.items()
        ]
        files_alone = (file for file in files.files if file.path not in paths)
        return Discovery(files=(*listed, *files_alone), issues=files.issues)

    @contextmanager
    def open(self, path: str) -> Iterator[Opened]:
        session = path.removeprefix(TRANSCRIPT_PREFIX).removesuffix(".jsonl")
        if self._has_rows():
            with reading_database(self.name, self._database) as connection:
                for row in _rows(connection, session):
                    yield DiscoveredFile(path, str(self._database), *row[1:]), _lines(connection, session)
                    return
        with super().open(path) as opened:
            yield opened

    def _has_rows(self) -> bool:
        try:
            return self._database.is_file() and first_link(self.root, str(self._database)) is None
        except OSError:
            return False


def _rows(connection: Connection, *session: str) -> Iterator[_Row]:
    """Yield all sessions, or the one that is asked for."""
    columns = _columns(connection, "transcript_events")
    if not columns:
        return
    rewritten = _table(connection, "transcript_rewrite_watermarks", "updated_at")
    length = byte_length("event_json")
    if "event_zstd" in columns:
        length += " + " + byte_length("event_zstd")
    query = (
        f"SELECT session_id, count(*) + sum({length}), max(created_at) FROM transcript_events"
        f"{' WHERE session_id = ?' if session else ''} GROUP BY session_id ORDER BY 1"
    )
    for found, size, time_ms in connection.execute(query, session):
        yield found, size, as_ns(time_ms), as_ns(rewritten.get(found, 0))


def _lines(connection: Connection, session: str) -> Iterator[bytes]:
    """Yield the records of a session, one a line."""
    compressed = "event_zstd" if "event_zstd" in _columns(connection, "transcript_events") else "NULL"
    query = f"SELECT CAST(event_json AS BLOB), {compressed} FROM transcript_events WHERE session_id = ?"
    for plain, packed in connection.execute(f"{query} ORDER BY seq", (session,)):
        data = _decompressed(packed) if plain is None else plain
        # A record that is damaged takes its place and says nothing. Its own line ends would be lines.
        yield (data or b"?").replace(b"\n", b" ") + b"\n"


def _decompressed(data: object) -> bytes:
    if not isinstance(data, bytes):
        return b""
    try:
        # A stream, since a frame may promise any size.
        unpacker = zstandard.ZstdDecompressor(max_window_size=2 * _MAX_DECOMPRESSED)
        with unpacker.stream_reader(data) as stream:
            record = bytes(stream.read(_MAX_DECOMPRESSED + 1))
    except zstandard.ZstdError:
        return b""
    return record if len(record) <= _MAX_DECOMPRESSED else b""


def _table(connection: Connection, table: str, column: str) -> dict[str, object]:
    """Return a column of a table by the id of a session; nothing where a release has no such table."""
    if not _columns(connection, table):
        return {}
    return dict(connection.execute(f"SELECT session_id, {column} FROM {table}"))


def _columns(connection: Connection, table: str) -> set[str]:
    return {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
