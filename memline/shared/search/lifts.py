"""Lift what a question names: a file by its name, a section by its heading, an id, days, tags.

A lift is added to the score of a chunk, where the best words, vectors and names are 1 together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from sqlite3 import Connection

from msgspec import Struct

from memline.shared.index.driver import json_ids
from memline.shared.note_names import without_ending
from memline.shared.search.matches import CHUNKS, Matches
from memline.shared.search.question import PIECE, Question, quoted
from memline.shared.search.request import files_of_days, files_of_tag
from memline.shared.search.terms import Words
from memline.shared.sources.folding import name_key, stem_key
from memline.shared.sources.markdown import sections_of

#: The question is a title, alias, file name, path or heading; it is a heading at the top of a note that calls
#: itself otherwise, or such a title is most of it; it holds the path or the name of a file.
WHOLE, PART = 1.0, 0.3

#: The only file that holds an id of the question.
ID = 0.5

#: A note of a day that is asked for, times the share of the other words that it holds; and where nothing else
#: is asked.
DAY, DAY_ALONE = 1.0, 2.0

#: A tag that is asked for: more than all others together.
TAG = 4.0

#: Share of the words of a question, and of their idf, that a title in it has at least.
MOST = 0.5

#: Chunks of a file, and with a heading, that are looked at.
MOST_CHUNKS = 50

_NAMED = (
    "SELECT file_id, path, key, files.names,"
    " (SELECT title FROM names AS first WHERE first.file_id = files.id AND first.title <> '')"
    " FROM names CROSS JOIN files ON files.id = file_id WHERE key IN (SELECT value FROM json_each(?))"
)
_CHUNKS_OF = (
    "SELECT chunks.id, file_id FROM chunks JOIN files ON files.id = file_id"
    " WHERE file_id IN (SELECT value FROM json_each(?)) ORDER BY day, path, ordinal LIMIT ?"
)
_FIRST_OF = "SELECT id FROM chunks WHERE ordinal = 0 AND file_id IN (SELECT value FROM json_each(?)) LIMIT ?"
_WITH_HEADING = (
    "SELECT id, text, file_id FROM chunks"
    " WHERE id IN (SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ? ORDER BY rank LIMIT ?)"
)


class Lifts(Struct):
    """What is added to the scores of chunks, and what a question of days found."""

    #: Chunk -> what is added.
    of: dict[int, float] = {}
    #: Whether there is a note of the days that are asked for.
    has_dated: bool = False

    def add(self, chunk_ids: Iterable[int], amount: float) -> None:
        """Raise lifts to an amount."""
        for each in chunk_ids:
            self.of[each] = max(self.of.get(each, 0.0), amount)


def lifts_of(
    matches: Matches, question: Question, words: Words, files: list[int] | None, limit: int
) -> Lifts:
    """Find what a question names, of `limit` chunks at most; `files`: the ids of those that are searched."""
    connection, lifts, allowed = matches.connection, Lifts(), None if files is None else {*files}

    def within(ids: Iterable[int]) -> list[int]:
        return sorted(ids if allowed is None else allowed.intersection(ids))

    if named := _named(connection, question, words):
        for chunk_id, file_id in connection.execute(_CHUNKS_OF, (json_ids(within(named)), limit)):
            lifts.add([chunk_id], named[file_id])
    # A heading of three words or more stands somewhere as a phrase.
    found = {lookup.term for lookup in words.lookups}
    phrases = {term for term in question.terms if term.kind == "phrase"}
    if question.whole and not named and found.issuperset(phrases):
        sections = _sections(connection, question.whole)
        lifts.add((each for each, file_id in sections.items() if within([file_id])), PART)
    for lookup in words.lookups:
        if lookup.term.kind == "id":
            exact = [row for row in words.sums if lookup.weight(row) == 1.0]
            if len({*matches.owners(CHUNKS, exact).values()}) == 1:
                lifts.add(exact, ID)
    if not question.days and not question.tags:
        return lifts
    file_of = matches.owners(CHUNKS, words.sums)
    if question.days:
        dated = within(files_of_days(connection, question.days))
        lifts.has_dated = bool(dated)
        if question.is_day_alone:
            rows = connection.execute(_CHUNKS_OF, (json_ids(dated), limit))
            lifts.of = {chunk_id: DAY_ALONE - at / (10 * limit) for at, (chunk_id, _) in enumerate(rows)}
        else:
            for row in (each for each, owner in file_of.items() if owner in {*dated}):
                lifts.add([row], lifts.of.get(row, 0.0) + DAY * words.coverage(row))
    for tag in question.tags:
        tagged = {*within(files_of_tag(connection, tag))}
        hits = {row: owner for row, owner in file_of.items() if owner in tagged}
        firsts = connection.execute(_FIRST_OF, (json_ids(sorted(tagged.difference(hits.values()))), limit))
        for each in (*hits, *(row for (row,) in firsts)):
            lifts.of[each] = lifts.of.get(each, 0.0) + TAG
    return lifts


def _named(connection: Connection, question: Question, words: Words) -> dict[int, float]:
    """Return file -> lift of the files that a question is the name of, or holds the path or title of."""
    lifts: dict[int, float] = {}
    wholes = {name_key(question.whole), name_key(f"{question.whole}?")} - {"", "?"}
    paths = {name_key(each.strip("./")): each for each in (*question.paths, question.whole) if each}
    stems = {stem_key(f"{without_ending(each.rpartition('/')[2])}.md") for each in paths}
    keys = json.dumps([*{*wholes, *paths, *stems, *question.runs}])
    pages: dict[str, set[int]] = {}
    for file_id, path, key, own, heading in connection.execute(_NAMED, (keys,)):
        pages.setdefault(key, set()).add(file_id)
        amounts = [lifts.get(file_id, 0.0)]
        if key in wholes:
            is_own = key in own.split("\n") or stem_key(path) == key == name_key(heading or key)
            amounts.append(WHOLE if is_own else PART)
        for wanted, typed in paths.items():
            has_mark = "/" in wanted or "." in wanted
            if has_mark and f"/{name_key(path)}".endswith((f"/{wanted}", f"/{wanted}.md")):
                amounts.append(WHOLE if typed == question.whole else PART)
        lifts[file_id] = max(amounts)
    lifts = {each: amount for each, amount in lifts.items() if amount}
    if lifts or not pages:
        return lifts
    # Titles of one file alone that are most of the question, or names of code.
    rarity = {name_key(label): idf for label, idf in words.rarity.items()}
    for key in pages.keys() & question.runs.keys():
        idfs = [rarity[word] for word in {*key.split("-")} & rarity.keys()]
        is_most = len(idfs) >= MOST * len(rarity) and math.fsum(idfs) >= MOST * math.fsum(rarity.values())
        if len(pages[key]) == 1 and (" " not in question.runs[key] or (idfs and is_most)):
            lifts[min(pages[key])] = PART
    return lifts


def _sections(connection: Connection, whole: str) -> dict[int, int]:
    """Return the chunks with a section whose heading is the question, and their files."""
    if not PIECE.search(whole):
        return {}
    rows = connection.execute(_WITH_HEADING, (f"{{heading}} : {quoted(whole)}", MOST_CHUNKS)).fetchall()
    key = name_key(whole)
    return {row: file_id for row, text, file_id in rows if key in map(name_key, sections_of(text))}
