"""Set aside what the index had of a file that went alone, until it is known that its root did not go with it.

`shared.sync.vanished` decides. What is set aside is found by no search; its vectors stay in the cache.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from memline.shared.index import ledger, meta

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Its path -> root, and when it went (seconds since the epoch).
SetAside = dict[str, tuple[str, float]]

#: Path, when it is seen again (ns since the epoch), its row but for these, and the texts of its chunks.
Content = tuple[str, int, dict[str, Any], str]

_OF_FILE = "(SELECT id FROM files WHERE path = ?)"


def read(connection: Connection) -> SetAside:
    """Return the files of which something is set aside."""
    rows = connection.execute("SELECT path, root, at FROM set_aside")
    return {path: (root, at) for path, root, at in rows}


def put(connection: Connection, path: str, root: str, now: float) -> None:
    """Copy what the index has of a note, inside the transaction that then removes it."""
    entry = ledger.entry(connection, path)
    assert entry is not None
    chunks = connection.execute(
        f"SELECT start_line, end_line, heading, text FROM chunks WHERE file_id = {_OF_FILE} ORDER BY ordinal",
        (path,),
    ).fetchall()
    links = f"SELECT line, target, is_path FROM links WHERE file_id = {_OF_FILE} ORDER BY ordinal"
    tags = f"SELECT tag FROM tags WHERE file_id = {_OF_FILE}"
    row = {
        "source": entry.source,
        "outcome": entry.outcome,
        "reason": entry.reason,
        "size": entry.size,
        "mtime_ns": entry.mtime_ns,
        "ctime_ns": entry.ctime_ns,
        "hash": entry.hash,
        "chunking": entry.chunking,
        "names": entry.names,
        "day": entry.day,
        "tags": "\n".join(tag for (tag,) in connection.execute(tags, (path,))),
        "links": connection.execute(links, (path,)).fetchall(),
        "chunks": [(*place, len(text)) for *place, text in chunks],
    }
    # The texts as they are: `forget` looks for lines in damaged files.
    connection.execute(
        "INSERT OR REPLACE INTO set_aside (path, root, at, row, texts) VALUES (?, ?, ?, ?, ?)",
        (path, root, now, json.dumps(row), "".join(text for *_, text in chunks)),
    )


def contents_of(connection: Connection, paths: Iterable[str], now: float) -> list[Content]:
    """Return what is set aside of these files; stored again (`rows.restored`), they no longer are."""
    query = "SELECT row, texts FROM set_aside WHERE path = ?"
    found = []
    for path in paths:
        for row, texts in connection.execute(query, (path,)).fetchall():
            gone = ledger.entry(connection, path)
            observed_ns = max(int(now * 1e9), gone.observed_ns + 1 if gone else 0)
            found.append((path, observed_ns, json.loads(row), texts))
    return found


def drop(connection: Connection, paths: Iterable[str], now: float) -> None:
    """Let go of what was set aside of these files, inside the caller's transaction."""
    for path in paths:
        is_gone = connection.execute("DELETE FROM set_aside WHERE path = ?", (path,)).rowcount
        if is_gone and meta.get(connection, meta.TO_ERASE) != meta.ALL:
            meta.put(connection, meta.TO_ERASE, now)
