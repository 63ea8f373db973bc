"""Lift what a question names: a file by its name, an id, days, tags.

A lift is added to the score of a chunk, where the best words, vectors and names are 1 together.
"""

from __future__ import annotations

import json
import math
from sqlite3 import Connection

from memline.shared.index.driver import json_ids
from memline.shared.note_names import without_ending
from memline.shared.search.matches import CHUNKS, Matches
from memline.shared.search.question import Question
from memline.shared.search.request import files_of_days, files_of_tag
from memline.shared.search.terms import Words
from memline.shared.sources.folding import name_key, stem_key

#: The question is a title, alias, file name or path; it is the first heading of a note that has another name,
#: such a title is half of it at least, or it holds the path or the name of a file.
WHOLE, PART = 1.0, 0.3

#: The only file that holds an id of the question.
ID = 0.5

#: A note of a day that is asked for, times the share of the other words that it holds; and where nothing else
#: is asked. A tag that is asked for: more than all others together.
DAY, DAY_ALONE, TAG = 1.0, 2.0, 4.0

#: Share of the words of a question, and of their idf, that a title in it has at least.
MOST = 0.5

_NAMED = (
    "SELECT file_id, path, key, files.names,"
    " (SELECT title FROM names AS first WHERE first.file_id = files.id AND first.title <> '')"
    " FROM names CROSS JOIN files ON files.id = file_id WHERE key IN (SELECT value FROM json_each(?))"
)
_CHUNKS_OF = (
    "SELECT chunks.id, file_id, ordinal FROM chunks JOIN files ON files.id = file_id"
    " WHERE file_id IN (SELECT value FROM json_each(?)) ORDER BY day, path, ordinal LIMIT ?"
)


def lifts_of(
    matches: Matches, question: Question, words: Words, files: str | None, limit: int
) -> dict[int, float]:
    """Return what is added to chunks, `limit` of each kind at most.

    `files`: a JSON array of the ids of the files that are searched, None for all.
    """
    connection, lifts = matches.connection, dict[int, float]()
    allowed = None if files is None else {*json.loads(files)}

    def within(file_ids: set[int]) -> set[int]:
        return file_ids if allowed is None else file_ids & allowed

    def chunks_of(file_ids: set[int]) -> list[tuple[int, int, int]]:
        return connection.execute(_CHUNKS_OF, (json_ids(file_ids), limit)).fetchall()

    if named := _named(connection, question, words):
        lifts |= {chunk_id: named[file_id] for chunk_id, file_id, _ in chunks_of(within({*named}))}
    for lookup in words.lookups:
        if lookup.term.kind == "id":
            exact = [row for row in words.sums if lookup.weight(row) == 1.0]
            if len({*matches.owners(CHUNKS, exact).values()}) == 1:
                lifts |= {row: max(ID, lifts.get(row, 0.0)) for row in exact}
    file_of = matches.owners(CHUNKS, words.sums) if question.days or question.tags else {}
    dated = within(files_of_days(connection, question.days)) if question.days else set()
    if question.is_day_alone:
        lifts = {each: DAY_ALONE - at / (10 * limit) for at, (each, *_) in enumerate(chunks_of(dated))}
    else:
        for row in (row for row, owner in file_of.items() if owner in dated):
            lifts[row] = lifts.get(row, 0.0) + DAY * words.coverage(row)
    for tag in question.tags:
        tagged = within(files_of_tag(connection, tag))
        hits = [row for row, owner in file_of.items() if owner in tagged]
        others = chunks_of(tagged.difference(file_of.values()))
        for row in (*hits, *(row for row, _, ordinal in others if not ordinal)):
            lifts[row] = lifts.get(row, 0.0) + TAG
    return lifts


def _named(connection: Connection, question: Question, words: Words) -> dict[int, float]:
    """Return file -> lift of the files that a question is the name of, or holds the path or title of."""
    wholes = {name_key(question.whole), name_key(f"{question.whole}?")} - {"", "?"}
    paths = {name_key(each.strip("./")): each for each in (*question.paths, question.whole) if each}
    stems = {stem_key(f"{without_ending(each.rpartition('/')[2])}.md") for each in paths}
    keys = json.dumps([*{*wholes, *paths, *stems, *question.runs}])
    lifts, pages = dict[int, float](), dict[str, set[int]]()
    for file_id, path, key, own, heading in connection.execute(_NAMED, (keys,)):
        pages.setdefault(key, set()).add(file_id)
        amount = 0.0
        if key in wholes:
            is_own = key in own.split("\n") or stem_key(path) == key == name_key(heading or key)
            amount = WHOLE if is_own else PART
        for wanted, typed in paths.items():
            is_path = f"/{name_key(path)}".endswith((f"/{wanted}", f"/{wanted}.md"))
            if is_path and ("/" in wanted or "." in wanted):
                amount = max(amount, WHOLE if typed == question.whole else PART)
        if amount:
            lifts[file_id] = max(amount, lifts.get(file_id, 0.0))
    if lifts:
        return lifts
    # Titles of one file alone that are most of the question, or names of code.
    rarity = {name_key(label): idf for label, idf in words.rarity.items()}
    for key in pages.keys() & question.runs.keys():
        idfs = [rarity[word] for word in {*key.split("-")} & rarity.keys()]
        is_most = len(idfs) >= MOST * len(rarity) and math.fsum(idfs) >= MOST * math.fsum(rarity.values())
        if len(pages[key]) == 1 and (" " not in question.runs[key] or (idfs and is_most)):
            lifts[min(pages[key])] = PART
    return lifts
