"""Find and open OpenClaw's sessions: JSONL files, and from 2026.9 on rows of the agent's database.

    <state dir>/agents/<agent>/sessions/*.jsonl                    a file a session, and its archives
    <state dir>/agents/<agent>/agent/openclaw-agent.sqlite         the same records as rows

    transcript_events(session_id, seq, event_json | event_zstd, created_at)   a record a row, from 2026.5 on

A session is called the same in both, and its lines are the same: row by row in their order. So what was
indexed as a file stays what it is when OpenClaw takes the file into its database, of which no byte changes.
Records of a kilobyte and more are compressed from 2026.9 on. An older release has fewer tables and columns.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection

import zstandard

from memline.shared.sessions.stores import (
    OpenTranscript,
    SessionFiles,
    as_ns,
    byte_length,
    path_of,
    reading_database,
)
from memline.shared.sources.discover import DiscoveredFile, Discovery, first_link
from memline.shared.sources.paths import TRANSCRIPT_PREFIX
from memline.shared.sources.safe_open import FileRefused
from memline.shared.words import counted

NAME = "openclaw"

#: Bytes of a record at most, decompressed; OpenClaw compresses none above 4 MiB.
_MAX_DECOMPRESSED = 4 << 20

#: A session: its id, the bytes of all lines, when it was written last and when its records were written anew.
_Row = tuple[str, int, int, int]


class OpenClawTranscripts(SessionFiles):
    """The sessions of one agent: rows of its database, then files; a session that is both is its rows."""

    def __init__(self, state_dir: str | Path, agent: str) -> None:
        super().__init__(NAME, state_dir, f"agents/{agent}/sessions")
        self._folder = Path(self.root, "agents", agent, "sessions")
        self._database = Path(self.root, "agents", agent, "agent", "openclaw-agent.sqlite")

    def folders(self) -> list[str]:
        return [str(self._folder), str(self._database.parent)]

    def discover(self) -> Discovery:
        files = super().discover()
        if not self._has_rows():
            return files
        if not os.path.lexists(self._folder):
            files = Discovery()
        try:
            with reading_database(NAME, self._database) as connection:
                forgotten = _table(connection, "memory_session_tombstones", "1")
                rows = {row[0]: row for row in _rows(connection) if row[0] not in forgotten}
                cold = _table(connection, "session_transcript_cold_archives", "1")
        except FileRefused as error:
            return Discovery(issues=(error.problem.reason,)).joined(files)
        paths = {path: row for session, row in rows.items() if (path := path_of(NAME, session))}
        listed = [
            DiscoveredFile(path, str(self._folder / os.path.basename(path)), *row[1:])
            for path, row in paths.items()
        ]
        unnamed = len(rows) - len(paths)
        issue = f"{counted(unnamed, 'session')} of {self._database} with an id that is not a file name"
        return Discovery(
            files=(*listed, *(file for file in files.files if file.path not in paths)),
            issues=((issue,) if unnamed else ()) + files.issues,
            left_out=tuple(
                (path, "OpenClaw has put it into cold storage")
                for session in cold
                if (path := path_of(NAME, session))
            ),
        )

    @contextmanager
    def open(self, path: str) -> Iterator[OpenTranscript]:
        session = path.removeprefix(TRANSCRIPT_PREFIX).removesuffix(".jsonl")
        if self._has_rows():
            with reading_database(NAME, self._database) as connection:
                for _, size, mtime_ns, ctime_ns in _rows(connection, session):
                    lines = _lines(connection, session)
                    yield OpenTranscript(lines=lines, size=size, mtime_ns=mtime_ns, ctime_ns=ctime_ns)
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
    if "event_utf8_bytes" in columns:
        claimed = f"min({_MAX_DECOMPRESSED}, max(0, ifnull(event_utf8_bytes, 0)))"
        length = f"CASE WHEN event_json IS NULL THEN {claimed} ELSE {length} END"
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
