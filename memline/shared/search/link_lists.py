"""Find the notes that a list of links describes: an index page, a map of contents, `MEMORY.md`.

An item such as `- [Boat](boat.md): broker, policy and renewal` says what another note is about, often in
words that the note itself has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from memline.shared.index.driver import json_ids
from memline.shared.search.forms import Lookup, needles_of, share_of
from memline.shared.search.request import resolver_of
from memline.shared.sources.dates import day_of_path
from memline.shared.sources.folding import fold
from memline.shared.sources.links import described
from memline.shared.sources.paths import MEMORY
from memline.shared.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

#: Notes that a chunk describes at least to be a list: in a log a line may begin with a link, too.
ITEMS = 3

#: Share of what a chunk holds of the question that one item of it has to hold.
MOST_OF_LIST = 0.7

#: Chunks of a note among which the best is looked for.
MOST_CHUNKS = 50

# CROSS JOIN: the few that are given first.
_LISTS = (
    "SELECT chunks.id, path, start_line, text FROM chunks CROSS JOIN files ON files.id = file_id"
    " WHERE chunks.id IN (SELECT value FROM json_each(?)) AND source = ? AND day = ''"
    " AND (instr(text, '](') OR instr(text, '[[') OR instr(text, 'href='))"
)
_CHUNKS = (
    "SELECT chunks.id FROM chunks JOIN files ON files.id = file_id WHERE path = ? AND ordinal < ?"
    " AND (?3 IS NULL OR file_id IN (SELECT value FROM json_each(?3))) ORDER BY ordinal"
)


@value
class Described:
    """A note, and the item of a list that describes it."""

    #: The chunk of the list, and path and line of the item: `index.md:12`.
    list_id: int
    place: str
    #: Chunks of the note, the first ones, in their order.
    chunks: list[int]


def described_in(
    connection: Connection,
    lists: Mapping[int, float],
    lookups: Sequence[Lookup],
    mass: float,
    files: str | None,
) -> Iterator[Described]:
    """Yield the note that the best item of each list describes, in the order of ids.

    `lists`: chunks, and which share of the idf of the question each holds. `mass`: that idf. `files`: a JSON
    array of the ids of files to stay in, None for all. A note of a day has no lists: a log says what
    happened, and not what a note is about.
    """
    found = connection.execute(_LISTS, (json_ids(lists), MEMORY)).fetchall()
    if not found:
        return
    needles = needles_of(lookups, mass)
    # Who searches some files alone may not read the private ones.
    resolver = resolver_of(connection, private=files is None)
    for chunk_id, path, start_line, text in found:
        items = described(text)
        if len({link.target for link, _ in items}) < ITEMS or day_of_path(path):
            continue
        held = [share_of(fold(item), lookups, needles)[0] for _, item in items]
        if max(held) < MOST_OF_LIST * lists[chunk_id]:
            continue
        link, _ = items[held.index(max(held))]
        target = resolver.note(link.target, is_path=link.is_path, of=path)
        if target:
            rows = connection.execute(_CHUNKS, (target, MOST_CHUNKS, files)).fetchall()
            place = f"{path}:{start_line + link.line - 1}"
            yield Described(list_id=chunk_id, place=place, chunks=[row for (row,) in rows])
