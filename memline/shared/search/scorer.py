"""Score chunks by the words of a question, with one sum and no rule that compares chunks with each other.

An OR of the terms: one absent word must not hide every note. For a chunk c of a file f

    s(c)  =  (S w(t) idf(t) bm25(t, c)  +  0.7 max_n S w(t) (idf(t) bm25(t, n) + 0.1))  x  (1 + 0.3 near(c))

    t     the terms of the question, the 24 rarest, and the question itself as a phrase of 3 to 8 words
    bm25  of FTS5 without its idf: text 1, heading and path 0.7 each; k1 1.2, b 0.75
    idf   ln(1 + (N - df + 1/2) / (df + 1/2)) of chunks, or of names
    n     the name documents of f: file name and title, each alias
    w     1; 1/3 for an irregular form, another spelling, a beginning or a corrected word
    near  the share of the idf of the question that stands within 200 characters, for the 10 best chunks

The best chunk, if it is a list, gives its sum to the note that its best item describes. `lifts_of` says what
is added, where the best s is 1. What each part is worth: `python -m benchmarks.ablation`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from sqlite3 import Connection

from memline.shared.index.driver import json_ids, scalar
from memline.shared.index.links import Resolver
from memline.shared.note_names import fold, name_key, stem_key, without_ending
from memline.shared.search.matches import CHUNKS, NAMES, Matches, Row
from memline.shared.search.question import Question
from memline.shared.search.request import files_of_days, files_of_tag
from memline.shared.search.terms import Lookup, Needle, Words, idf_of, look_up, plain
from memline.shared.sources.about import described
from memline.shared.sources.markdown import sections_of
from memline.shared.sources.paths import MEMORY
from memline.shared.sources.tokens import has_dense

#: Terms of a question that are searched.
MAX_TERMS = 24

#: What a name weighs beside a chunk of its file, and each word that it holds (abstracts .006).
NAME, NAME_WORD = 0.7, 0.1

#: A phrase scores only the best of what rarer ones found once they found some rows, and these are many with
#: its own: bm25 takes 1 us a row. From `COMMON` chunks on it cannot tell the best apart, and is not read.
SOME, MANY, COMMON = 50, 500, 10_000

#: Files whose names fit best, and how many chunks of each have that added.
NAMED, NAMED_CHUNKS = 100, 20

#: What words that stand together add, within how many characters, and for how many of the best chunks.
NEAR, WINDOW, NEAR_CHUNKS = 0.3, 200, 10

#: Links of a list, and the share of a chunk's words that an item of it has.
ITEMS, MOST_OF_LIST = 3, 0.7
#: Lifts: the question is the title, an alias or the path of a file; only its first heading, or its file name
#: below another heading; where no file is, a heading in the chunk; an id that one file holds; a day; a tag.
WHOLE, PART, ID, DAY, DAY_ALONE, TAG = 1.0, 0.3, 0.5, 1.0, 2.0, 4.0

_NAMED = (
    "SELECT file_id, path, files.names,"
    " (SELECT title FROM names AS first WHERE first.file_id = files.id AND first.title <> '')"
    " FROM names CROSS JOIN files ON files.id = file_id WHERE key IN (?, ?, ?)"
)


def score(matches: Matches, question: Question, pool: int) -> Words:
    """Score the best `pool` chunks of the files that are searched."""
    words = look_up(matches, question.terms, MAX_TERMS)
    names = _names(matches, words.lookups)
    owners = matches.owners(CHUNKS, "file_id", json_ids(_best(names, NAMED)), NAMED_CHUNKS)
    words.named = {row: names[owner] for row, owner in owners.items()}
    among = None if matches.files is None else {*matches.owners(CHUNKS, "file_id", matches.files)}
    sums = _sums(matches, CHUNKS, words.lookups, pool, words.named, among)
    sums |= {row: sums.get(row, 0.0) + added for row, added in words.named.items()}
    words.sums = {row: sums[row] for row in _best(sums, pool)}
    for row in matches.read(_best(words.sums, NEAR_CHUNKS)).values():
        words.sums[row.id] *= 1 + NEAR * near(row.text, words.needles)
    if words.sums:
        best = max(words.sums, key=words.sums.__getitem__)
        _add_described(matches, words, matches.read([best])[best])
    return words


def _best(sums: Mapping[int, float], most: int) -> list[int]:
    """Return the best rows, the best first, with those that tie with the last, MANY in all.

    So an index that was made in another order answers the same: ties are in the order of paths in the end.
    """
    # Of some hundred, as most questions have, `heapq.nlargest` takes three times as long.
    if not (best := sorted(sums, key=sums.__getitem__, reverse=True)[:most]):
        return []
    least, known = sums[best[-1]], {*best}
    ties = (row for row, said in sums.items() if said == least and row not in known)
    return [*best, *islice(ties, max(0, MANY - most))]


def places(text: str, needles: Sequence[Needle]) -> list[tuple[int, str, float]]:
    """List where needles begin a word of a `plain` text: the place, the term, and what it is worth."""
    found: list[tuple[int, str, float]] = []
    for needle, label, worth in needles:
        at = text.find(needle)
        while at >= 0:
            if not at or not text[at - 1].isalnum() or has_dense(needle):
                found.append((at, label, worth))
            at = text.find(needle, at + len(needle))
    return sorted(found)


def near(text: str, needles: Sequence[Needle]) -> float:
    """Return the most that the terms within WINDOW characters of a text are worth."""
    return best_run([(at, at, label, worth) for at, label, worth in places(plain(text), needles)], WINDOW)[0]


def best_run(
    places: Sequence[tuple[int, int, str, float]], most: int, again: float = 0.0
) -> tuple[float, int, int]:
    """Return the worth of the best run of at most `most` characters, its start and its end.

    A term that is seen again counts a share `again` of its first time.
    """
    best = 0.0, 0, 0
    for first, (start, *_) in enumerate(places):
        worth, known = 0.0, dict[str, float]()
        for _, end, label, each in islice(places, first, None):
            if known and end > start + most:
                break
            new = each - known.get(label, 0.0)
            if new > 0.0:
                known[label] = each
                worth += new * (1.0 - again)
            worth += each * again
            if worth > best[0] + 1e-9:
                best = worth, start, end
    return best


def _sums(
    matches: Matches,
    table: str,
    lookups: Sequence[Lookup],
    pool: int,
    kept: Iterable[int] = (),
    among: set[int] | None = None,
) -> dict[int, float]:
    """Add up what the rarest phrases say of all rows, or those `among`; others of the best and of `kept`."""
    total, extra = matches.totals[table], NAME_WORD if table == NAMES else 0.0
    rows, early, late = 0, list[Lookup](), list[Lookup]()
    for each in lookups:
        df, is_day = matches.count(table, each.match), each.term.kind == "day"
        (late if is_day or (rows > SOME and rows + df > MANY) else early).append(each)
        each.fits = {}
        rows += df * (not is_day)
    sums = dict[int, float]()
    for some in (early, late):
        if some is late and late:
            among = {*_best(sums, pool), *kept}
            some = [each for each in late if matches.count(table, each.match) <= COMMON]
        fits = matches.fits(table, [each.match for each in some], among)
        for each in some:
            each.fits = known = fits[each.match]
            worth = each.weight * idf_of(total, matches.count(table, each.match))
            for row in known if among is None else known.keys() & among:
                sums[row] = sums.get(row, 0.0) + worth * (known[row] + extra)
    # No other can be among the best any more.
    return sums if among is None else {row: sums[row] for row in among & sums.keys()}


def _names(matches: Matches, lookups: Sequence[Lookup]) -> dict[int, float]:
    """Return file -> what its best name adds."""
    named = [each for each in lookups if each.term.kind != "day"]
    sums, best = _sums(matches, NAMES, named, 4 * NAMED), dict[int, float]()
    for row, owner in matches.owners(NAMES, "id", json_ids(sums)).items():
        best[owner] = max(best.get(owner, 0.0), NAME * sums[row])
    return best


def _add_described(matches: Matches, words: Words, row: Row) -> None:
    """Give the sum of a list to the note that its best item describes: an index page, a map of contents.

    An item `- [Boat](boat.md): broker, policy and renewal` says what a note is about, often in words that it
    does not have (.78 against .27 on a set with index pages). A note of a day is a log, and has no lists.
    """
    if row.source != MEMORY or row.day or not re.search(r"\]\(|\[\[|href=", row.text):
        return
    items = described(row.text)
    shares = [near(item, words.needles) for _, item in items]
    is_list = len({link.target for link, _ in items}) >= ITEMS
    if not is_list or max(shares) < MOST_OF_LIST * words.coverage(row.id):
        return
    link, _ = items[shares.index(max(shares))]
    # A search that is limited may be one that does not see private notes.
    resolver = Resolver(matches.connection, private=matches.files is None)
    path = resolver.note(link.target, is_path=link.is_path, of=row.path)
    target = scalar(matches.connection, "SELECT json_array(id) FROM files WHERE path = ?", path)
    chunks = matches.owners(CHUNKS, "file_id", target or "[]", NAMED_CHUNKS)
    if mine := [each for each in chunks if words.terms_of(each)]:
        top = max(mine, key=lambda each: words.sums.get(each, 0.0))
        words.sums[top] = max(words.sums.get(top, 0.0), words.sums[row.id] * 1.01)


def lifts_of(matches: Matches, question: Question, words: Words, limit: int) -> dict[int, float]:
    """Return what is added to chunks: of a file that is asked for those that were found, else the first."""
    of_file = _named(matches.connection, question.whole)
    for tag in question.tags:
        for file_id in files_of_tag(matches.connection, tag):
            of_file[file_id] = of_file.get(file_id, 0.0) + TAG
    dated = files_of_days(matches.connection, question.days, matches.files) if question.days else {}
    # Where no other word is found, the day is all that is left.
    is_day_alone = question.is_day_alone or not words.sums
    for at, file_id in enumerate(dated if is_day_alone else ()):
        of_file[file_id] = of_file.get(file_id, 0.0) + DAY_ALONE - at / (10 * len(dated))
    ids = [each for each in words.lookups if each.term.kind == "id" and each.weight == 1.0]
    asked = r"\W+".join(re.findall(r"\w+", question.whole))
    heading = rf"(?i)[\W\d]*{asked}\W*"
    best = matches.read([*words.sums][:NEAR_CHUNKS]).values() if asked and not of_file else ()
    lifts = {
        row.id: ID
        for row in best
        # Most lack a word of it, and are not taken apart.
        if words.coverage(row.id) > 0.99
        and any(
            re.fullmatch(heading, fold(title))
            for title in (row.heading.rpartition(" > ")[2], *sections_of(row.text))
        )
    }
    if not (of_file or dated or ids):
        return lifts
    file_of = {row.id: row.file_id for row in matches.read(words.sums).values()}
    known = {*file_of.values()}
    others = [file_id for file_id in of_file if file_id not in known][:limit]
    first = 1 if question.tags else NAMED_CHUNKS
    brought = matches.owners(CHUNKS, "file_id", json_ids(others), first) if others else {}
    lifts |= {row: of_file[owner] for row, owner in (file_of | brought).items() if owner in of_file}
    for each in ids:
        exact = words.sums.keys() & each.fits.keys()
        if len({file_of[row] for row in exact}) == 1:
            lifts |= {row: max(ID, lifts.get(row, 0.0)) for row in exact}
    for row in [row for row, owner in file_of.items() if owner in dated and not is_day_alone]:
        lifts[row] = lifts.get(row, 0.0) + DAY * words.coverage(row)
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
