"""Read in the index that qmd keeps which file a document is, for versions that answer with its hash alone."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from memline.shared.index.driver import library

#: Milliseconds to wait for a writer: qmd itself, which is asked again later.
_BUSY_MS = 1


def document(index: Path, docid: str) -> tuple[str, str] | None:
    """Return collection and path of the first active document whose hash begins so; None for none.

    Raises OSError when the index cannot be read now.
    """
    sqlite = library()
    try:
        with closing(sqlite.connect(f"{index.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            row = connection.execute(
                "SELECT collection, path FROM documents WHERE hash LIKE ? || '%' AND active = 1 LIMIT 1",
                (docid,),
            ).fetchone()
    except sqlite.Error as error:
        raise OSError(str(error)) from error
    return (str(row[0]), str(row[1])) if row else None
