"""Find chunks by vectors and by file names."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from memline.shared.index import driver
from memline.shared.note_names import without_ending
from memline.shared.patterns import late
from memline.shared.search.query import Question
from memline.shared.search.ranking import KeywordHits
from memline.shared.search.request import files_of_days, files_of_tag
from memline.shared.search.vector_backends import VectorBackend
from memline.shared.sources.folding import name_key, stem_key
from memline.shared.sources.paths import MEMORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

_NAMED = (
    "SELECT file_id, path, key, files.names,"
    " (SELECT title FROM names AS first WHERE first.file_id = files.id AND first.title <> '')"
    " FROM names JOIN files ON files.id = file_id WHERE "
)
# A dated note may carry a title behind its day: `.` follows `-`.
_BY_NAME = _NAMED + "key IN (?1, ?2) OR ?3 <> '' AND key > ?3 || '-' AND key < ?3 || '.'"
_BY_KEYS = _NAMED + "key IN (SELECT value FROM json_each(?))"
_CHUNKS_OF = (
    "SELECT id, file_id FROM chunks WHERE file_id IN (SELECT value FROM json_each(?))"
    " ORDER BY file_id, ordinal LIMIT ?"
)

_BEGINNINGS = (
    "SELECT chunks.id FROM chunks CROSS JOIN files ON files.id = file_id AND source = ?"
    " WHERE ordinal = 0 AND chunks.id IN (SELECT value FROM json_each(?))"
)

_FILES_OF_CHUNKS = "SELECT id, file_id FROM chunks WHERE id IN (SELECT value FROM json_each(?))"

_CHUNKS_OF_VECTORS = (
    "SELECT chunks.id, vectors.id FROM vectors CROSS JOIN chunks ON chunks.text_hash = vectors.text_hash"
    " WHERE vectors.id IN (SELECT value FROM json_each(?))"
)
_IN_FILES = " AND chunks.file_id IN (SELECT value FROM json_each(?))"
# CROSS JOIN: the few rows that are given first, not all vectors of the identity (300 ms at 10,000).
_VECTORS_OF_CHUNKS = (
    "SELECT chunks.id, vectors.id FROM chunks CROSS JOIN vectors"
    " ON vectors.identity_id = ? AND vectors.text_hash = chunks.text_hash"
    " WHERE chunks.id IN (SELECT value FROM json_each(?))"
)

_DAY = late(r"\d{4}-\d{2}-\d{2}")

#: Links that are kept, 100 bytes each.
MAX_LINKS = 100_000

#: What is added to the score of a hit in a file of a day that the question names, more than the best words,
#: vectors and name give, and the score of what is in such a file and is no hit.
DAY_LIFT, DAY_ALONE = 1.5, 0.05

#: The same for each tag that the question names: more than all others give together.
TAG_LIFT = 3.0

#: How sure a name in the question means a file: its path; its file name; a title of one file alone, of two
#: words or more that are half of the question, or that is a name of code (`useState`); what it calls itself,
#: in its front matter or by its name without `.md`, unless its first heading is another; that name or heading
#: alone.
PATH, NAME, MOST, TITLE, STEM = 5, 4, 3, 2, 1

#: Share of the words of a question, and of their idf, that such a title has at least.
MOST_SHARE = 0.5


class Links:
    """Keeps which chunks have which vectors, until the index changes. Not safe to use from several
    threads at once.
    """

    def __init__(self) -> None:
        #: `data_version` of the connection, and row id of the identity.
        self._state: tuple[int, int] | None = None
        self._chunks: dict[int, tuple[int, ...]] = {}
        #: 0: the chunk has no vector.
        self._vectors: dict[int, int] = {}

    def follow(self, connection: Connection, identity_id: int) -> None:
        """Forget everything if the index has changed; first in each read transaction.

        Always of the same connection: another one counts versions of its own.
        """
        state = driver.scalar(connection, "PRAGMA data_version"), identity_id
        if state != self._state or len(self._vectors) + len(self._chunks) > MAX_LINKS:
            self._chunks.clear()
            self._vectors.clear()
            self._state = state

    def chunks_of(self, connection: Connection, vector_ids: Iterable[int]) -> list[tuple[int, int]]:
        """Return (chunk id, vectors.id) of all chunks with one of these vectors."""
        known = self._chunks
        if new := [each for each in vector_ids if each not in known]:
            found: dict[int, list[int]] = {each: [] for each in new}
            for chunk_id, vector_id in connection.execute(_CHUNKS_OF_VECTORS, (driver.json_ids(new),)):
                found[vector_id].append(chunk_id)
            known.update((vector_id, tuple(chunk_ids)) for vector_id, chunk_ids in found.items())
        return [(chunk_id, vector_id) for vector_id in vector_ids for chunk_id in known[vector_id]]

    def vectors_of(self, connection: Connection, chunk_ids: Iterable[int]) -> dict[int, int]:
        """Return chunk id -> vectors.id, for those of `chunk_ids` whose text has a row for its vector."""
        known = self._vectors
        assert self._state is not None, "follow() comes first"
        if new := [each for each in chunk_ids if each not in known]:
            known.update(dict.fromkeys(new, 0))
            known.update(connection.execute(_VECTORS_OF_CHUNKS, (self._state[1], driver.json_ids(new))))
        return {chunk_id: known[chunk_id] for chunk_id in chunk_ids if known[chunk_id]}


def by_vector(
    connection: Connection, backend: VectorBackend, links: Links, files: str | None, limit: int
) -> list[tuple[int, float]]:
    """Return (chunk id, cosine) of the chunks nearest to the question, best first."""
    nearest = dict(backend.top(limit, files))
    if files is None:
        rows: Iterable[tuple[int, int]] = links.chunks_of(connection, nearest)
    else:
        rows = connection.execute(_CHUNKS_OF_VECTORS + _IN_FILES, (driver.json_ids(nearest), files))
    # One text may be in many files: each is a chunk of its own, with the same vector.
    hits = [(chunk_id, nearest[vector_id]) for chunk_id, vector_id in rows]
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:limit]


def cosines(
    connection: Connection, backend: VectorBackend, links: Links, chunk_ids: Collection[int]
) -> dict[int, float]:
    """Return chunk id -> cosine, for those of `chunk_ids` that have a vector."""
    vector_of = links.vectors_of(connection, chunk_ids)
    cosine_of = backend.cosines(set(vector_of.values()))
    return {chunk_id: cosine_of[row_id] for chunk_id, row_id in vector_of.items() if row_id in cosine_of}


def beginnings(connection: Connection, chunk_ids: Collection[int]) -> set[int]:
    """Return which of `chunk_ids` are the first of a note."""
    return {row[0] for row in connection.execute(_BEGINNINGS, (MEMORY, driver.json_ids(chunk_ids)))}


def by_name(
    connection: Connection,
    question: Question,
    keyword: KeywordHits,
    files: Sequence[int] | None,
    limit: int,
) -> list[tuple[int, int, bool]]:
    """Return the chunks of files that the question names, the surest first, in the order of lines.

    With PATH, NAME, MOST, TITLE or STEM, and whether the question is that name, or a short one with a PATH or
    NAME. `keyword` says how rare its words are.
    """
    tiers: dict[int, tuple[int, bool]] = {}
    for number, name in enumerate(question.names):
        wanted = name_key(name.removeprefix("./"))
        last = wanted.rpartition("/")[2]
        day = wanted if wanted[0:1].isdigit() and _DAY.fullmatch(wanted) else ""
        found = connection.execute(_BY_NAME, (wanted, last.rpartition(".")[0] or last, day))
        for file_id, path, key, own, heading in found:
            tier = _tier(wanted, name_key(path)) or (key == wanted and _of_title(path, key, own, heading))
            if tier or day:
                # A path or the name of a file is not written by chance.
                is_whole = number < question.wholes or (question.wholes > 0 and tier >= NAME)
                named = max(tier, STEM), is_whole
                tiers[file_id] = max(named, tiers.get(file_id, named))
    if question.runs and not any(is_whole for _, is_whole in tiers.values()):
        keys = json.dumps([name_key(run) for run in question.runs])
        titles = connection.execute(_BY_KEYS, (keys,)).fetchall()
        known = {f"-{key}-" for _, _, key, _, _ in titles}
        pages = Counter(key for _, _, key, _, _ in titles)
        rarity = {name_key(label): idf for label, idf in keyword.rarity.items()}
        words = MOST_SHARE * sum(term.is_asked for term in question.terms)
        idf = MOST_SHARE * keyword.found_idf
        codes = {name_key(run) for run in question.runs if " " not in run}
        for file_id, path, key, own, heading in titles:
            # Of titles in each other the longest.
            if not any(f"-{key}-" in other != f"-{key}-" for other in known):
                idfs = [rarity[word] for word in {*key.split("-")} & rarity.keys()]
                is_most = key in codes or (0 < len(idfs) >= words and math.fsum(idfs) >= idf)
                tier = MOST if is_most and pages[key] == 1 else _of_title(path, key, own, heading)
                named = tier, False
                tiers[file_id] = max(named, tiers.get(file_id, named))
    if files is not None:
        tiers = {file_id: tiers[file_id] for file_id in set(files) & tiers.keys()}
    rows: list[tuple[int, int]] = []
    for surest in sorted({*tiers.values()}, reverse=True):
        some = sorted(file_id for file_id, named in tiers.items() if named == surest)
        rows += connection.execute(_CHUNKS_OF, (driver.json_ids(some), limit - len(rows)))
    return [(chunk_id, *tiers[file_id]) for chunk_id, file_id in rows]


def lifted(
    connection: Connection,
    question: Question,
    files: Sequence[int] | None,
    hits: Collection[int],
    limit: int,
) -> tuple[dict[int, float], bool]:
    """Return chunk id -> what is added to its score for the days and tags of the question.

    Also whether there is a file of these days.
    """
    lifts: dict[int, float] = {}
    # What else is asked comes first; a question of nothing else is answered by the day.
    alone = DAY_ALONE if any(term.is_asked and not term.is_day for term in question.terms) else DAY_LIFT
    dated = _among(files_of_days(connection, question.days), files) if question.days else set()
    lifts |= dict.fromkeys(_chunks_of(connection, dated, limit), alone)
    file_of = dict(connection.execute(_FILES_OF_CHUNKS, (driver.json_ids(hits),)))
    lifts |= {chunk_id: DAY_LIFT for chunk_id, file_id in file_of.items() if file_id in dated}
    for tag in question.tags:
        tagged = _among(files_of_tag(connection, tag), files)
        chosen = [chunk_id for chunk_id, file_id in file_of.items() if file_id in tagged]
        # Of a file without a hit, its beginning.
        chosen += _chunks_of(connection, tagged.difference(file_of.values()), limit, only_first=True)
        for chunk_id in chosen:
            lifts[chunk_id] = lifts.get(chunk_id, 0.0) + TAG_LIFT
    return lifts, bool(dated)


def _among(found: set[int], files: Sequence[int] | None) -> set[int]:
    return found if files is None else found.intersection(files)


def _chunks_of(
    connection: Connection, files: set[int], limit: int, *, only_first: bool = False
) -> Iterator[int]:
    if files:
        query = _CHUNKS_OF.replace(" ORDER", " AND ordinal = 0 ORDER") if only_first else _CHUNKS_OF
        yield from (row[0] for row in connection.execute(query, (driver.json_ids(sorted(files)), limit)))


def _of_title(path: str, key: str, own: str, heading: str | None) -> int:
    is_own = key in own.split("\n") or stem_key(path) == key == name_key(heading or key)
    return TITLE if is_own else STEM


def _tier(wanted: str, path: str) -> int:
    if "/" in wanted:
        return PATH if any(f"/{each}".endswith(f"/{wanted}") for each in (path, without_ending(path))) else 0
    return NAME if wanted == path.rpartition("/")[2] else 0
