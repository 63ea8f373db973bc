"""Score chunks by the words of a question, with one sum and no rule that compares chunks with each other.

An OR of the terms: one absent word must not hide every note. For a chunk c of a file f

    s(c)  =  (S w(t) idf(t) bm25(t, c)  +  0.7 max_n S w(t) (idf(t) bm25(t, n) + 0.1))  x  (1 + 0.3 near(c))

    t     the terms of the question, the 24 rarest, and the question itself as a phrase of 3 to 8 words
    bm25  of FTS5 without its idf: text 1, heading and path 0.7 each; k1 1.2, b 0.75
    idf   ln(1 + (N - df + 1/2) / (df + 1/2)) of chunks, or of names
    n     the name documents of f: file name and title, each alias
    w     1; 1.5 for an id or a quoted phrase; 1/3 for an irregular form, another spelling, a beginning or a
          corrected word
    near  the share of the idf of the question that stands within 200 characters, for the 30 best chunks

A list whose item describes another note gives its sum to that note. `lifts.py` adds for names, ids, days and
tags. What each part is worth is in docs/search.md (`python -m benchmarks.ablation`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from sqlite3 import Connection
from typing import NamedTuple

from msgspec import Struct

from memline.shared.index.driver import json_ids
from memline.shared.index.links import Resolver
from memline.shared.search.matches import CHUNKS, NAMES, Fits, Matches
from memline.shared.search.question import Question
from memline.shared.search.terms import Lookup, Lookups, idf_of, look_up, needle_of, plain
from memline.shared.sources.dates import day_of_path
from memline.shared.sources.folding import fold
from memline.shared.sources.links import described
from memline.shared.sources.paths import MEMORY
from memline.shared.sources.tokens import has_dense

#: Terms of a question that are searched.
MAX_TERMS = 24

#: What a name weighs beside a chunk of its file, and each word that it holds (abstracts .006).
NAME, NAME_WORD = 0.7, 0.1

#: What an id or a quoted phrase weighs.
EXACT = 1.5

#: Rows that the rarest terms find before commoner ones score only these: bm25 takes 1.6 us a row.
FOUND_ENOUGH = 500

#: Chunks from which on a term is not read any more once enough are found: it cannot tell the best apart.
COMMON = 10_000

#: Files whose names fit best and whose chunks are candidates, and how many of each.
NAMED, NAMED_CHUNKS = 20, 50

#: What words that stand together add, within how many characters, and for how many of the best chunks.
NEAR, WINDOW, NEAR_CHUNKS = 0.3, 200, 30

#: Chunks that are read.
READ = 50

#: Lists: the best chunks that may be one, links to be one, the share of a chunk's words that an item has to
#: hold, and the share of the best name from which on the page itself is meant.
LISTS, ITEMS, MOST_OF_LIST, NAMED_WELL = 3, 3, 0.7, 0.6

_ROWS = (
    "SELECT chunks.id, files.path, files.source, chunks.start_line, chunks.end_line, files.mtime_ns,"
    " files.day, chunks.heading, chunks.text, chunks.text_hash, chunks.file_id,"
    " ifnull((SELECT title FROM names WHERE names.file_id = files.id AND title <> ''), '')"
    " FROM chunks CROSS JOIN files ON files.id = chunks.file_id"
)
_BY_ID = f"{_ROWS} WHERE chunks.id IN (SELECT value FROM json_each(?))"
_OF_PATH = (
    f"{_ROWS} WHERE files.path = ?1 AND ordinal < ?2"
    " AND (?3 IS NULL OR file_id IN (SELECT value FROM json_each(?3))) ORDER BY ordinal"
)
_NAMED_CHUNKS = (
    "SELECT id FROM chunks WHERE file_id IN (SELECT value FROM json_each(?1)) AND ordinal < ?2"
    " AND (?3 IS NULL OR file_id IN (SELECT value FROM json_each(?3)))"
)
_CHUNKS_OF_FILES = "SELECT id FROM chunks WHERE file_id IN (SELECT value FROM json_each(?))"

#: What a phrase begins with, the number of its term, and the share of the idf that it is.
Needle = tuple[str, int, float]


class Row(NamedTuple):
    """A chunk as it is stored, with its file."""

    id: int
    path: str
    source: str
    start: int
    end: int
    mtime_ns: int
    day: str
    heading: str
    text: str
    text_hash: bytes
    file_id: int
    title: str


class Words(Struct):
    """What the words of a question say of chunks."""

    lookups: Lookups = Lookups()
    #: Chunk -> its sum.
    sums: dict[int, float] = {}
    #: File -> what its best name adds; chunk -> its file.
    names: dict[int, float] = {}
    file_of: dict[int, int] = {}
    #: Of each term the chunks that have it, with their weight.
    held: list[dict[int, float]] = []
    needles: list[Needle] = []
    #: Chunks that were read.
    rows: dict[int, Row] = {}

    def coverage(self, chunk_id: int) -> float:
        """Return which share of the idf of the question a chunk holds."""
        asked = zip(self.lookups.found, self.held, strict=True)
        share = math.fsum(each.idf * held.get(chunk_id, 0.0) for each, held in asked if each.term.typed)
        return min(1.0, share / self.lookups.mass)

    def terms_in(self, chunk_id: int) -> list[str]:
        """List the terms that a chunk holds."""
        asked = zip(self.lookups.found, self.held, strict=True)
        return [lookup.term.label for lookup, held in asked if chunk_id in held]

    @property
    def quality(self) -> float:
        """Return the best sum as a share of it and all idf of the question."""
        best = max(self.sums.values(), default=0.0)
        return best / (best + self.lookups.mass)


def score(
    connection: Connection, matches: Matches, question: Question, files: str | None, pool: int
) -> Words:
    """Score the best `pool` chunks, and those of the files that are named best.

    `files`: a JSON array of the ids of the files that are searched, None for all.
    """
    words = Words(look_up(matches, question.terms, files, MAX_TERMS))
    found = words.lookups.found
    words.names = _names(matches, found, files)
    best = nlargest(NAMED, words.names, key=words.names.__getitem__)
    rows = connection.execute(_NAMED_CHUNKS, (json_ids(best), NAMED_CHUNKS, files)) if best else ()
    named = [row_id for (row_id,) in rows]
    sums = dict.fromkeys(named, 0.0) | _sums(connection, matches, words, files, named)
    candidates = {*nlargest(pool, sums, key=sums.__getitem__), *named}
    words.file_of = matches.files_of(CHUNKS, candidates)
    words.sums = {row: sums[row] + words.names.get(words.file_of[row], 0.0) for row in candidates}
    words.needles = [
        (needle, number, way.weight * lookup.idf / words.lookups.mass)
        for number, lookup in enumerate(found)
        for way in lookup.ways
        if not lookup.term.is_phrase and (needle := needle_of(way.match))
    ]
    # Those that may be hits are read at once.
    top = nlargest(READ, words.sums, key=words.sums.__getitem__)
    words.rows = read(connection, top)
    for row_id in top[:NEAR_CHUNKS]:
        words.sums[row_id] *= 1 + NEAR * near(words.rows[row_id].text, words.needles)
    for row_id in nlargest(LISTS, words.sums, key=words.sums.__getitem__):
        _add_described(connection, words, words.rows[row_id], files)
    return words


def read(connection: Connection, chunk_ids: Iterable[int]) -> dict[int, Row]:
    """Read chunks with their files, by id."""
    rows = connection.execute(_BY_ID, (json_ids(chunk_ids),))
    return {columns[0]: Row(*columns) for columns in rows}


def near(text: str, needles: Sequence[Needle]) -> float:
    """Return the most that the terms within WINDOW characters of a text are worth."""
    text = plain(fold(text))
    found: list[tuple[int, int, float]] = []
    for needle, number, worth in needles:
        at = text.find(needle)
        while at >= 0:
            if not at or not text[at - 1].isalnum() or has_dense(needle):
                found.append((at, number, worth))
            at = text.find(needle, at + len(needle))
    found.sort()
    most = 0.0
    for first, (start, _, _) in enumerate(found):
        best: dict[int, float] = {}
        for at, number, worth in islice(found, first, None):
            if at > start + WINDOW:
                break
            if worth > best.get(number, 0.0):
                best[number] = worth
        most = max(most, sum(best.values()))
    return most


def _sums(
    connection: Connection, matches: Matches, words: Words, files: str | None, named: Sequence[int]
) -> dict[int, float]:
    """Add up what the terms say of chunks: the rarest of all that hold them, the others of what is found."""
    total, rows = matches.total(CHUNKS), 0
    first, rest = list[Lookup](), list[Lookup]()
    for lookup in words.lookups.found:
        (rest if lookup.term.is_day or rows > FOUND_ENOUGH else first).append(lookup)
        rows += 0 if lookup.term.is_day else lookup.df
    among: set[int] | None = None
    if files is not None:
        among = {row for (row,) in connection.execute(_CHUNKS_OF_FILES, (files,))}
    sums, held = dict[int, float](), dict[str, dict[int, float]]()
    for some in (first, rest):
        if some is rest:
            among = {*sums, *named}
            some = [each for each in rest if each.df <= COMMON or not sums]
        fits = matches.fits(CHUNKS, {way.match: way.df for lookup in some for way in lookup.ways}, among)
        for lookup in some:
            mine = held[lookup.term.match] = dict[int, float]()
            # Forms first: the word itself counts in full.
            for weight, df, known in _by_weight(lookup, fits):
                worth = weight * idf_of(total, max(df, lookup.df)) * (EXACT if lookup.term.is_exact else 1.0)
                if among is not None:
                    known = {row: known[row] for row in known.keys() & among}
                for row, fit in known.items():
                    sums[row] = sums.get(row, 0.0) + worth * fit
                    mine[row] = weight
    words.held = [held.get(lookup.term.match, {}) for lookup in words.lookups.found]
    return sums


def _by_weight(lookup: Lookup, fits: Mapping[str, Fits]) -> Iterator[tuple[float, int, Fits]]:
    """Yield weight, count and fits of each form of a term, and last of its looks: the best counts."""
    looks = [way for way in lookup.ways if way.weight == 1.0]
    for way in reversed(lookup.ways[len(looks) :]):
        yield way.weight, way.df, fits[way.match]
    if looks:
        best = fits[looks[0].match]
        for way in looks[1:]:
            best = {**best, **{row: max(fit, best.get(row, 0.0)) for row, fit in fits[way.match].items()}}
        yield 1.0, looks[0].df, best


def _names(matches: Matches, found: Sequence[Lookup], files: str | None) -> dict[int, float]:
    """Return file -> what its best name adds."""
    phrases = [each.ways[0].match for each in found if not each.term.is_day]
    df = {each: count for each, count in matches.counts(NAMES, phrases, files).items() if count}
    total, rows = matches.total(NAMES), 0
    first, rest = dict[str, int](), dict[str, int]()
    for phrase, count in df.items():
        (rest if rows > FOUND_ENOUGH else first)[phrase] = count
        rows += count
    sums = dict[int, float]()
    for some in (first, rest):
        for phrase, fits in matches.fits(NAMES, some, [*sums] if some is rest else None).items():
            worth = idf_of(total, df[phrase])
            for row in fits.keys() & sums.keys() if some is rest else fits:
                sums[row] = sums.get(row, 0.0) + worth * (fits[row] + NAME_WORD)
    file_of, best = matches.files_of(NAMES, sums), dict[int, float]()
    for row, each in sums.items():
        best[file_of[row]] = max(best.get(file_of[row], 0.0), NAME * each)
    return best


def _add_described(connection: Connection, words: Words, row: Row, files: str | None) -> None:
    """Give the sum of a list to the note that its best item describes: an index page, a map of contents.

    An item such as `- [Boat](boat.md): broker, policy and renewal` says what another note is about, often in
    words that the note itself has not (.78 against .27 on a set with index pages). A note of a day has no
    lists: a log says what happened. Neither is one that is named itself.
    """
    has_links = any(sign in row.text for sign in ("](", "[[", "href="))
    if not has_links or row.source != MEMORY or row.day or day_of_path(row.path):
        return
    if words.names.get(row.file_id, 0.0) > NAMED_WELL * max(words.names.values(), default=0.0) > 0:
        return
    items = described(row.text)
    shares = [near(item, words.needles) for _, item in items]
    is_list = len({link.target for link, _ in items}) >= ITEMS
    if not is_list or max(shares) < MOST_OF_LIST * words.coverage(row.id):
        return
    link, _ = items[shares.index(max(shares))]
    # A search that is limited may be one that does not see private notes.
    resolver = Resolver(connection, private=files is None)
    target = resolver.note(link.target, is_path=link.is_path, of=row.path)
    chunks = (Row(*columns) for columns in connection.execute(_OF_PATH, (target, NAMED_CHUNKS, files)))
    mine = [each for each in chunks if any(each.id in held for held in words.held)]
    if mine:
        top = max(mine, key=lambda each: words.sums.get(each.id, 0.0))
        words.rows[top.id], words.file_of[top.id] = top, top.file_id
        words.sums[top.id] = max(words.sums.get(top.id, 0.0), words.sums[row.id] * 1.01)
