"""Keep what FTS5 says of phrases: how many chunks hold one, and the bm25 of each.

Questions share their common words, and computing bm25 takes 1.5 us a chunk. A long-lived process keeps what
was computed until the full-text index changes; a one-shot command for its one question.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from memline.shared.index import chunks, driver
from memline.shared.search.vector_backends import json_ids

if TYPE_CHECKING:
    from sqlite3 import Connection

#: bm25() weights of text, heading, path and grams. Headings and paths repeat in every chunk of a file:
#: left out they lost 0.005-0.02 of recall at six, at full weight a little less.
WEIGHTS = (1.0, 0.7, 0.7, 1.0)

#: Scores that are kept, 16 bytes each; of a phrase that was used least recently they go first.
MAX_SCORES = 2_000_000

#: Chunks of a phrase above which its scores are not kept, but for the best.
MAX_CHUNKS = 50_000

#: Phrases whose count is kept, 200 bytes each.
MAX_PHRASES = 20_000

#: The time a phrase is asked for from which on all its chunks are scored, and not only those in question:
#: that takes ten times as long, once.
OFTEN = 2

_COUNT = "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH ?"
_SCORED = "SELECT rowid, bm25(chunks_fts, ?, ?, ?, ?) FROM chunks_fts WHERE chunks_fts MATCH ?"
_BEST = f"{_SCORED} ORDER BY 2, 1 LIMIT ?"
# The plus sign: the words first, then the filter; the other way round each chunk is a query of its own.
_IN_FILES = " AND +rowid IN (SELECT id FROM chunks WHERE file_id IN (SELECT value FROM json_each(?)))"
_IN_CHUNKS = " AND +rowid IN (SELECT value FROM json_each(?))"

#: (chunk id, bm25), the lower the better; in the order of ids.
Scores = Iterable[tuple[int, float]]


class _Packed:
    """Scores in an eighth of the memory of a dictionary."""

    def __init__(self, rows: Sequence[tuple[int, float]]) -> None:
        self._ids = array("q", [row[0] for row in rows])
        self._scores = array("d", [row[1] for row in rows])

    def __len__(self) -> int:
        return len(self._ids)

    def all(self) -> Scores:
        return zip(self._ids, self._scores, strict=True)

    def among(self, chunk_ids: Sequence[int]) -> Scores:
        """Return those of `chunk_ids`, which ascend."""
        if len(self._ids) < 4 * len(chunk_ids):
            scores = dict(self.all())
            return [(each, scores[each]) for each in chunk_ids if each in scores]
        found, place, end = [], 0, len(self._ids)
        for each in chunk_ids:
            place = bisect_left(self._ids, each, place)
            if place == end:
                break
            if self._ids[place] == each:
                found.append((each, self._scores[place]))
        return found


class Postings:
    """Answers for the phrases of questions. Not safe to use from several threads at once."""

    def __init__(self) -> None:
        #: `data_version` of the connection, and what of the index it was.
        self._version: int | None = None
        self._state: object = None
        self._counts: dict[str, int] = {}
        #: By phrase, and how many of its best chunks; 0: all.
        self._scores: dict[tuple[str, int], _Packed] = {}
        self._kept = 0
        self._asked: Counter[str] = Counter()

    def follow(self, connection: Connection) -> None:
        """Forget everything if the full-text index has changed; first in each read transaction.

        Always of the same connection: another one counts versions of its own.
        """
        version = driver.scalar(connection, "PRAGMA data_version")
        if version == self._version:
            return
        self._version = version
        state = chunks.full_text_state(connection)
        if state != self._state:
            self._forget()
            self._state = state

    def count(self, connection: Connection, match: str) -> int:
        """Count the chunks that hold a phrase."""
        found = self._counts.get(match)
        if found is None:
            if len(self._counts) >= MAX_PHRASES:
                self._forget()
            found = self._counts[match] = int(connection.execute(_COUNT, (match,)).fetchone()[0])
        return found

    def scores(
        self, connection: Connection, match: str, *, files: str | None, among: list[int] | None
    ) -> Scores:
        """Yield the chunks that hold a phrase, with its bm25.

        `files`: a JSON array of the file ids to stay in. `among`: chunk ids to stay among, ascending. None
        for all.
        """
        if files is not None:
            return self._read(connection, match, files, among)
        known = self._scores.get((match, 0))
        if known is None:
            self._asked[match] += 1
            size = self.count(connection, match)
            if among is not None and (self._asked[match] < OFTEN or size > MAX_CHUNKS):
                return self._read(connection, match, None, among)
            rows = self._read(connection, match, None, None)
            if size > MAX_CHUNKS:
                return rows
            known = _Packed(rows)
        self._keep((match, 0), known)
        return known.all() if among is None else known.among(among)

    def best(self, connection: Connection, match: str, count: int) -> Scores:
        """Yield the best chunks that hold a phrase, the first of equals, with its bm25."""
        known = self._scores.get((match, count))
        if known is None:
            known = _Packed(sorted(connection.execute(_BEST, (*WEIGHTS, match, count))))
        self._keep((match, count), known)
        return known.all()

    def _keep(self, key: tuple[str, int], scores: _Packed) -> None:
        if self._scores.pop(key, None) is None:
            self._kept += len(scores)
        # The last one was used last.
        self._scores[key] = scores
        while self._kept > MAX_SCORES:
            self._kept -= len(self._scores.pop(next(iter(self._scores))))

    def _read(
        self, connection: Connection, match: str, files: str | None, among: Iterable[int] | None
    ) -> list[tuple[int, float]]:
        statement, values = _SCORED, [*WEIGHTS, match]
        if files is not None:
            statement, values = statement + _IN_FILES, [*values, files]
        if among is not None:
            statement, values = statement + _IN_CHUNKS, [*values, json_ids(among)]
        return connection.execute(statement, values).fetchall()

    def _forget(self) -> None:
        self._counts.clear()
        self._scores.clear()
        self._asked.clear()
        self._kept = 0
