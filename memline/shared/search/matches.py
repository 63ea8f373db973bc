"""Ask FTS5 how many rows match a phrase, and how well, and keep its answers until the index changes.

FTS5's `bm25` of one phrase is its idf times how well a row fits. Its idf is clamped to 0.000001 for a word in
half of the rows, which ranked small memories by chance: it is divided out here, and the scorer has its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from sqlite3 import Connection

from memline.shared.index.driver import json_ids, scalar

#: FTS5's k1.
K1 = 1.2

#: Rows of a phrase up to which its scores are kept; and rows that are kept in all, 100 bytes each.
KEPT_ROWS, MOST_KEPT = 5_000, 200_000

#: The full-text tables: of chunks, whose headings and paths weigh .7, and of names.
CHUNKS, NAMES = "chunks", "names"

_COUNT = "SELECT value, (SELECT count(*) FROM {0}_fts WHERE {0}_fts MATCH value) FROM json_each(?) AS phrases"
_IN_FILES = (
    "SELECT value FROM json_each(?1) AS phrases"
    " WHERE EXISTS (SELECT 1 FROM {0}_fts JOIN {0} ON {0}.id = {0}_fts.rowid"
    " WHERE {0}_fts MATCH value AND file_id IN (SELECT value FROM json_each(?2)))"
)
# CROSS JOIN: the phrases first. The plus sign: FTS5 finds the rows of a phrase, and these are looked up.
_SCORES = (
    "SELECT key, {0}_fts.rowid, bm25({0}_fts, {1}) FROM json_each(?1) CROSS JOIN {0}_fts"
    " WHERE {0}_fts MATCH value"
)
_AMONG = " AND +{0}_fts.rowid IN (SELECT value FROM json_each(?2))"
_WEIGHTS = {CHUNKS: "1.0, 0.7, 0.7, 1.0", NAMES: "1.0, 1.0"}

#: Row -> how well it fits a phrase, 0 to 1.
Fits = Mapping[int, float]


class Matches:
    """What FTS5 says of phrases. Not safe to use from several threads at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._version: int | None = None
        self._forget()

    def _forget(self) -> None:
        self._totals: dict[str, int] = {}
        self._counts: dict[tuple[str, str, str | None], int] = {}
        self._fits: dict[tuple[str, str], dict[int, float]] = {}
        self._asked: set[tuple[str, str]] = set()
        self._files: dict[tuple[str, int], int] = {}
        self._kept_rows = 0

    def follow(self) -> None:
        """Forget everything if the index has changed; first in each read transaction."""
        version = scalar(self._connection, "PRAGMA data_version")
        if version != self._version or self._kept_rows + len(self._files) > MOST_KEPT:
            self._forget()
        self._version = version

    def total(self, table: str) -> int:
        """Count all rows of a table."""
        if table not in self._totals:
            self._totals[table] = int(scalar(self._connection, f"SELECT count(*) FROM {table}_fts"))
        return self._totals[table]

    def counts(
        self, table: str, phrases: Iterable[str], files: str | None = None, *, keep: bool = True
    ) -> dict[str, int]:
        """Count the rows of each phrase; 0 where none is in `files`, a JSON array of the file ids searched.

        How rare a phrase is, is known from all files.
        """
        phrases, known = dict.fromkeys(phrases), self._counts if keep else {}
        if new := [each for each in phrases if (table, each, files) not in known]:
            found = dict(self._connection.execute(_COUNT.format(table), (json.dumps(new),)).fetchall())
            if files is not None:
                some = json.dumps([each for each in new if found[each]])
                there = self._connection.execute(_IN_FILES.format(table), (some, files))
                found = dict.fromkeys(new, 0) | {each: found[each] for (each,) in there}
            known |= {(table, each, files): count for each, count in found.items()}
        return {each: known[table, each, files] for each in phrases}

    def fits(
        self, table: str, counts: Mapping[str, int], among: Collection[int] | None = None
    ) -> dict[str, Fits]:
        """Return how well rows fit each of the phrases, given with their counts.

        `among`: only these rows are wanted; of a phrase that is kept all come. It is kept once it was asked
        twice, or about all rows.
        """
        new = {each: count for each, count in counts.items() if (table, each) not in self._fits}
        kept = {
            each: count
            for each, count in new.items()
            if count <= KEPT_ROWS and (among is None or (table, each) in self._asked)
        }
        others = {each: count for each, count in new.items() if each not in kept}
        for each, mine in self._read(table, kept).items():
            self._fits[table, each] = mine
            self._kept_rows += len(mine)
        self._asked.update((table, each) for each in others)
        fits = self._read(table, others, among)
        return {each: fits[each] if each in fits else self._fits[table, each] for each in counts}

    def _read(
        self, table: str, counts: Mapping[str, int], among: Collection[int] | None = None
    ) -> dict[str, dict[int, float]]:
        if not counts:
            return {}
        total, query = self.total(table), _SCORES.format(table, _WEIGHTS[table])
        values = [json.dumps([*counts])]
        if among is not None:
            query, values = query + _AMONG.format(table), [*values, json_ids(among)]
        fits: dict[str, dict[int, float]] = {each: {} for each in counts}
        scaled = [
            (fits[each], -1.0 / ((K1 + 1) * max(1e-6, math.log((total - count + 0.5) / (count + 0.5)))))
            for each, count in counts.items()
        ]
        for key, row, bm25 in self._connection.execute(query, values):
            mine, scale = scaled[key]
            mine[row] = bm25 * scale
        return fits

    def files_of(self, table: str, rows: Iterable[int]) -> dict[int, int]:
        """Return row -> file id, of chunks or names."""
        rows, known = [*rows], self._files
        if new := [row for row in rows if (table, row) not in known]:
            query = f"SELECT id, file_id FROM {table} WHERE id IN (SELECT value FROM json_each(?))"
            known |= {
                (table, row): file_id for row, file_id in self._connection.execute(query, (json_ids(new),))
            }
        return {row: known[table, row] for row in rows}
