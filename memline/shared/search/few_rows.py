"""Say how well a word that very many rows hold fits a few of them, without reading the others.

Asked about some rows, FTS5 still reads all of a word, 64 ns each. Rows that hold another word as well it
finds at once, and bm25() of both words less bm25() of the other is what the word gives. The others are found
by seeking, 7 us each, and indexed once more in a temporary table, 25 us each, in which their words are looked
up alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from memline.shared.index import driver, full_text
from memline.shared.patterns import late
from memline.shared.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

#: FTS5's constants of bm25, and what it takes for the idf of a term in half of the rows or more.
K1, B, LEAST_IDF = 1.2, 0.75, 1e-6

#: Rows of a word from which on a few are looked up so: to read them all takes a millisecond.
LEAST_ROWS = 20_000

#: Rows of a word for each one that is indexed once more from which on that is faster.
PER_ROW = 300

_COLUMNS = full_text.FULL_TEXT["chunks_fts"]
#: What tables of words are made with. Temporary, so that a connection that only reads can have them. The last
#: two say what the index calls a word.
SETUP = (
    f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.few USING fts5({_COLUMNS}, content='',"
    f" tokenize='{full_text.TOKENIZER}')",
    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.few_places USING fts5vocab(temp, few, instance)",
    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.stems USING fts5(word, content='',"
    f" tokenize='{full_text.TOKENIZER}')",
    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.stemmed USING fts5vocab(temp, stems, row)",
)
_AMONG = "(SELECT value FROM json_each(?))"
_SEEK = f"SELECT rowid FROM {{0}} WHERE {{0}} MATCH ? AND rowid IN {_AMONG}"
_INDEX = (
    f"INSERT INTO temp.few (rowid, {_COLUMNS}) SELECT id, {_COLUMNS} FROM chunk_documents"
    f" WHERE id IN {_AMONG} ORDER BY id"
)
_LENGTHS = f"SELECT id, sz FROM chunks_fts_docsize WHERE id IN {_AMONG}"
_PLACES = "SELECT doc, col FROM temp.few_places WHERE term = ?"
_WORD = late(r'"(\w+)"')


@value
class Beside:
    """A MATCH expression, and the bm25() of all rows that hold it."""

    match: str
    sums: Mapping[int, float]


class FewRows:
    """Looks words up in a few rows each, inside one read transaction."""

    def __init__(self, weights: Sequence[float]) -> None:
        """`weights`: those of the columns of `chunks_fts`."""
        bm25 = f"bm25(chunks_fts, {', '.join(map(str, weights))})"
        self._sums = f"SELECT rowid, {bm25} FROM chunks_fts WHERE chunks_fts MATCH ? AND +rowid IN {_AMONG}"
        self._weights = dict(zip(_COLUMNS.split(", "), weights, strict=True))
        self.forget()

    def forget(self) -> None:
        """Forget the rows: with the end of a transaction they are gone."""
        #: By row that is indexed once more: its tokens.
        self._lengths: dict[int, int] = {}
        self._is_set_up = False

    def fits(
        self,
        connection: Connection,
        match: str,
        typed: str,
        among: Sequence[int],
        *,
        size: int,
        beside: Beside | None,
    ) -> list[tuple[int, float]] | None:
        """Return which of the rows `among` hold a word, ascending, and how well it fits them.

        None where to read all is faster, or `match` is no single word. `typed`: its forms, where some rows
        hold another word of the same stem: those get a negative fit. `size`: the rows with the word.
        `beside`: what some of `among` hold as well.
        """
        if size < LEAST_ROWS or not (word := as_word(match)):
            return None
        known = {} if beside is None else beside.sums
        covered = [each for each in among if each in known]
        others = [each for each in among if each not in known] if covered else among
        new = [each for each in others if each not in self._lengths]
        if size < PER_ROW * len(new) or (stem := self.stem_of(connection, word)) is None:
            return None
        self._index(connection, match, new)
        count, mean = row_count(connection)
        fits = self._fits_of(connection, stem, {*others}, mean)
        if covered:
            assert beside is not None
            both, scale = f"{match} AND ({beside.match})", scale_of(size, count)
            rows = connection.execute(self._sums, (both, driver.json_ids(covered)))
            fits |= {row: (bm25 - known[row]) * scale for row, bm25 in rows}
        if typed and fits:
            seek = _SEEK.format("forms_fts")
            exact = {row for (row,) in connection.execute(seek, (typed, driver.json_ids(fits)))}
            fits = {row: fit if row in exact else -fit for row, fit in fits.items()}
        return sorted(fits.items())

    def _index(self, connection: Connection, match: str, rows: Sequence[int]) -> None:
        """Index those of the rows once more that hold a word."""
        seek = _SEEK.format("chunks_fts")
        holders = driver.json_ids(row for (row,) in connection.execute(seek, (match, driver.json_ids(rows))))
        connection.execute(_INDEX, (holders,))
        for row, sizes in connection.execute(_LENGTHS, (holders,)):
            self._lengths[row] = sum(varints(sizes))

    def _fits_of(
        self, connection: Connection, stem: str, rows: Collection[int], mean: float
    ) -> dict[int, float]:
        """Return bm25 without its idf, as FTS5 computes it."""
        counts: dict[int, float] = {}
        for row, column in connection.execute(_PLACES, (stem,)):
            if row in rows:
                counts[row] = counts.get(row, 0.0) + self._weights[column]
        return {
            row: count / (count + K1 * (1 - B + B * self._lengths[row] / mean))
            for row, count in counts.items()
        }

    def stem_of(self, connection: Connection, word: str) -> str | None:
        """Return a word as the index has it; None when it is several there, or no table can be made."""
        if not self._is_set_up:
            try:
                for statement in SETUP:
                    connection.execute(statement)
            except driver.library().Error:
                return None
            self._is_set_up = True
        connection.execute("INSERT INTO temp.stems (rowid, word) VALUES (1, ?)", (word,))
        found = connection.execute("SELECT term FROM temp.stemmed").fetchall()
        connection.execute("INSERT INTO temp.stems (stems) VALUES ('delete-all')")
        return found[0][0] if len(found) == 1 else None


def as_word(match: str) -> str:
    """Return the word that a MATCH expression is; empty when it is none."""
    found = _WORD.fullmatch(match)
    return found[1] if found else ""


def scale_of(size: int, count: int) -> float:
    """Return what makes a fit, 0 ... 1, of the bm25() of a phrase that `size` of `count` rows hold."""
    return -1.0 / ((K1 + 1) * max(LEAST_IDF, math.log((count - size + 0.5) / (size + 0.5))))


def row_count(connection: Connection) -> tuple[int, float]:
    """Return the number of chunks, and their mean number of tokens, as FTS5 counts them."""
    # The tokens of each column.
    count, *tokens = varints(driver.scalar(connection, "SELECT block FROM chunks_fts_data WHERE id = 1"))
    return count, sum(tokens) / count


def varints(block: bytes) -> list[int]:
    """Read SQLite's varints: seven bits a byte, the highest bit says that more follow."""
    found, at = [], 0
    for byte in block:
        at = at << 7 | byte & 0x7F
        if byte < 0x80:
            found.append(at)
            at = 0
    return found
