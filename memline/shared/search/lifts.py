"""Lift what a question names: a note by its name, an id, days, tags.

A lift is added to the score of a chunk, where the best words, vectors and names are 1 together.
"""

from __future__ import annotations

import json
from sqlite3 import Connection

from memline.shared.index.driver import json_ids
from memline.shared.note_names import without_ending
from memline.shared.search.matches import CHUNKS, Matches
from memline.shared.search.question import Question
from memline.shared.search.request import files_of_days, files_of_tag
from memline.shared.search.terms import Words
from memline.shared.sources.folding import name_key, stem_key

#: The question is the title, an alias or the path of a file; it is only its first heading, or its file name
#: below another heading; this is the only file that holds an id of it.
NAMED, HALF_NAMED, ID = 1.0, 0.3, 0.5

#: A note of a day that is asked for, times the share of the other words that it holds; and where nothing else
#: is asked. A tag that is asked for: more than all others together.
DAY, DAY_ALONE, TAG = 1.0, 2.0, 4.0

_NAMED = (
    "SELECT file_id, path, files.names,"
    " (SELECT title FROM names AS first WHERE first.file_id = files.id AND first.title <> '')"
    " FROM names CROSS JOIN files ON files.id = file_id WHERE key IN (?, ?, ?)"
)
_CHUNKS_OF = (
    "SELECT chunks.id, ordinal FROM chunks JOIN files ON files.id = file_id"
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

    def chunks_of(file_ids: set[int]) -> dict[int, int]:
        within = file_ids if allowed is None else file_ids & allowed
        return dict(connection.execute(_CHUNKS_OF, (json_ids(within), limit)).fetchall()) if within else {}

    if named := _named(connection, question.whole) if question.whole else {}:
        rows = matches.owners(CHUNKS, chunks_of({*named})).items()
        lifts |= {row: named[file_id] for row, file_id in rows}
    for lookup in words.lookups:
        if lookup.term.kind == "id":
            exact = [row for row in words.sums if lookup.weight(row) == 1.0]
            if len({*matches.owners(CHUNKS, exact).values()}) == 1:
                lifts |= {row: max(ID, lifts.get(row, 0.0)) for row in exact}
    if not (question.days or question.tags):
        return lifts
    file_of, dated = matches.owners(CHUNKS, words.sums), files_of_days(connection, question.days)
    if question.is_day_alone:
        lifts = {each: DAY_ALONE - at / (10 * limit) for at, each in enumerate(chunks_of(dated))}
    else:
        for row in (row for row, owner in file_of.items() if owner in dated):
            lifts[row] = lifts.get(row, 0.0) + DAY * words.coverage(row)
    for tag in question.tags:
        tagged = files_of_tag(connection, tag)
        hits = [row for row, owner in file_of.items() if owner in tagged]
        others = chunks_of(tagged.difference(file_of.values())).items()
        for row in (*hits, *(row for row, ordinal in others if not ordinal)):
            lifts[row] = lifts.get(row, 0.0) + TAG
    return lifts


def _named(connection: Connection, whole: str) -> dict[int, float]:
    """Return file -> lift of the files that a question is the name of."""
    key, stem = name_key(whole), stem_key(f"{without_ending(whole.rpartition('/')[2])}.md")
    # Some titles are questions.
    titles, lifts = {key, f"{key}?"}, dict[int, float]()
    for file_id, path, own, heading in connection.execute(_NAMED, (*titles, stem)):
        is_own = titles & {*own.split("\n")} or (stem_key(path) == key == name_key(heading or key))
        is_path = ("/" in key or "." in key) and f"/{name_key(path)}".endswith((f"/{key}", f"/{key}.md"))
        if is_own or is_path or titles & {stem_key(path), name_key(heading or "")}:
            lifts[file_id] = NAMED if is_own or is_path else HALF_NAMED
    return lifts
