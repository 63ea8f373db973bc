"""Ask FTS5 how many rows match a phrase, and how well, and keep what the index says until it changes.

FTS5's `bm25` of one phrase is its idf times how well a row fits. Its idf is clamped to 0.000001 for a word in
half of the rows, which ranked small memories by chance: it is divided out here, and the scorer has its own.
"""

import json
import math
import sys
from collections.abc import Collection, Iterable, Sequence
from sqlite3 import Connection
from typing import Any, NamedTuple

from memline.shared.index import identities, ledger
from memline.shared.index.driver import json_ids, scalar
from memline.shared.index.identities import IdentityRow

#: FTS5's k1.
K1 = 1.2

#: What is kept at most, in chunks of 1.5 kB each: an answer is as much as `ANSWER` of them.
MOST_KEPT, ANSWER = 10_000, 10

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
# CROSS JOIN: the phrases first. The plus sign: FTS5 finds the rows of a phrase, and these are looked up.
_SCORES = (
    "SELECT key, {0}_fts.rowid, bm25({0}_fts, {1}) FROM json_each(?1) CROSS JOIN {0}_fts"
    " WHERE {0}_fts MATCH value"
)
_AMONG = " AND +{0}_fts.rowid IN (SELECT value FROM json_each(?2))"
_SEARCHED = "AND (?2 IS NULL OR file_id IN (SELECT value FROM json_each(?2)))"
_FIRST = {CHUNKS: "ordinal < ?3", NAMES: "?3"}
_WEIGHTS = {CHUNKS: "1.0, 0.7, 0.7, 1.0", NAMES: "1.0, 1.0"}
_ROWS = (
    "SELECT chunks.id, file_id, start_line, end_line, heading, text, text_hash, path, source, mtime_ns, day,"
    " ifnull((SELECT title FROM names WHERE names.file_id = files.id AND title <> ''), '')"
    " FROM chunks JOIN files ON files.id = file_id WHERE chunks.id IN (SELECT value FROM json_each(?))"
)

#: Row -> how well it fits a phrase, 0 to 1.
Fits = dict[int, float]


class Row(NamedTuple):
    """A chunk as it is stored, with what a hit says of its file."""

    id: int
    file_id: int
    start: int
    end: int
    heading: str
    text: str
    text_hash: bytes
    path: str
    source: str
    mtime_ns: int
    day: str
    title: str


class Matches:
    """What FTS5 says of phrases. Not safe to use from several threads at once."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        #: Changes with every commit to the index.
        self.version = 0
        #: The identity of the vectors that are searched, if there are any, and the sources of the files.
        self.active: IdentityRow | None = None
        self.sources = frozenset[str]()
        #: JSON array of the ids of the files that the question at hand stays in; None for all.
        self.files: str | None = None
        #: Table -> its rows.
        self.totals: dict[str, int] = {}
        #: What was answered, by what was asked.
        self.answers: dict[object, Any] = {}
        self._counts: dict[str, tuple[int, int]] = {}
        self._rows: dict[int, Row] = {}

    def follow(self) -> None:
        """Forget everything if the index has changed; first in each read transaction."""
        version = scalar(self.connection, "PRAGMA data_version")
        kept = len(self._rows) + len(self._counts) + ANSWER * len(self.answers)
        if version != self.version or kept > MOST_KEPT:
            count = "SELECT count(*) FROM {}_fts"
            self.totals = {each: scalar(self.connection, count.format(each)) for each in (CHUNKS, NAMES)}
            self.active = identities.active(self.connection)
            self.sources = ledger.sources(self.connection)
            self.answers, self._counts, self._rows = {}, {}, {}
        self.version = version

    def counts(self, phrases: Iterable[str]) -> dict[str, int]:
        """Count the chunks that have each phrase, in all files; 0 where no file that is searched has it."""
        phrases = dict.fromkeys(phrases)
        if new := [each for each in phrases if each not in self._counts]:
            rows = self.connection.execute(_COUNT, (json.dumps(new),))
            self._counts |= {phrase: (chunks, names) for phrase, chunks, names in rows}
        counts = {each: self._counts[each][0] for each in phrases}
        if self.files is None or not any(counts.values()):
            return counts
        some = json.dumps([each for each, count in counts.items() if count])
        there = self.connection.execute(_IN_FILES, (some, self.files)).fetchall()
        return dict.fromkeys(counts, 0) | {phrase: counts[phrase] for (phrase,) in there}

    def count(self, table: str, phrase: str) -> int:
        """Return how many rows have a phrase that was counted."""
        return self._counts[phrase][table == NAMES]

    def fits(
        self, table: str, phrases: Sequence[str], among: Collection[int] | None = None
    ) -> dict[str, Fits]:
        """Return how well rows, those `among` at least, fit each of some phrases that were counted."""
        new = [each for each in phrases if self.count(table, each)]
        fits = dict[str, Fits]((each, {}) for each in phrases)
        if not new:
            return fits
        total, query, values = self.totals[table], _SCORES, [json.dumps(new)]
        if among is not None:
            query, values = query + _AMONG, [*values, json_ids(among)]
        idfs = [math.log((total - df + 0.5) / (df + 0.5)) for df in (self.count(table, each) for each in new)]
        scales = [-1.0 / ((K1 + 1) * max(1e-6, idf)) for idf in idfs]
        for key, row, bm25 in self.connection.execute(query.format(table, _WEIGHTS[table]), values):
            # Of several phrases one may be clamped and another not.
            fits[new[key]][row] = min(1.0, bm25 * scales[key])
        return fits

    def owners(self, table: str, column: str, ids: str, first: int = sys.maxsize) -> dict[int, int]:
        """Return row -> file id of rows by ids (JSON), in files that are searched; of chunks the `first`."""
        if ids == "[]":
            return {}
        some = f"{column} IN (SELECT value FROM json_each(?1)) {_SEARCHED} AND {_FIRST[table]}"
        query = f"SELECT id, file_id FROM {table} WHERE {some}"
        return dict(self.connection.execute(query, (ids, self.files, first)).fetchall())

    def read(self, chunk_ids: Iterable[int]) -> dict[int, Row]:
        """Read chunks, by id."""
        ids = [*chunk_ids]
        if new := [each for each in ids if each not in self._rows]:
            rows = self.connection.execute(_ROWS, (json_ids(new),))
            self._rows |= {columns[0]: Row._make(columns) for columns in rows}
        return {each: self._rows[each] for each in ids}
