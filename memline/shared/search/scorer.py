"""Score chunks by the words of a question, with one sum and no rule that compares chunks with each other.

An OR of the terms: one absent word must not hide every note. For a chunk c of a file f

    s(c)  =  (S w(t) idf(t) bm25(t, c)  +  0.7 max_n S w(t) (idf(t) bm25(t, n) + 0.1))  x  (1 + 0.3 near(c))

    t     the terms of the question, the 24 rarest, and the question itself as a phrase of 3 to 8 words
    bm25  of FTS5 without its idf: text 1, heading and path 0.7 each; k1 1.2, b 0.75
    idf   ln(1 + (N - df + 1/2) / (df + 1/2)) of chunks, or of names
    n     the name documents of f: file name and title, each alias
    w     1; 1/3 for an irregular form, another spelling, a beginning or a corrected word
    near  the share of the idf of the question that stands within 200 characters, for the 20 best chunks

A list whose item describes another note gives its sum to that note. `lifts.py` adds for names, ids, days and
tags. What each part is worth is in docs/benchmarks.md (`python -m benchmarks.ablation`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import islice

from memline.shared.index.driver import json_ids
from memline.shared.index.links import Resolver
from memline.shared.search.matches import CHUNKS, NAMES, Matches, Row
from memline.shared.search.question import Question
from memline.shared.search.terms import Lookup, Needle, Way, Words, idf_of, look_up, plain
from memline.shared.sources.dates import day_of_path
from memline.shared.sources.links import described
from memline.shared.sources.paths import MEMORY
from memline.shared.sources.tokens import has_dense

#: Terms of a question that are searched.
MAX_TERMS = 24

#: What a name weighs beside a chunk of its file, and each word that it holds (abstracts .006).
NAME, NAME_WORD = 0.7, 0.1

#: Rows that the rarest terms find before commoner ones score only these: bm25 takes 1 us a row. So does a
#: term that many rows have where some are found.
FOUND_ENOUGH, FOUND_SOME, MANY = 200, 50, 500

#: Chunks from which on a term is not read any more once enough are found: it cannot tell the best apart.
COMMON = 10_000

#: Names that commoner terms score, files whose names fit best, and how many chunks of each have that added.
NAMED_POOL, NAMED, NAMED_CHUNKS = 400, 100, 20

#: What words that stand together add, within how many characters, and for how many of the best chunks.
NEAR, WINDOW, NEAR_CHUNKS = 0.3, 200, 20

#: Lists: the best chunks that may be one, links to be one, the share of a chunk's words that an item has to
#: hold, and the share of the best name from which on the page itself is meant.
LISTS, ITEMS, MOST_OF_LIST, NAMED_WELL = 3, 3, 0.7, 0.6

_OF_PATH = (
    "SELECT id FROM chunks WHERE file_id = (SELECT id FROM files WHERE path = ?1) AND ordinal < ?2"
    " AND (?3 IS NULL OR file_id IN (SELECT value FROM json_each(?3))) ORDER BY ordinal"
)
_NAMED_CHUNKS = (
    "SELECT id, file_id FROM chunks WHERE file_id IN (SELECT value FROM json_each(?)) AND ordinal < ?"
)
_CHUNKS_OF_FILES = "SELECT id FROM chunks WHERE file_id IN (SELECT value FROM json_each(?))"


def score(matches: Matches, question: Question, files: str | None, pool: int) -> Words:
    """Score the best `pool` chunks.

    `files`: a JSON array of the ids of the files that are searched, None for all.
    """
    words = look_up(matches, question.terms, files, MAX_TERMS)
    names = _names(matches, words.lookups, files)
    best = json_ids(nlargest(NAMED, names, key=names.__getitem__))
    file_of = dict(matches.connection.execute(_NAMED_CHUNKS, (best, NAMED_CHUNKS)).fetchall())
    words.named = {row: names[owner] for row, owner in file_of.items()}
    among = None
    if files is not None:
        among = {row for (row,) in matches.connection.execute(_CHUNKS_OF_FILES, (files,))}
    sums = _sums(matches, CHUNKS, words.lookups, pool, words.named, among)
    sums |= {row: sums.get(row, 0.0) + added for row, added in words.named.items()}
    words.sums = {row: sums[row] for row in _best(sums, pool)}
    words.rows = matches.read([*words.sums][:NEAR_CHUNKS])
    for row in words.rows:
        words.sums[row] *= 1 + NEAR * near(words.rows[row].text, words.needles)
    for row in nlargest(LISTS, words.sums, key=words.sums.__getitem__):
        _add_described(matches, words, names, words.rows[row], files)
    return words


def places(text: str, needles: Sequence[Needle]) -> list[tuple[int, int, float]]:
    """List where needles begin a word of a `plain` text: the place, the term, and what it is worth."""
    found: list[tuple[int, int, float]] = []
    for needle, number, worth in needles:
        at = text.find(needle)
        while at >= 0:
            if not at or not text[at - 1].isalnum() or has_dense(needle):
                found.append((at, number, worth))
            at = text.find(needle, at + len(needle))
    found.sort()
    return found


def near(text: str, needles: Sequence[Needle]) -> float:
    """Return the most that the terms within WINDOW characters of a text are worth."""
    found, most = places(plain(text), needles), 0.0
    for first, (start, _, _) in enumerate(found):
        best: dict[int, float] = {}
        for at, number, worth in islice(found, first, None):
            if at > start + WINDOW:
                break
            if worth > best.get(number, 0.0):
                best[number] = worth
        most = max(most, sum(best.values()))
    return most


def _best(sums: Mapping[int, float], count: int) -> list[int]:
    # `nlargest` is slower for so many.
    return sorted(sums, key=sums.__getitem__, reverse=True)[:count]


def _sums(
    matches: Matches,
    table: str,
    lookups: Sequence[Lookup],
    pool: int,
    kept: Iterable[int] = (),
    among: set[int] | None = None,
) -> dict[int, float]:
    """Add up what terms say of rows: the rarest of all that have them, the others of the best and of `kept`.

    `among`: only these rows are scored.
    """
    rows, early, late = 0, list[Lookup](), list[Lookup]()
    for each in lookups:
        df = each.ways[0].df
        is_common = rows > FOUND_SOME and rows + df > MANY
        (late if is_common or rows > FOUND_ENOUGH or each.term.kind == "day" else early).append(each)
        rows += df if each.term.kind != "day" else 0
    sums = dict[int, float]()
    _add(sums, matches, table, early, among)
    if late:
        among = {*_best(sums, pool), *kept}
        _add(sums, matches, table, [each for each in late if each.ways[0].df <= COMMON], among)
    # No other can be among the best any more.
    return sums if among is None else {row: sums[row] for row in among & sums.keys()}


def _add(
    sums: dict[int, float], matches: Matches, table: str, lookups: Sequence[Lookup], among: set[int] | None
) -> None:
    total, extra = matches.total(table), NAME_WORD if table == NAMES else 0.0
    fits = matches.fits(table, {way.match: way.df for each in lookups for way in each.ways}, among)
    for each in lookups:
        each.found = [fits[way.match] for way in each.ways]
        for (_, weight, df), known in zip(each.ways, each.found, strict=True):
            worth = weight * idf_of(total, max(df, each.ways[0].df))
            for row in known if among is None else known.keys() & among:
                sums[row] = sums.get(row, 0.0) + worth * (known[row] + extra)


def _names(matches: Matches, lookups: Sequence[Lookup], files: str | None) -> dict[int, float]:
    """Return file -> what its best name adds."""
    named = [
        Lookup(each.term, [Way(each.ways[0].match, 1.0, count)], each.idf)
        for each in lookups
        if each.term.kind != "day" and (count := matches.names_with(each.ways[0].match))
    ]
    sums = _sums(matches, NAMES, named, NAMED_POOL)
    allowed, best = None if files is None else {*json.loads(files)}, dict[int, float]()
    for row, owner in matches.owners(NAMES, sums).items():
        if allowed is None or owner in allowed:
            best[owner] = max(best.get(owner, 0.0), NAME * sums[row])
    return best


def _add_described(
    matches: Matches, words: Words, names: Mapping[int, float], row: Row, files: str | None
) -> None:
    """Give the sum of a list to the note that its best item describes: an index page, a map of contents.

    An item such as `- [Boat](boat.md): broker, policy and renewal` says what another note is about, often in
    words that the note itself has not (.78 against .27 on a set with index pages). A note of a day has no
    lists: a log says what happened. Neither is one that is named itself.
    """
    has_links = any(sign in row.text for sign in ("](", "[[", "href="))
    if not has_links or row.source != MEMORY or row.day or day_of_path(row.path):
        return
    if names.get(row.file_id, 0.0) > NAMED_WELL * max(names.values(), default=0.0) > 0:
        return
    items = described(row.text)
    shares = [near(item, words.needles) for _, item in items]
    is_list = len({link.target for link, _ in items}) >= ITEMS
    if not is_list or max(shares) < MOST_OF_LIST * words.coverage(row.id):
        return
    link, _ = items[shares.index(max(shares))]
    # A search that is limited may be one that does not see private notes.
    resolver = Resolver(matches.connection, private=files is None)
    target = resolver.note(link.target, is_path=link.is_path, of=row.path)
    chunks = matches.connection.execute(_OF_PATH, (target, NAMED_CHUNKS, files))
    mine = [each for (each,) in chunks if any(term.weight(each) for term in words.lookups)]
    if mine:
        top = max(mine, key=lambda each: words.sums.get(each, 0.0))
        words.rows |= matches.read([top])
        words.sums[top] = max(words.sums.get(top, 0.0), words.sums[row.id] * 1.01)
