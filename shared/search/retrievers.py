"""Find chunks by vectors and by file names, as SQL over chunks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memline.shared.search.query import Question
from memline.shared.search.vector_backends import VectorBackend, json_ids
from memline.shared.sources.folding import path_key

if TYPE_CHECKING:
    from sqlite3 import Connection

_NAMED = (
    "SELECT id, path, names FROM files WHERE ifnull(folded, path) LIKE ? ESCAPE '\\'"
    " OR names <> '' AND instr(char(10) || names || char(10), char(10) || ? || char(10))"
)
_CHUNKS_OF = (
    "SELECT id, file_id FROM chunks WHERE file_id IN (SELECT value FROM json_each(?))"
    " ORDER BY file_id, ordinal LIMIT ?"
)

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

#: How sure a name in the question means a file: its path, its file name, its name without `.md`.
PATH, NAME, STEM = 3, 2, 1


def by_vector(
    connection: Connection, backend: VectorBackend, files: str | None, limit: int
) -> list[tuple[int, float]]:
    """Return (chunk id, cosine) of the chunks nearest to the question, best first."""
    nearest = dict(backend.top(limit, files))
    if files is None:
        rows = connection.execute(_CHUNKS_OF_VECTORS, (json_ids(nearest),))
    else:
        rows = connection.execute(_CHUNKS_OF_VECTORS + _IN_FILES, (json_ids(nearest), files))
    # One text may be in many files: each is a chunk of its own, with the same vector.
    hits = [(chunk_id, nearest[vector_id]) for chunk_id, vector_id in rows]
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:limit]


def cosines(
    connection: Connection, backend: VectorBackend, identity_id: int, chunk_ids: Sequence[int]
) -> dict[int, float]:
    """Return chunk id -> cosine, for those of `chunk_ids` that have a vector."""
    rows = connection.execute(_VECTORS_OF_CHUNKS, (identity_id, json_ids(chunk_ids)))
    vector_of = dict(rows.fetchall())
    cosine_of = backend.cosines(set(vector_of.values()))
    return {chunk_id: cosine_of[row_id] for chunk_id, row_id in vector_of.items() if row_id in cosine_of}


def by_name(
    connection: Connection, question: Question, files: Sequence[int] | None, limit: int
) -> list[tuple[int, int]]:
    """Return (chunk id, PATH or NAME or STEM) of the files that the question names, in the order of lines."""
    tiers: dict[int, int] = {}
    for name in question.names:
        wanted = _slug(name)
        # `_` is any character: `deploy notes` is deploy-notes.md and deploy_notes.md.
        pattern = "%" + re.sub(r"([\\%])", r"\\\1", wanted).replace("-", "_") + "%"
        for file_id, path, names in connection.execute(_NAMED, (pattern, wanted)):
            # A title or an alias names a note as its file does.
            if tier := _tier(wanted, _slug(path)) or STEM * (wanted in names.split("\n")):
                tiers[file_id] = max(tier, tiers.get(file_id, 0))
    if files is not None:
        tiers = {file_id: tiers[file_id] for file_id in set(files) & tiers.keys()}
    rows = connection.execute(_CHUNKS_OF, (json_ids(sorted(tiers)), limit)) if tiers else ()
    return [(chunk_id, tiers[file_id]) for chunk_id, file_id in rows]


def _slug(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", path_key(name.strip().removeprefix("./")))


def _tier(wanted: str, path: str) -> int:
    name = path.rpartition("/")[2]
    stem = name.rpartition(".")[0] or name
    if "/" in wanted:
        return PATH if f"/{path}".endswith((f"/{wanted}", f"/{wanted}.md")) else 0
    if wanted == name:
        return NAME
    # A dated note may carry a title behind its day.
    is_day = re.fullmatch(r"\d{4}-\d{2}-\d{2}", wanted)
    return STEM if wanted == stem or (is_day and stem.startswith(f"{wanted}-")) else 0
