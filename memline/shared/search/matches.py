"""Ask FTS5 how many rows match a phrase, and how well, and keep what the index says until it changes.

FTS5's `bm25` of one phrase is its idf times how well a row fits. Its idf is clamped to 0.000001 for a word in
half of the rows, which ranked small memories by chance: it is divided out here, and the scorer has its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from sqlite3 import Connection
from typing import Any, NamedTuple

from memline.shared.index.driver import json_ids, scalar

#: FTS5's k1.
K1 = 1.2

#: Rows of a phrase up to which its scores are kept; and what is kept in all, 100 bytes each.
KEPT_ROWS, MOST_KEPT = 5_000, 200_000

#: The full-text tables: of chunks, whose headings and paths weigh .7, and of names.
CHUNKS, NAMES = "chunks", "names"

_COUNT = (
    "SELECT value, (SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH value),"
    " (SELECT count(*) FROM names_fts WHERE names_fts MATCH value) FROM json_each(?) AS phrases"
)
_IN_FILES = (
    "SELECT value FROM json_each(?1) AS phrases"
    " WHERE EXISTS (SELECT 1 FROM chunks_fts JOIN chunks ON chunks.id = chunks_fts.rowid"
    " WHERE chunks_fts MATCH value AND file_id IN (SELECT value FROM json_each(?2)))"
)
_EXISTING = (
    "WITH counted AS MATERIALIZED"
    " (SELECT value, (SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH value) AS df FROM json_each(?))"
    " SELECT value, df FROM counted WHERE df"
)
# CROSS JOIN: the phrases first. The plus sign: FTS5 finds the rows of a phrase, and these are looked up.
_SCORES = (
    "SELECT key, {0}_fts.rowid, bm25({0}_fts, {1}) FROM json_each(?1) CROSS JOIN {0}_fts"
    " WHERE {0}_fts MATCH value"
)
_AMONG = " AND +{0}_fts.rowid IN (SELECT value FROM json_each(?2))"
_WEIGHTS = {CHUNKS: "1.0, 0.7, 0.7, 1.0", NAMES: "1.0, 1.0"}
_FILES = (
    "SELECT id, path, source, mtime_ns, day,"
    " ifnull((SELECT title FROM names WHERE file_id = files.id AND title <> ''), '')"
    " FROM files WHERE id IN (SELECT value FROM json_each(?))"
)

#: Row -> how well it fits a phrase, 0 to 1.
Fits = Mapping[int, float]


class File(NamedTuple):
    """What a hit says of its file."""

    path: str
    source: str
    mtime_ns: int
    day: str
    title: str


class Matches:
    """What FTS5 says of phrases. Not safe to use from several threads at once."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._version: int | None = None
        self._forget()

    def _forget(self) -> None:
        self._facts: dict[str, Any] = {}
        self._counts: dict[str, tuple[int, int]] = {}
        self._fits: dict[tuple[str, str], dict[int, float]] = {}
        self._owners: dict[str, dict[int, int]] = {CHUNKS: {}, NAMES: {}}
        self._files: dict[int, File] = {}
        self._kept_rows = 0

    def follow(self) -> None:
        """Forget everything if the index has changed; first in each read transaction."""
        version = scalar(self.connection, "PRAGMA data_version")
        kept = (
            self._kept_rows
            + sum(map(len, self._owners.values()))
            + 5 * (len(self._files) + len(self._counts))
        )
        if version != self._version or kept > MOST_KEPT:
            self._forget()
        self._version = version

    def fact(self, name: str, read: Callable[[Connection], Any]) -> Any:
        """Return what `read` says of the index, and keep it."""
        if name not in self._facts:
            self._facts[name] = read(self.connection)
        return self._facts[name]

    def total(self, table: str) -> int:
        """Count all rows of a table."""
        return int(self.fact(table, lambda reader: scalar(reader, f"SELECT count(*) FROM {table}_fts")))

    def counts(self, phrases: Iterable[str], files: str | None = None) -> dict[str, int]:
        """Count the chunks of each phrase; 0 where none is in `files`, a JSON array of the files searched.

        How rare a phrase is, is known from all files.
        """
        phrases = dict.fromkeys(phrases)
        if new := [each for each in phrases if each not in self._counts]:
            rows = self.connection.execute(_COUNT, (json.dumps(new),))
            self._counts |= {phrase: (chunks, names) for phrase, chunks, names in rows}
        counts = {each: self._counts[each][0] for each in phrases}
        if files is None or not any(counts.values()):
            return counts
        some = json.dumps([each for each, count in counts.items() if count])
        there = {phrase for (phrase,) in self.connection.execute(_IN_FILES, (some, files))}
        return {each: count if each in there else 0 for each, count in counts.items()}

    def names_with(self, phrase: str) -> int:
        """Return how many names have a phrase that was counted."""
        return self._counts[phrase][1]

    def existing(self, phrases: Iterable[str]) -> dict[str, int]:
        """Return those of many phrases that chunks have, with how many do."""
        return dict(self.connection.execute(_EXISTING, (json.dumps([*phrases]),)).fetchall())

    def fits(
        self, table: str, counts: Mapping[str, int], among: Collection[int] | None = None
    ) -> dict[str, Fits]:
        """Return how well rows fit each of the phrases, given with their counts.

        `among`: only these rows are wanted; of a phrase that is kept all come.
        """
        new = {each: count for each, count in counts.items() if (table, each) not in self._fits}
        read = self._read(table, new, among)
        fits: dict[str, Fits] = {
            each: read[each] if each in read else self._fits[table, each] for each in counts
        }
        for each, count in new.items() if among is None else ():
            if count <= KEPT_ROWS:
                self._fits[table, each] = read[each]
                self._kept_rows += count
        return fits

    def _read(
        self, table: str, counts: Mapping[str, int], among: Collection[int] | None = None
    ) -> dict[str, dict[int, float]]:
        if not counts:
            return {}
        total, query, values = self.total(table), _SCORES, [json.dumps([*counts])]
        if among is not None:
            query, values = query + _AMONG, [*values, json_ids(among)]
        fits: list[dict[int, float]] = [{} for _ in counts]
        scales = [
            -1.0 / ((K1 + 1) * max(1e-6, math.log((total - count + 0.5) / (count + 0.5))))
            for count in counts.values()
        ]
        for key, row, bm25 in self.connection.execute(query.format(table, _WEIGHTS[table]), values):
            fit = bm25 * scales[key]
            # Of several phrases one may be clamped and another not.
            fits[key][row] = fit if fit < 1.0 else 1.0
        return dict(zip(counts, fits, strict=True))

    def owners(self, table: str, rows: Iterable[int]) -> dict[int, int]:
        """Return row -> file id, of chunks or names."""
        rows, known = [*rows], self._owners[table]
        if new := [row for row in rows if row not in known]:
            query = f"SELECT id, file_id FROM {table} WHERE id IN (SELECT value FROM json_each(?))"
            known |= dict(self.connection.execute(query, (json_ids(new),)).fetchall())
        return {row: known[row] for row in rows}

    def files(self, file_ids: Collection[int]) -> dict[int, File]:
        """Return what hits say of files; of more than these."""
        if new := [each for each in file_ids if each not in self._files]:
            rows = self.connection.execute(_FILES, (json_ids(new),))
            self._files |= {file_id: File(*columns) for file_id, *columns in rows}
        return self._files
