"""Find chunks by keywords, by vectors and by file names, as SQL over chunks.

The keyword retriever is an OR of the terms: one absent word must not hide every note. A term that nothing
matches gives way to its fallback, the rarest are kept when there are many, and other forms of a word count a
third.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from memline.shared.search.query import Question, Term, any_of, quoted, related
from memline.shared.search.vector_backends import VectorBackend, json_ids
from memline.shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Terms of a question that are searched. 12 measured as good as all; 8 lost a hundredth.
MAX_TERMS = 12

#: What another form of a word, or a synonym, counts next to the word itself; 1/4 and 1/2 found less.
FORM_WEIGHT = 1 / 3

#: bm25() weights of text, heading, path and grams. Headings and paths repeat in every chunk of a file:
#: left out they lost 0.005-0.02 of recall at six, at full weight a little less.
WEIGHTS = (1.0, 0.7, 0.7, 1.0)

_KEYWORD = "SELECT rowid, bm25(chunks_fts, ?, ?, ?, ?) AS raw FROM chunks_fts WHERE chunks_fts MATCH ?"
# The plus sign: the words first, then the filter; the other way round each chunk is a query of its own.
_KEYWORD_FILES = " AND +rowid IN (SELECT id FROM chunks WHERE file_id IN (SELECT value FROM json_each(?)))"
_KEYWORD_ORDER = " ORDER BY raw, rowid LIMIT ?"
_ANY = "SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT 1"
_MATCHING = (
    "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ? AND rowid IN (SELECT value FROM json_each(?))"
)
_COUNT = "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH ?"
_NAMED = (
    "SELECT id, path, names FROM files WHERE path LIKE ? ESCAPE '\\'"
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


@value
class KeywordHits:
    """The hits of the keyword retriever, best first, and what it searched."""

    #: (chunk id, bm25: the lower the better, never above 0).
    hits: Sequence[tuple[int, float]] = ()
    #: MATCH expression of all terms and forms; empty when the question had none.
    match: str = ""
    #: The terms in it, without repetition.
    terms: tuple[Term, ...] = ()


def by_keyword(connection: Connection, question: Question, files: str | None, limit: int) -> KeywordHits:
    """Find the best chunks for the terms of `question`; `files` is a JSON array of file ids, None for all."""
    terms = _choose(connection, question.terms)
    plain = any_of(term.match for term in terms)
    # Other forms and synonyms of the words.
    words = {term.label: None for term in question.terms if term.is_word}
    others = {form: None for word in islice(words, MAX_TERMS) for form in related(word)}
    forms = any_of(quoted(form) for form in others if form not in words)
    hits = _match(connection, plain, files, limit)
    if forms:
        # Two questions and a sum: bm25() weighs columns, not terms.
        scores = dict(hits)
        for chunk_id, bm25 in _match(connection, forms, files, limit):
            scores[chunk_id] = scores.get(chunk_id, 0.0) + FORM_WEIGHT * bm25
        hits = sorted(scores.items(), key=lambda hit: (hit[1], hit[0]))[:limit]
    return KeywordHits(hits=hits, match=any_of(filter(None, (plain, forms))), terms=terms)


def _match(connection: Connection, match: str, files: str | None, limit: int) -> list[tuple[int, float]]:
    if not match:
        return []
    if files is None:
        rows = connection.execute(_KEYWORD + _KEYWORD_ORDER, (*WEIGHTS, match, limit))
    else:
        statement = _KEYWORD + _KEYWORD_FILES + _KEYWORD_ORDER
        rows = connection.execute(statement, (*WEIGHTS, match, files, limit))
    return rows.fetchall()


def _choose(connection: Connection, terms: Sequence[Term]) -> tuple[Term, ...]:
    """Keep the terms that find something, at most MAX_TERMS, in the order of the question."""
    chosen: list[Term] = []
    for term in terms:
        if connection.execute(_ANY, (term.match,)).fetchone():
            chosen.append(term)
        elif term.fallback and connection.execute(_ANY, (term.fallback,)).fetchone():
            chosen.append(Term(label=term.label, match=term.fallback))
    if len(chosen) <= MAX_TERMS:
        return tuple(chosen)
    count = {term.match: connection.execute(_COUNT, (term.match,)).fetchone()[0] for term in chosen}
    rarest = set(sorted(count, key=lambda match: (count[match], match))[:MAX_TERMS])
    return tuple(term for term in chosen if term.match in rarest)


def matched_terms(
    connection: Connection, hits: KeywordHits, chunk_ids: Sequence[int]
) -> dict[int, list[str]]:
    """Return chunk id -> the terms of the question in the chunk, its heading or its path."""
    matched: dict[int, list[str]] = {chunk_id: [] for chunk_id in chunk_ids}
    for term in hits.terms:
        for (chunk_id,) in connection.execute(_MATCHING, (term.match, json_ids(chunk_ids))):
            matched[chunk_id].append(term.label)
    return matched


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
    return re.sub(r"[\s_-]+", "-", name.strip().removeprefix("./").lower())


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
