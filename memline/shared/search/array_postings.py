"""Keep what FTS5 says of words in arrays.

The rows of a word are not scored by bm25(), which looks up the length of each of them (1.2 µs a row), but
from the places of the word as fts5vocab lists them (0.4 µs), with lengths that are kept.

Needs numpy, which costs 110 ms to import: for processes that answer many questions.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memline.shared.index import driver
from memline.shared.search.few_rows import K1, LEAST_ROWS, SETUP, B, as_word, row_count
from memline.shared.search.postings import CHUNKS, SPARE, Fits, Packed, Postings, Table

if TYPE_CHECKING:
    from sqlite3 import Connection

Rows = np.ndarray[Any, np.dtype[np.int64]]
Values = np.ndarray[Any, np.dtype[np.float64]]
Numbers = np.ndarray[Any, np.dtype[np.int32]]

#: Chunks from which on arrays are faster.
MANY_CHUNKS = 2_000

#: Rows of a word up to which bm25() is faster: it takes one statement, and the places of a word take six.
FEW_ROWS = 100

#: The highest row over the number of rows above which most of an array would be empty.
MOST_EMPTY = 50

#: Lengths that are read at a time.
_READ_ROWS = 50_000

# Temporary, so that a connection that only reads can have it.
_SETUP = "CREATE VIRTUAL TABLE temp.places USING fts5vocab(main, chunks_fts, instance)"
# One text instead of a tuple a place; a heading and a path, which weigh less, below zero.
_PLACES = "SELECT group_concat(iif(col IN ('heading', 'path'), -doc, doc)) FROM temp.places WHERE term = ?"
_TYPED = "SELECT group_concat(rowid) FROM forms_fts WHERE forms_fts MATCH ?"
# The same of lengths: a tuple each took twice as long.
_LENGTHS = (
    "SELECT group_concat(id), group_concat(hex(sz), '') FROM"
    " (SELECT id, sz FROM chunks_fts_docsize WHERE id > ? ORDER BY id LIMIT ?)"
)
# The plus sign: by the index of files and ordinals, and not by the rows with their texts.
_FILES = "SELECT group_concat(id), group_concat(file_id) FROM chunks WHERE {} > ?"


def prepare(connection: Connection) -> None:
    """Make what words are read with, once a connection, outside of a transaction."""
    for statement in (*SETUP, _SETUP):
        connection.execute(statement)


class SearchedArrays(Packed):
    """Fits in which a thousand rows are found in a tenth of the time."""

    def among(self, rows: Sequence[int]) -> Fits:
        wanted, mine = np.array(rows, np.int64), np.frombuffer(self.rows, np.int64)
        places = np.minimum(np.searchsorted(mine, wanted), len(mine) - 1)
        is_there = mine[places] == wanted if len(mine) else np.zeros(len(wanted), bool)
        found = np.frombuffer(self.fits)[places[is_there]]
        return list(zip(wanted[is_there].tolist(), found.tolist(), strict=True))


class ArrayPostings(Postings):
    """Answers for the phrases of questions, in arrays where there are many chunks."""

    packed = SearchedArrays
    #: Whether arrays are worth it; None until that is decided.
    _is_worth_it: bool | None = None
    #: By chunk: its tokens, and its file. 0 is not known yet.
    _lengths: Rows
    _files: Rows
    #: The row up to which all lengths are known, and the mean of them all.
    _last_read: int
    _mean: float

    def __init__(self) -> None:
        super().__init__()
        self._lengths = self._files = np.zeros(0, np.int64)

    def _has_arrays(self, connection: Connection) -> bool:
        if self._is_worth_it is None:
            count = self.rows(connection, CHUNKS)
            size = 1 + (driver.scalar(connection, "SELECT max(id) FROM chunks_fts_docsize") or 0)
            self._is_worth_it = count >= MANY_CHUNKS and size < MOST_EMPTY * count
            if self._is_worth_it:
                self._lengths, self._files = _grown(self._lengths, size), _grown(self._files, size)
                self._last_read = int(self._lengths.nonzero()[0].max(initial=0))
                _, self._mean = row_count(connection)
        return self._is_worth_it

    def files_of(self, connection: Connection, chunk_ids: Collection[int]) -> Mapping[int, int]:
        if not self._has_arrays(connection):
            return super().files_of(connection, chunk_ids)
        ids = np.fromiter(chunk_ids, np.int64, len(chunk_ids))
        if not self._files[ids].all():
            known = np.flatnonzero(self._files)
            last = int(known[-1]) if len(known) else 0
            read = connection.execute(_FILES.format("id" if last else "+id"), (last,)).fetchone()
            rows, files = (np.fromstring(text or "", np.int64, sep=",") for text in read)
            self._files[rows] = files
        return dict(zip(chunk_ids, self._files[ids].tolist(), strict=True))

    def _often(self, connection: Connection, table: Table, match: str, size: int) -> int:
        # All rows of a word are read here in less time than FTS5 takes for some: 5.5 ms instead of 5.8 for
        # each of 800 questions of three words about 50,000 chunks.
        is_cheap = table is CHUNKS and size < LEAST_ROWS and as_word(match) and self._has_arrays(connection)
        return 1 if is_cheap else super()._often(connection, table, match, size)

    def _pack(self, connection: Connection, table: Table, match: str, typed: str, best: int) -> Packed:
        count, found = self.count(connection, table.name, match), None
        if table is CHUNKS and count > FEW_ROWS and self._has_arrays(connection):
            found = self._read_word(connection, match)
        # Another tokenizer than that of the index would find others.
        if found is None or len(found[0]) != count:
            return super()._pack(connection, table, match, typed, best)
        rows, fits = found
        if best:
            chosen = _best(fits, SPARE * best if typed else best)
            rows, fits = rows[chosen], fits[chosen]
        if typed:
            text = driver.scalar(connection, _TYPED, typed)
            exact = np.fromstring(text or "", np.int64, sep=",")
            fits = np.where(np.isin(rows, exact), fits, -fits)
        return self.packed(array("q", rows.tobytes()), array("d", fits.tobytes()))

    def _forget(self) -> None:
        super()._forget()
        self._is_worth_it = None

    def _read_word(self, connection: Connection, match: str) -> tuple[Rows, Values] | None:
        """Return the rows of a MATCH expression, ascending, and their fits; None unless it is one word."""
        if not (word := as_word(match)) or (stem := self._few.stem_of(connection, word)) is None:
            return None
        text = driver.scalar(connection, _PLACES, stem)
        if text is None:
            return None
        places = np.fromstring(text, np.int64, sep=",")
        rows = np.abs(places)
        firsts = np.flatnonzero(np.diff(rows, prepend=0))
        counts = np.add.reduceat(np.where(places < 0, CHUNKS.weights[1], 1.0), firsts)
        rows = rows[firsts]
        return rows, counts / (counts + K1 * (1 - B + B / self._mean * self._lengths_of(connection, rows)))

    def _lengths_of(self, connection: Connection, rows: Rows) -> Rows:
        """Return the tokens of rows; the first time those of all are read.

        0.35 us each. Those of a new word alone took as long each, 20 ms of questions about a million chunks.
        """
        while self._last_read < rows[-1]:
            ids, sizes = connection.execute(_LENGTHS, (self._last_read, _READ_ROWS)).fetchone()
            read = np.fromstring(ids, np.int64, sep=",")
            # A number for each column.
            self._lengths[read] = _varints(bytes.fromhex(sizes)).reshape(len(read), -1).sum(axis=1)
            self._last_read = int(read[-1])
        return self._lengths[rows]


def _best(fits: Values, count: int) -> Rows:
    """Return the places of the greatest, ascending; of equals the first."""
    if len(fits) <= count:
        return np.arange(len(fits))
    least = np.partition(fits, -count)[-count]
    above, equal = np.flatnonzero(fits > least), np.flatnonzero(fits == least)
    return np.sort(np.append(above, equal[: count - len(above)]))


def _grown(known: Rows, size: int) -> Rows:
    return np.append(known, np.zeros(max(0, size - len(known)), np.int64))


def _varints(block: bytes) -> Numbers:
    """Read SQLite's varints, of three bytes at most."""
    parts = np.frombuffer(block, np.uint8)
    goes_on = parts > 0x7F
    found = (parts & 0x7F).astype(np.int32)
    # A byte counts 128 times as much for each one behind it of the same number.
    once = np.flatnonzero(goes_on)
    twice = once[goes_on[once + 1]]
    found[once] <<= 7
    found[twice] <<= 7
    ends = np.flatnonzero(~goes_on)
    numbers: Numbers = np.add.reduceat(found, np.append(0, ends[:-1] + 1))
    return numbers
