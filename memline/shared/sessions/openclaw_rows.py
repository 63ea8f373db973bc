"""Read sessions that OpenClaw keeps as rows of its database, without a byte of it changing.

    transcript_events(session_id, seq, event_json | event_zstd, created_at)   a record a row, from 2026.5 on

A session reads like a file: the records in their order, one a line. Records of a kilobyte and more are
compressed from 2026.9 on. Tables and columns that a release does not have are done without.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from sqlite3 import Connection

import msgspec
import zstandard

from memline.shared.sessions.stores import OpenTranscript, as_ns, database_faults
from memline.shared.sources.paths import is_storable, is_transcript_name
from memline.shared.sqlite import library, open_foreign, reading_foreign
from memline.shared.words import counted

#: Bytes of a record at most, decompressed; OpenClaw compresses none above 4 MiB.
_MAX_DECOMPRESSED = 4 << 20


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session, with the state that a scan compares."""

    session: str
    #: Bytes of all lines.
    size: int
    mtime_ns: int
    #: When its records were written anew.
    ctime_ns: int


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of a database."""

    rows: tuple[SessionRow, ...] = ()
    #: Sessions whose records OpenClaw has put away into files of its own.
    cold: tuple[str, ...] = ()
    issues: tuple[str, ...] = ()


def list_sessions(database: Path) -> Listing:
    """List the sessions that have rows, but for those that OpenClaw has forgotten. Raises FileRefused."""
    with _reading(database) as connection:
        columns = _columns(connection)
        if not columns:
            return Listing()
        written, cold, forgotten = (
            dict(connection.execute(f"SELECT session_id, {column} FROM {table}"))
            if _columns(connection, table)
            else {}
            for table, column in (
                ("transcript_rewrite_watermarks", "updated_at"),
                ("session_transcript_cold_archives", "1"),
                ("memory_session_tombstones", "1"),
            )
        )
        query = (
            f"SELECT session_id, count(*) + sum({_length(columns)}), max(created_at) FROM transcript_events"
            " GROUP BY session_id ORDER BY session_id"
        )
        rows, unnamed = [], 0
        for session, size, time_ms in connection.execute(query):
            if not _is_name(session):
                unnamed += 1
            elif session not in forgotten:
                mtime, ctime = as_ns(time_ms), as_ns(written.get(session, 0))
                rows.append(SessionRow(session=session, size=size, mtime_ns=mtime, ctime_ns=ctime))
        issues = (
            (f"{counted(unnamed, 'session')} of {database} with an id that is not a file name",)
            if unnamed
            else ()
        )
        return Listing(rows=tuple(rows), cold=tuple(filter(_is_name, cold)), issues=issues)


def open_session(database: Path, session: str) -> OpenTranscript | None:
    """Open a session as lines; None when it has no rows. Raises FileRefused."""
    with _faults(database):
        connection = open_foreign(database)
    try:
        with _faults(database):
            connection.execute("BEGIN")
            columns = _columns(connection)
            size, time_ms, written_ms = None, 0, 0
            if columns:
                query = f"SELECT count(*) + sum({_length(columns)}), max(created_at) FROM transcript_events"
                size, time_ms = connection.execute(f"{query} WHERE session_id = ?", (session,)).fetchone()
            if not size:
                connection.close()
                return None
            if _columns(connection, "transcript_rewrite_watermarks"):
                query = "SELECT updated_at FROM transcript_rewrite_watermarks WHERE session_id = ?"
                (written_ms,) = connection.execute(query, (session,)).fetchone() or (0,)
    except BaseException:
        connection.close()
        raise
    return OpenTranscript(
        lines=_lines(connection, session, columns),
        size=size,
        mtime_ns=as_ns(time_ms),
        ctime_ns=as_ns(written_ms),
        close=connection.close,
    )


def _lines(connection: Connection, session: str, columns: set[str]) -> Iterator[bytes]:
    """Yield the records of a session, one a line."""
    compressed = "event_zstd" if "event_zstd" in columns else "NULL"
    query = f"SELECT CAST(event_json AS BLOB), {compressed} FROM transcript_events WHERE session_id = ?"
    try:
        for plain, packed in connection.execute(f"{query} ORDER BY seq", (session,)):
            data = _decompressed(packed) if plain is None else plain
            # A record that is damaged takes its place and says nothing. Its own line ends would be lines.
            yield (data or b"?").replace(b"\n", b" ") + b"\n"
    except library().Error as error:
        raise OSError(f"the database cannot be read: {error}") from error


def sessions_of(database: Path, key: str) -> set[str]:
    """Return the ids of the sessions that have this key. Raises FileRefused."""
    with _reading(database) as connection:
        if not _columns(connection, "session_windows"):
            return set()
        query = "SELECT session_id FROM session_windows WHERE session_key = ?"
        return {session for (session,) in connection.execute(query, (key,)) if _is_name(session)}


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


def _length(columns: set[str]) -> str:
    """Return the expression for the bytes of a record."""
    # Without the cast the whole record would be read, pages of overflow and all.
    has_octets = library().sqlite_version_info >= (3, 43)
    plain = "octet_length(event_json)" if has_octets else "length(CAST(event_json AS BLOB))"
    if "event_utf8_bytes" not in columns:
        return f"ifnull({plain}, 0)"
    claimed = f"min({_MAX_DECOMPRESSED}, max(0, ifnull(event_utf8_bytes, 0)))"
    return f"CASE WHEN event_json IS NULL THEN {claimed} ELSE {plain} END"


def _columns(connection: Connection, table: str = "transcript_events") -> set[str]:
    return {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}


def _is_name(session: object) -> bool:
    if not isinstance(session, str) or "/" in session or "\0" in session or len(session) > 200:
        return False
    return is_storable(session) and is_transcript_name(f"{session}.jsonl")


_faults = partial(database_faults, "OpenClaw")


@contextmanager
def _reading(database: Path) -> Iterator[Connection]:
    with _faults(database), reading_foreign(database) as connection:
        yield connection
