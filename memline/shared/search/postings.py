"""Keep what FTS5 says of phrases: how many rows hold one, and how well each of them fits it.

Questions share their common words, and computing bm25 takes 1.5 us a row. A long-lived process keeps what was
computed until the full-text index changes; a one-shot command for its one question.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest

from memline.shared.index import driver, full_text
from memline.shared.search.few_rows import Beside, FewRows, as_word, scale_of, varints
from memline.shared.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

#: Fits that are kept, 16 bytes each; of a phrase that was used least recently they go first.
MAX_SCORES = 2_000_000

#: Rows of a phrase above which its fits are not kept, but for the best.
MAX_ROWS = 50_000

#: Phrases whose count is kept, 200 bytes each.
MAX_PHRASES = 20_000

#: Chunks whose file is kept, 100 bytes each.
MAX_FILES = 100_000

#: All rows of a phrase are scored, and not only those in question, from the second question with it on; of a
#: common one later, at one question for MANY rows: to score a row takes as long as to look at twelve.
OFTEN, MANY = 2, 3_000

#: Of a word whose stem others share, how many times as many rows are read as are wanted.
SPARE = 2

#: Rows of an expression of several phrases that are looked at.
SOME = 100

_IN_FILES = " AND +rowid IN ({} (SELECT value FROM json_each(?)))"
_AMONG = " AND +rowid IN (SELECT value FROM json_each(?))"
_OF_CHUNKS = "SELECT id, file_id FROM chunks WHERE id IN (SELECT value FROM json_each(?))"


@value
class Table:
    """A full-text index: weights of its columns, the same words as typed, how to list rows of files."""

    name: str
    #: What a row has for holding a phrase at all, as in BM25+ (Lv and Zhai 2011), beside what bm25 gives.
    least: float = 0.0
    weights: tuple[float, ...]
    typed: str = ""
    of_files: str


#: Headings and paths repeat in every chunk of a file: left out they lost 0.005-0.02 of recall at six, at full
#: weight a little less.
CHUNKS = Table(
    name="chunks_fts",
    weights=(1.0, 0.7, 0.7, 1.0),
    typed="forms_fts",
    of_files="SELECT id FROM chunks WHERE file_id IN",
)
#: 0.2 for holding a phrase found less, and so did any for chunks.
NAMES = Table(
    name="names_fts", least=0.1, weights=(1.0, 1.0), of_files="SELECT id FROM names WHERE file_id IN"
)

#: (row id, fit), in the order of ids. The fit is bm25 without its idf, 0 … 1; negative where only the stem of
#: the phrase is in the row.
Fits = Iterable[tuple[int, float]]


class Packed:
    """Fits in an eighth of the memory of a dictionary."""

    def __init__(self, rows: array[int], fits: array[float]) -> None:
        """`rows`: ascending."""
        self.rows, self.fits = rows, fits

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return zip(self.rows, self.fits, strict=True)

    def among(self, rows: Sequence[int]) -> Fits:
        """Return those of `rows`, which ascend."""
        places = ((each, bisect_left(self.rows, each)) for each in rows)
        size = len(self.rows)
        return [
            (each, self.fits[place]) for each, place in places if place < size and self.rows[place] == each
        ]


class Postings:
    """Answers for the phrases of questions. Not safe to use from several threads at once."""

    #: What fits are kept in.
    packed = Packed
    #: Counts of the commonest words, by table; None until they are read.
    _common: dict[str, dict[str, int]] | None = None

    def __init__(self) -> None:
        #: `data_version` of the connection, and what of the index it was.
        self._version: int | None = None
        self._state: tuple[object, object] = None, None
        self._few = FewRows(CHUNKS.weights)
        self._forget()
        self._file_of: dict[int, int] = {}

    def follow(self, connection: Connection) -> None:
        """Forget what was said of words if the full-text index has changed; first in each read transaction.

        Always of the same connection: another one counts versions of its own.
        """
        self._asked.update(self._asked_now)
        self._asked_now.clear()
        self._few.forget()
        version = driver.scalar(connection, "PRAGMA data_version")
        if version == self._version:
            return
        state = full_text.state(connection)
        if state != self._state:
            self._forget()
            self._state = state
        # Last: after an error above it is looked at again.
        self._version = version

    def rows(self, connection: Connection, table: Table) -> int:
        """Count the rows of a table, as FTS5 does: counting them takes 10 ms a million."""
        found = self._counts.get((table.name, ""))
        if found is None:
            block = driver.scalar(connection, f"SELECT block FROM {table.name}_data WHERE id = 1")
            found = varints(block)[0] if block else 0
            self._counts[table.name, ""] = found
        return found

    def count(self, connection: Connection, table: str, match: str) -> int:
        """Count the rows that hold a phrase."""
        found = self._counts.get((table, match))
        if found is None:
            if len(self._counts) >= MAX_PHRASES:
                self._forget()
            found = self._common_count(connection, table, match)
            if found is None:
                statement = f"SELECT count(*) FROM {table} WHERE {table} MATCH ?"
                found = int(connection.execute(statement, (match,)).fetchone()[0])
            self._counts[table, match] = found
        return found

    def _common_count(self, connection: Connection, table: str, match: str) -> int | None:
        """Look up the count of a word that is common as it was typed; None for others."""
        common = self._common
        if common is None:
            is_large = self.rows(connection, CHUNKS) >= full_text.MANY_CHUNKS
            common = self._common = full_text.common_words(connection) if is_large else {}
        as_typed = common.get(CHUNKS.typed, {})
        if table not in common or not (word := as_word(match)) or word not in as_typed:
            return None
        if table == CHUNKS.typed:
            return as_typed[word]
        stem = self._few.stem_of(connection, word)
        return None if stem is None else common[table].get(stem)

    def fits(
        self,
        connection: Connection,
        table: Table,
        match: str,
        *,
        typed: str = "",
        files: str | None = None,
        among: list[int] | None = None,
        best: int = 0,
        beside: Beside | None = None,
    ) -> Fits:
        """Return the rows that hold a phrase, with how well it fits them.

        `typed`: its forms, where some rows hold another word of the same stem. `files`: a JSON array of the
        file ids to stay in. `among`: row ids to stay among, ascending, of these files. `best`: so many of the
        best, the first of equals. None and 0 for all. `beside`: what some of `among` are known to hold.
        """
        key = table.name, match, typed, best
        known = self._fits.pop(key, None) if files is None else None
        if known is None:
            size = self.count(connection, table.name, match)
            is_kept = files is None and (best > 0 or size <= MAX_ROWS)
            if is_kept and among is not None:
                self._asked_now.add(key)
                is_kept = self._asked[key] + 1 >= self._often(connection, table, match, size)
            if not is_kept:
                few = None
                if among is not None and table is CHUNKS:
                    few = self._few.fits(connection, match, typed, among, size=size, beside=beside)
                if few is not None:
                    return few
                return self.read(connection, table, match, typed, files=files, among=among, best=best)
            known = self._pack(connection, table, match, typed, best)
            self._kept += len(known)
        # The last one was used last.
        self._fits[key] = known
        while self._kept > MAX_SCORES:
            self._kept -= len(self._fits.pop(next(iter(self._fits))))
        return known if among is None else known.among(among)

    def _often(self, connection: Connection, table: Table, match: str, size: int) -> int:
        """Return from which question with a phrase on all its rows are scored, and kept."""
        return max(OFTEN, size // MANY)

    def _pack(self, connection: Connection, table: Table, match: str, typed: str, best: int) -> Packed:
        pairs = sorted(self.read(connection, table, match, typed, best=best))
        rows, fits = zip(*pairs, strict=True) if pairs else ((), ())
        return self.packed(array("q", rows), array("d", fits))

    def files_of(self, connection: Connection, chunk_ids: Collection[int]) -> Mapping[int, int]:
        """Return chunk id -> file id, of these chunks at least."""
        new = [each for each in chunk_ids if each not in self._file_of]
        if len(self._file_of) + len(new) > MAX_FILES:
            self._file_of.clear()
            new = list(chunk_ids)
        if new:
            self._file_of.update(connection.execute(_OF_CHUNKS, (driver.json_ids(new),)))
        return self._file_of

    def read(
        self,
        connection: Connection,
        table: Table,
        match: str,
        typed: str = "",
        *,
        files: str | None = None,
        among: Iterable[int] | None = None,
        best: int = 0,
    ) -> list[tuple[int, float]]:
        """Ask FTS5, and keep nothing."""
        where, values = "", list[str]()
        # The plus sign: the words first, then the filter; the other way round each row is a query of its own.
        if files is not None:
            where, values = _IN_FILES.format(table.of_files), [files]
        if among is not None:
            where += _AMONG
            values.append(driver.json_ids(among))
        order = f" ORDER BY 2, 1 LIMIT {SPARE * best if typed else best}" if best else ""
        bm25 = f"bm25({table.name}, {', '.join(map(str, table.weights))})"
        statement = f"SELECT rowid, {bm25} FROM {table.name} WHERE {table.name} MATCH ?{where}{order}"
        rows = connection.execute(statement, (match, *values)).fetchall()
        scale = scale_of(self._counts.get((table.name, match), 0), self.rows(connection, table))
        if not typed:
            return [(row, bm25 * scale) for row, bm25 in rows]
        if best:
            where, values = _AMONG, [driver.json_ids(row for row, _ in rows)]
        statement = f"SELECT rowid FROM {table.typed} WHERE {table.typed} MATCH ?{where}"
        exact = {row for (row,) in connection.execute(statement, (typed, *values))}
        return [(row, bm25 * scale if row in exact else -bm25 * scale) for row, bm25 in rows]

    def some(
        self, connection: Connection, match: str, files: str | None, table: str = CHUNKS.name
    ) -> set[int]:
        """Return the first SOME chunks for an expression."""
        where, values = (_IN_FILES.format(CHUNKS.of_files), [files]) if files is not None else ("", [])
        statement = f"SELECT rowid FROM {table} WHERE {table} MATCH ?{where} LIMIT {SOME}"
        return {row for (row,) in connection.execute(statement, (match, *values))}

    def _forget(self) -> None:
        #: By table and phrase; the empty phrase for all rows.
        self._counts: dict[tuple[str, str], int] = {}
        self._common = None
        #: By table, phrase, typed forms, and how many of the best; 0: all.
        self._fits: dict[tuple[str, str, str, int], Packed] = {}
        #: The questions that asked for some of the rows, and what this one asked for.
        self._asked: Counter[tuple[str, str, str, int]] = Counter()
        self._asked_now: set[tuple[str, str, str, int]] = set()
        self._kept = 0


def strongest(count: int, sums: Mapping[int, float], rows: Collection[int] | None = None) -> list[int]:
    """Return the best rows, the first ones among equals; `rows`: of these."""
    rows = sums if rows is None else rows
    if len(rows) > 20 * count:
        return nlargest(count, sorted(rows), key=sums.__getitem__)
    # The same in C: a third of the time for a few times as many as are wanted.
    return sorted(sorted(rows), key=sums.__getitem__, reverse=True)[:count]
