"""Score chunks by the words of a question, with one sum and no rule that compares chunks with each other.

An OR of the terms: one absent word must not hide every note. For a chunk c of a file f

    s(c)  =  (S w(t) idf(t) bm25(t, c)  +  0.7 max_n S w(t) (idf(t) bm25(t, n) + 0.1))  x  (1 + 0.3 near(c))

    t     the terms of the question, the 24 rarest, and the question itself as a phrase of 3 to 8 words
    bm25  of FTS5 without its idf: text 1, heading and path 0.7 each; k1 1.2, b 0.75
    idf   ln(1 + (N - df + 1/2) / (df + 1/2)) of chunks, or of names
    n     the name documents of f: file name and title, each alias
    w     1; 1/3 for an irregular form, another spelling, a beginning or a corrected word
    near  the share of the idf of the question that stands within 200 characters, for the 20 best chunks

A list whose item describes another note gives its sum to that note. `lifts_of` says what is added, where the
best s is 1. What each part is worth is in docs/benchmarks.md (`python -m benchmarks.ablation`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from sqlite3 import Connection

from memline.shared.index.driver import json_ids
from memline.shared.index.links import Resolver
from memline.shared.note_names import name_key, stem_key, without_ending
from memline.shared.search.matches import CHUNKS, NAMES, Matches, Row
from memline.shared.search.question import Question
from memline.shared.search.request import files_of_days, files_of_tag
from memline.shared.search.terms import Lookup, Needle, Words, idf_of, look_up, plain
from memline.shared.sources.about import described
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

#: Lifts: the question is the title, an alias or the path of a file; it is only its first heading, or its file
#: name below another heading; this is the only file that holds an id of it.
WHOLE, PART, ID = 1.0, 0.3, 0.5

#: A note of a day that is asked for, times the share of the other words that it holds; and where nothing else
#: is asked. A tag that is asked for: more than all others together.
DAY, DAY_ALONE, TAG = 1.0, 2.0, 4.0

_OF_PATH = "SELECT id FROM chunks WHERE file_id = (SELECT id FROM files WHERE path = ?) AND ordinal < ?"
_NAMED_CHUNKS = (
    "SELECT id, file_id FROM chunks WHERE file_id IN (SELECT value FROM json_each(?)) AND ordinal < ?"
)
_CHUNKS_OF_FILES = "SELECT id FROM chunks WHERE file_id IN (SELECT value FROM json_each(?))"
_BY_DAY = (
    "SELECT chunks.id, file_id, ordinal FROM chunks JOIN files ON files.id = file_id"
    " WHERE file_id IN (SELECT value FROM json_each(?)) ORDER BY day, path, ordinal LIMIT ?"
)
_NAMED = (
    "SELECT file_id, path, files.names,"
    " (SELECT title FROM names AS first WHERE first.file_id = files.id AND first.title <> '')"
    " FROM names CROSS JOIN files ON files.id = file_id WHERE key IN (?, ?, ?)"
)


def score(matches: Matches, question: Question, files: str | None, pool: int) -> Words:
    """Score the best `pool` chunks.

    `files`: a JSON array of the ids of the files that are searched, None for all.
    """
    words = look_up(matches, question.terms, files, MAX_TERMS)
    names = _names(matches, words.lookups, files)
    best = json_ids(nlargest(NAMED, names, key=names.__getitem__))
    owners = matches.connection.execute(_NAMED_CHUNKS, (best, NAMED_CHUNKS))
    words.named = {row: names[owner] for row, owner in owners}
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
        _add_described(matches, words, names, words.rows[row], files, among)
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
        df, is_day = matches.count(table, each.ways[0].match), each.term.kind == "day"
        is_common = rows > FOUND_ENOUGH or (rows > FOUND_SOME and rows + df > MANY)
        (late if is_common or is_day else early).append(each)
        each.found = ()
        rows += df * (not is_day)
    sums = dict[int, float]()
    _add(sums, matches, table, early, among)
    if late:
        among = {*_best(sums, pool), *kept}
        known = [each for each in late if matches.count(table, each.ways[0].match) <= COMMON]
        _add(sums, matches, table, known, among)
    # No other can be among the best any more.
    return sums if among is None else {row: sums[row] for row in among & sums.keys()}


def _add(
    sums: dict[int, float], matches: Matches, table: str, lookups: Sequence[Lookup], among: set[int] | None
) -> None:
    total, extra = matches.totals[table], NAME_WORD if table == NAMES else 0.0
    fits = matches.fits(table, [way.match for each in lookups for way in each.ways], among)
    for each in lookups:
        each.found = [fits[way.match] for way in each.ways]
        most = matches.count(table, each.ways[0].match)
        for (match, weight), known in zip(each.ways, each.found, strict=True):
            worth = weight * idf_of(total, max(matches.count(table, match), most))
            for row in known if among is None else known.keys() & among:
                sums[row] = sums.get(row, 0.0) + worth * (known[row] + extra)


def _names(matches: Matches, lookups: Sequence[Lookup], files: str | None) -> dict[int, float]:
    """Return file -> what its best name adds."""
    named = [each for each in lookups if each.term.kind != "day"]
    sums, best = _sums(matches, NAMES, named, NAMED_POOL), dict[int, float]()
    for row, owner in matches.owners(NAMES, sums).items():
        best[owner] = max(best.get(owner, 0.0), NAME * sums[row])
    return best if files is None else {each: best[each] for each in best.keys() & {*json.loads(files)}}


def _add_described(
    matches: Matches,
    words: Words,
    names: Mapping[int, float],
    row: Row,
    files: str | None,
    among: set[int] | None,
) -> None:
    """Give the sum of a list to the note that its best item describes: an index page, a map of contents.

    An item such as `- [Boat](boat.md): broker, policy and renewal` says what another note is about, often in
    words that the note itself has not (.78 against .27 on a set with index pages). A note of a day has no
    lists: a log says what happened. Neither is one that is named itself.
    """
    has_links = any(sign in row.text for sign in ("](", "[[", "href="))
    if not has_links or row.source != MEMORY or row.day:
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
    chunks = [each for (each,) in matches.connection.execute(_OF_PATH, (target, NAMED_CHUNKS))]
    mine = [each for each in chunks if words.holds(each) and (among is None or each in among)]
    if mine:
        top = max(mine, key=lambda each: words.sums.get(each, 0.0))
        words.rows |= matches.read([top])
        words.sums[top] = max(words.sums.get(top, 0.0), words.sums[row.id] * 1.01)


def lifts_of(
    matches: Matches, question: Question, words: Words, files: str | None, limit: int
) -> dict[int, float]:
    """Return what is added to chunks, `limit` of each kind at most; `files` as in `score`."""
    connection, lifts = matches.connection, dict[int, float]()
    allowed = None if files is None else {*json.loads(files)}

    def chunks_of(file_ids: set[int]) -> list[tuple[int, int, int]]:
        within = json_ids(file_ids if allowed is None else file_ids & allowed)
        return connection.execute(_BY_DAY, (within, limit)).fetchall()

    if named := _named(connection, question.whole):
        lifts |= {row: named[owner] for row, owner, _ in chunks_of({*named})}
    for lookup in words.lookups:
        if lookup.term.kind == "id":
            exact = [row for row in words.sums if lookup.weight(row) == 1.0]
            if len({*matches.owners(CHUNKS, exact).values()}) == 1:
                lifts |= {row: max(ID, lifts.get(row, 0.0)) for row in exact}
    if not (question.days or question.tags):
        return lifts
    file_of, dated = matches.owners(CHUNKS, words.sums), files_of_days(connection, question.days)
    if question.is_day_alone:
        lifts = {each: DAY_ALONE - at / (10 * limit) for at, (each, *_) in enumerate(chunks_of(dated))}
    else:
        for row in (row for row, owner in file_of.items() if owner in dated):
            lifts[row] = lifts.get(row, 0.0) + DAY * words.coverage(row)
    for tag in question.tags:
        tagged = files_of_tag(connection, tag)
        hits = [row for row, owner in file_of.items() if owner in tagged]
        others = chunks_of(tagged.difference(file_of.values()))
        for row in (*hits, *(row for row, _, ordinal in others if not ordinal)):
            lifts[row] = lifts.get(row, 0.0) + TAG
    return lifts


def _named(connection: Connection, whole: str) -> dict[int, float]:
    """Return file -> lift of the files that a question is the name of."""
    key, stem = name_key(whole), stem_key(f"{without_ending(whole.rpartition('/')[2])}.md")
    # Some titles are questions.
    titles, lifts = {key, f"{key}?"}, dict[int, float]()
    for file_id, path, own, heading in connection.execute(_NAMED, (*titles, stem)) if key else ():
        is_own = titles & {*own.split("\n")} or (stem_key(path) == key == name_key(heading or key))
        is_path = ("/" in key or "." in key) and f"/{name_key(path)}".endswith((f"/{key}", f"/{key}.md"))
        if is_own or is_path or titles & {stem_key(path), name_key(heading or "")}:
            lifts[file_id] = WHOLE if is_own or is_path else PART
    return lifts
