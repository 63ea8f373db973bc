"""Read sessions that OpenClaw keeps as rows of its database, without a byte of it changing.

    transcript_events(session_id, seq, event_json | event_zstd, created_at)   a record a row, from 2026.5 on

A session reads like a file: the records in their order, one a line. Records of a kilobyte and more are
compressed from 2026.9 on. Tables and columns that a release does not have are done without.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from sqlite3 import Connection

import msgspec
import zstandard

from memline.shared.sessions.stores import OpenTranscript, as_ns, byte_length, reading_database
from memline.shared.sources.paths import is_storable, is_transcript_name
from memline.shared.sqlite import library
from memline.shared.words import counted

#: Bytes of a record at most, decompressed; OpenClaw compresses none above 4 MiB.
_MAX_DECOMPRESSED = 4 << 20

_reading = partial(reading_database, "OpenClaw")


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session, with the state that a scan compares."""

    session: str
    #: Bytes of all lines.
    size: int
    mtime_ns: int
    #: When its records were written anew.
    ctime_ns: int


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of a database, but for those that OpenClaw has forgotten."""

    rows: tuple[SessionRow, ...] = ()
    #: Sessions whose records OpenClaw has put away into files of its own.
    cold: tuple[str, ...] = ()
    issues: tuple[str, ...] = ()


def list_sessions(database: Path) -> Listing:
    """List the sessions that have rows. Raises FileRefused."""
    with _reading(database) as connection:
        forgotten = _table(connection, "memory_session_tombstones", "1")
        rows = [row for row in _rows(connection, "") if row.session not in forgotten]
        cold = _table(connection, "session_transcript_cold_archives", "1")
    unnamed = sum(not _is_name(row.session) for row in rows)
    issue = f"{counted(unnamed, 'session')} of {database} with an id that is not a file name"
    return Listing(
        rows=tuple(row for row in rows if _is_name(row.session)),
        cold=tuple(filter(_is_name, cold)),
        issues=(issue,) if unnamed else (),
    )


def open_session(database: Path, session: str) -> OpenTranscript | None:
    """Open a session as lines; None when it has no rows. Raises FileRefused."""
    with ExitStack() as stack:
        connection = stack.enter_context(_reading(database))
        row = next(_rows(connection, "WHERE session_id = ?", session), None)
        if row is None:
            return None
        return OpenTranscript(
            lines=_lines(connection, session),
            size=row.size,
            mtime_ns=row.mtime_ns,
            ctime_ns=row.ctime_ns,
            close=stack.pop_all().close,
        )


def sessions_of(database: Path, key: str) -> set[str]:
    """Return the ids of the sessions that have this key. Raises FileRefused."""
    with _reading(database) as connection:
        keys = _table(connection, "session_windows", "session_key")
        return {session for session, named in keys.items() if named == key and _is_name(session)}


def _rows(connection: Connection, where: str, *values: str) -> Iterator[SessionRow]:
    columns = _columns(connection)
    if not columns:
        return
    written = _table(connection, "transcript_rewrite_watermarks", "updated_at")
    length = byte_length("event_json")
    if "event_utf8_bytes" in columns:
        claimed = f"min({_MAX_DECOMPRESSED}, max(0, ifnull(event_utf8_bytes, 0)))"
        length = f"CASE WHEN event_json IS NULL THEN {claimed} ELSE {length} END"
    query = f"SELECT session_id, count(*) + sum({length}), max(created_at) FROM transcript_events {where}"
    for session, size, time_ms in connection.execute(f"{query} GROUP BY session_id ORDER BY 1", values):
        ctime_ns = as_ns(written.get(session, 0))
        yield SessionRow(session=session, size=size, mtime_ns=as_ns(time_ms), ctime_ns=ctime_ns)


def _lines(connection: Connection, session: str) -> Iterator[bytes]:
    """Yield the records of a session, one a line."""
    compressed = "event_zstd" if "event_zstd" in _columns(connection) else "NULL"
    query = f"SELECT CAST(event_json AS BLOB), {compressed} FROM transcript_events WHERE session_id = ?"
    try:
        for plain, packed in connection.execute(f"{query} ORDER BY seq", (session,)):
            data = _decompressed(packed) if plain is None else plain
            # A record that is damaged takes its place and says nothing. Its own line ends would be lines.
            yield (data or b"?").replace(b"\n", b" ") + b"\n"
    except library().Error as error:
        raise OSError(f"the database cannot be read: {error}") from error


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
    """Return what a table says by the id of a session; nothing where a release has no such table."""
    if not _columns(connection, table):
        return {}
    return dict(connection.execute(f"SELECT session_id, {column} FROM {table}"))


def _columns(connection: Connection, table: str = "transcript_events") -> set[str]:
    return {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}


def _is_name(session: object) -> bool:
    if not isinstance(session, str) or "/" in session or "\0" in session or len(session) > 200:
        return False
    return is_storable(session) and is_transcript_name(f"{session}.jsonl")
