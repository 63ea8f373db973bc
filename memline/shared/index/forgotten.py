"""Keep the list of what was forgotten.

It has hashes alone, by the path of the file: of texts, so that a vector of one that comes late is not kept,
and of lines that still stand in a note or transcript, so that they are not read again.
"""

from __future__ import annotations

from collections.abc import Iterable

from memline.shared.sources.forgetting import NOTHING, ForgottenLines
from memline.shared.sources.paths import is_transcript
from memline.shared.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection


#: `everywhere` of a line that is known by its text alone: of notes, and of transcripts, which have lines of
#: another kind.
IN_NOTES, IN_TRANSCRIPTS = 1, 2

#: `everywhere` of a line that stands in no file any more and may be written anew: only a backup that is put
#: back loses it, from the file of this path, or from any where other files of the home had it.
IN_COPIES, IN_ANY_COPY = -1, -2


@value
class Group:
    """What was forgotten of one file at one time."""

    path: str
    #: Seconds since the epoch.
    at: float


def is_any(connection: Connection) -> bool:
    """Tell whether anything was forgotten: asked first for every file that is read."""
    return connection.execute("SELECT 1 FROM forgotten LIMIT 1").fetchone() is not None


def lines_of(connection: Connection, path: str) -> ForgottenLines:
    """Return the hashes of the lines of a file that are not to be read."""
    if not is_any(connection):
        return NOTHING
    query = (
        "SELECT hash FROM forgotten WHERE path = ? AND kind = 'line' AND everywhere >= 0"
        " UNION SELECT hash FROM forgotten WHERE everywhere = ? AND everywhere > 0"
    )
    place = IN_TRANSCRIPTS if is_transcript(path) else IN_NOTES
    lines = frozenset(row[0] for row in connection.execute(query, (path, place)))
    renamed: dict[str, set[bytes]] = {}
    for content, digest in connection.execute("SELECT content, hash FROM forgotten WHERE content <> ''"):
        renamed.setdefault(content, set()).add(digest)
    return ForgottenLines(
        lines=lines, by_content={content: frozenset(found) for content, found in renamed.items()}
    )


def stored(connection: Connection, path: str, content: str) -> None:
    """Note what a file is now, so that its short lines are known under another name, and take over theirs.

    Inside the caller's transaction.
    """
    connection.execute(
        "INSERT OR IGNORE INTO forgotten (path, kind, hash, at, content) SELECT ?1, kind, hash, at, content"
        " FROM forgotten WHERE content = ?2 AND content <> '' AND path <> ?1",
        (path, content),
    )
    connection.execute(
        "UPDATE forgotten SET content = ? WHERE path = ? AND kind = 'line' AND everywhere = 0",
        (content, path),
    )


#: Paths of the files that are there.
_PRESENT = "(SELECT path FROM files WHERE outcome <> 'removed')"

#: Paths that have lines of a group, by its path and time: its own, and those that its note had or has.
_NAMES = (
    "SELECT path FROM forgotten AS same WHERE same.at = {at} AND same.content <> '' AND same.hash IN"
    " (SELECT hash FROM forgotten AS own WHERE own.path = {path} AND own.at = {at} AND own.content <> '')"
)


def groups(connection: Connection) -> list[Group]:
    """List what was forgotten, the oldest first: a path and a time are one, and so are a note's two names."""
    names = _NAMES.format(path="one.path", at="one.at")
    rows = connection.execute(
        "SELECT path, at FROM (SELECT DISTINCT path, at FROM forgotten) AS one"
        f" WHERE path IN {_PRESENT} OR NOT EXISTS ({names} AND same.path IN {_PRESENT}) ORDER BY at, path"
    )
    return [Group(path=path, at=at) for path, at in rows]


def take_off(connection: Connection, group: Group) -> bool:
    """Take a group off the list, inside the caller's transaction; the next run reads what it held back.

    Returns whether it held back anything: not what stands in no file any more.
    """
    held = "SELECT 1 FROM forgotten WHERE path = ? AND at = ? AND kind = 'line' AND everywhere >= 0"
    has_held = connection.execute(held, (group.path, group.at)).fetchone() is not None
    names = _NAMES.format(path="?1", at="?2")
    connection.execute(
        "DELETE FROM forgotten WHERE at = ?2 AND (path = ?1"
        f" OR path IN ({names}) AND path NOT IN {_PRESENT})",
        (group.path, group.at),
    )
    # A long line may stand in any note. A file of which nothing was left is empty, however it is cut.
    connection.execute(
        "UPDATE files SET hash = '', chunking = '', mtime_ns = iif(outcome = 'empty', 0, mtime_ns)"
        " WHERE source = 'memory' OR path = ?",
        (group.path,),
    )
    return has_held


def texts_of(connection: Connection, path: str) -> frozenset[bytes]:
    """Return the hashes of texts that are not stored again: those of a file that still has their lines."""
    query = (
        "SELECT hash FROM forgotten WHERE path = ?1 AND kind = 'text'"
        " AND EXISTS (SELECT 1 FROM forgotten WHERE path = ?1 AND kind = 'line' AND everywhere >= 0)"
    )
    return frozenset(row[0] for row in connection.execute(query, (path,)))


def count(connection: Connection) -> int:
    """Count the texts that were forgotten."""
    row = connection.execute("SELECT count(*) FROM forgotten WHERE kind = 'text'").fetchone()
    return int(row[0])


def add(
    connection: Connection, path: str, kind: str, hashes: Iterable[bytes], now: float, *, everywhere: int = 0
) -> None:
    """Put hashes on the list, inside the caller's transaction."""
    connection.executemany(
        "INSERT INTO forgotten (path, kind, hash, at, everywhere) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET everywhere = max(everywhere, excluded.everywhere)",
        ((path, kind, digest, now, everywhere) for digest in hashes),
    )
