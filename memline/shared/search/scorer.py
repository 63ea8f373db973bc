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

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import NamedTuple

from memline.shared.index.driver import json_ids
from memline.shared.search.matches import CHUNKS, NAMES, Fits, Matches
from memline.shared.search.question import Question
from memline.shared.search.terms import Lookup, Lookups, idf_of, look_up, needle_of, plain
from memline.shared.sources.dates import day_of_path
from memline.shared.sources.folding import fold
from memline.shared.sources.paths import MEMORY
from memline.shared.sources.tokens import has_dense

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

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
_OF_PATH = f"{_ROWS} WHERE files.path = ? AND ordinal < ? ORDER BY ordinal"
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


class Words:
    """What the words of a question say of chunks."""

    def __init__(self, lookups: Lookups) -> None:
        self.lookups = lookups
        #: Chunk -> its sum.
        self.sums: dict[int, float] = {}
        #: File -> what its best name adds; chunk -> its file.
        self.names: dict[int, float] = {}
        self.file_of: dict[int, int] = {}
        #: Of each term the chunks that hold it, with their weight.
        self.held: list[dict[int, float]] = []
        self.needles: Sequence[Needle] = ()
        #: Chunks that were read.
        self.rows: dict[int, Row] = {}

    def coverage(self, chunk_id: int) -> float:
        """Return which share of the idf of the question a chunk holds."""
        asked = zip(self.lookups.found, self.held, strict=True)
        share = math.fsum(each.idf * held.get(chunk_id, 0.0) for each, held in asked if each.term.is_asked)
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
    named = (
        [row for (row,) in connection.execute(_NAMED_CHUNKS, (json_ids(best), NAMED_CHUNKS, files))]
        if best
        else []
    )
    sums = _sums(connection, matches, words, files, named)
    for row in named:
        sums.setdefault(row, 0.0)
    candidates = {*nlargest(pool, sums, key=sums.__getitem__), *named}
    words.file_of = matches.files_of(CHUNKS, candidates)
    words.sums = {row: sums[row] + words.names.get(words.file_of[row], 0.0) for row in candidates}
    words.needles = [
        (needle, number, way.weight * lookup.idf / words.lookups.mass)
        for number, lookup in enumerate(found)
        for way in lookup.ways
        if not lookup.term.is_phrase and (needle := needle_of(way.match))
    ]
    top = nlargest(NEAR_CHUNKS, words.sums, key=words.sums.__getitem__)
    # Those that may be hits are read at once.
    words.rows = read(connection, nlargest(READ, words.sums, key=words.sums.__getitem__))
    for row_id in top:
        words.sums[row_id] *= 1 + NEAR * near(words.rows[row_id].text, words.needles)
    _add_described(connection, words, files)
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
    found, total = words.lookups.found, matches.total(CHUNKS)
    enough, rows = 0, 0
    while enough < len(found) and rows <= FOUND_ENOUGH:
        rows += 0 if found[enough].term.is_day else found[enough].df
        enough += 1
    searched = None
    if files is not None:
        searched = {row for (row,) in connection.execute(_CHUNKS_OF_FILES, (files,))}
    sums: dict[int, float] = {}
    first = [each for each in found[:enough] if not each.term.is_day]
    rest = [each for each in found if each not in first]
    held = {}
    for some, among in ((first, searched), (rest, None)):
        if some is rest:
            among = {*sums, *named}
            some = [each for each in rest if each.df <= COMMON or not sums]
        counts = {way.match: way.df for lookup in some for way in lookup.ways}
        fits = matches.fits(CHUNKS, counts, among)
        for lookup in some:
            mine = held[lookup.term.match] = dict[int, float]()
            # Forms first: the word itself counts in full.
            for weight, df, known in _by_weight(lookup, fits):
                worth = weight * idf_of(total, max(df, lookup.df)) * (EXACT if lookup.term.is_exact else 1.0)
                if among is not None and len(among) < len(known):
                    known = {row: known[row] for row in among if row in known}
                for row, fit in known.items():
                    if among is None or row in among:
                        sums[row] = sums.get(row, 0.0) + worth * fit
                        mine[row] = weight
    words.held = [held.get(lookup.term.match, {}) for lookup in found]
    return sums


def _by_weight(lookup: Lookup, fits: Mapping[str, Fits]) -> Iterator[tuple[float, int, Fits]]:
    """Yield weight, count and fits of each form of a term, and last of its looks: the best counts."""
    ways = [way for way in lookup.ways if way.weight == lookup.ways[0].weight == 1.0]
    for way in reversed(lookup.ways[len(ways) :]):
        yield way.weight, way.df, fits[way.match]
    if ways:
        best = dict(fits[ways[0].match]) if ways[1:] else fits[ways[0].match]
        for way in ways[1:]:
            best = {**best, **{row: max(fit, best.get(row, 0.0)) for row, fit in fits[way.match].items()}}
        yield 1.0, ways[0].df, best


def _names(matches: Matches, found: Sequence[Lookup], files: str | None) -> dict[int, float]:
    """Return file -> what its best name adds."""
    lookups = [each for each in found if not each.term.is_day]
    df = matches.counts(NAMES, [each.ways[0].match for each in lookups], files)
    lookups = [each for each in lookups if df[each.ways[0].match]]
    total, sums = matches.total(NAMES), dict[int, float]()
    some, rows = list[Lookup](), 0
    for lookup in lookups:
        some.append(lookup)
        rows += df[lookup.ways[0].match]
        if rows > FOUND_ENOUGH:
            break
    for part, among in ((some, None), (lookups[len(some) :], sums)):
        counts = {each.ways[0].match: df[each.ways[0].match] for each in part}
        fits = matches.fits(NAMES, counts, None if among is None else [*among])
        for phrase, count in counts.items():
            worth = idf_of(total, count)
            for row, fit in fits[phrase].items():
                if among is None or row in among:
                    sums[row] = sums.get(row, 0.0) + worth * (fit + NAME_WORD)
    file_of = matches.files_of(NAMES, sums)
    best: dict[int, float] = {}
    for row, each in sums.items():
        best[file_of[row]] = max(best.get(file_of[row], 0.0), NAME * each)
    return best


def _add_described(connection: Connection, words: Words, files: str | None) -> None:
    """Give the sum of a list to the note that its best item describes: an index page, a map of contents.

    An item such as `- [Boat](boat.md): broker, policy and renewal` says what another note is about, often in
    words that the note itself has not (.78 against .27 on a set with index pages). A note of a day has no
    lists: a log says what happened.
    """
    best_name = max(words.names.values(), default=0.0)
    for row_id in nlargest(LISTS, words.sums, key=words.sums.__getitem__):
        row = words.rows[row_id]
        has_links = any(sign in row.text for sign in ("](", "[[", "href="))
        if not has_links or row.source != MEMORY or row.day or day_of_path(row.path):
            continue
        if words.names.get(row.file_id, 0.0) > NAMED_WELL * best_name > 0:
            continue
        target = _described_by(connection, row, words, private=files is None)
        chunks = (
            [Row(*columns) for columns in connection.execute(_OF_PATH, (target, NAMED_CHUNKS))]
            if target
            else []
        )
        allowed = None if files is None else {*json.loads(files)}
        mine = [each for each in chunks if any(each.id in held for held in words.held)]
        mine = [each for each in mine if allowed is None or each.file_id in allowed]
        if mine:
            top = max(mine, key=lambda each: words.sums.get(each.id, 0.0))
            words.rows[top.id], words.file_of[top.id] = top, top.file_id
            words.sums[top.id] = max(words.sums.get(top.id, 0.0), words.sums[row_id] * 1.01)


def _described_by(connection: Connection, row: Row, words: Words, *, private: bool) -> str:
    """Return the path of the note that the best item of a list describes; empty where none does."""
    # 1.5 ms, which a question pays that meets a list.
    from memline.shared.index.links import Resolver
    from memline.shared.sources.links import described

    items = described(row.text)
    if len({link.target for link, _ in items}) < ITEMS:
        return ""
    shares = [near(item, words.needles) for _, item in items]
    if max(shares) < MOST_OF_LIST * words.coverage(row.id):
        return ""
    link, _ = items[shares.index(max(shares))]
    # A search that is limited may be one that does not see private notes.
    return Resolver(connection, private=private).note(link.target, is_path=link.is_path, of=row.path)
