"""Keep the name documents of files: file name and title as one short text, each alias as another.

A question is compared with them beside the chunks (`shared.search.keyword`), and a whole name is looked up by
its key. They go with the first chunk of their file, by a trigger; full text follows them, by triggers too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from memline.shared.sources.folding import fold
from memline.shared.sources.front_matter import name_key, stem_key
from memline.shared.sources.markdown import outline
from memline.shared.sources.paths import MEMORY
from memline.shared.sources.tokens import grams

if TYPE_CHECKING:
    from sqlite3 import Connection

_INSERT = "INSERT INTO names (file_id, key, title, text, grams) VALUES (?, ?, ?, ?, ?)"


def store(connection: Connection, file_id: int, path: str, source: str, names: str, first_text: str) -> None:
    """Store the names of a file whose first chunk is new, inside the caller's transaction.

    `names` are title and aliases of its front matter, as the ledger keeps them.
    """
    connection.executemany(_INSERT, ((file_id, *each) for each in _rows(path, source, names, first_text)))


def fill(connection: Connection) -> None:
    """Store the names of all files, inside the caller's transaction: 0.2.0 had none."""
    found = connection.execute(
        "SELECT files.id, path, source, names, text FROM files JOIN chunks ON file_id = files.id"
        " WHERE ordinal = 0 ORDER BY files.id"
    )
    for row in found:
        store(connection, *row)


def _rows(path: str, source: str, names: str, first_text: str) -> Iterator[tuple[str, str, str | None, str]]:
    """Yield key, title as written, what is searched, and its pairs of CJK characters."""
    headings = outline(first_text.split("\n")).headings if source == MEMORY else ()
    title = next((each.title for each in headings if each.title), "")
    stem = os.path.splitext(path.rpartition("/")[2])[0]
    key = stem_key(path)
    yield key, title, *_searched(f"{stem} {title or stem}")
    known = {key}
    if title and (key := name_key(title)) not in known:
        # It is a part of the first row.
        known.add(key)
        yield key, "", None, ""
    for key in filter(None, names.split("\n")):
        if key not in known:
            yield key, "", *_searched(key)


def _searched(name: str) -> tuple[str, str]:
    text = fold(name)
    return text, grams(text)
