"""This process's SQLite library as it would be without FTS5: for `MEMLINE_SQLITE` in tests.

A library that was built without the module refuses every statement that touches an FTS5 table with the
words used here.
"""

from __future__ import annotations

import os
import re
from typing import Any

# Named by the variable itself, or the choice would come back here.
_chosen = os.environ.pop("MEMLINE_SQLITE", None)
try:
    from memline.shared import sqlite

    _library: Any = sqlite.library.__wrapped__()
finally:
    if _chosen is not None:
        os.environ["MEMLINE_SQLITE"] = _chosen

Error = _library.Error
DatabaseError = _library.DatabaseError
OperationalError = _library.OperationalError
IntegrityError = _library.IntegrityError
sqlite_version = _library.sqlite_version
Row = _library.Row

_FTS = re.compile(r"\bfts5\b|\bchunks_fts\b(?!')", re.IGNORECASE)


class Connection(_library.Connection):  # type: ignore[misc]
    """A connection on which FTS5 is no known module."""

    def execute(self, sql: str, *values: Any) -> Any:
        _refuse(sql)
        return super().execute(sql, *values)

    def executemany(self, sql: str, *values: Any) -> Any:
        _refuse(sql)
        return super().executemany(sql, *values)


def connect(*args: Any, **options: Any) -> Any:
    return _library.connect(*args, factory=Connection, **options)


def _refuse(sql: str) -> None:
    if _FTS.search(sql):
        raise OperationalError("no such module: fts5")
