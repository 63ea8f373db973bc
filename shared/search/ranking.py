"""From a question to a sorted list of chunks: the legs are asked, joined, and reordered as the settings say.

A leg that is not there leaves a trouble behind and the others go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.clock import Clock
from shared.config.schema import Query
from shared.index import driver, identity, meta
from shared.search import legs
from shared.search.fusion import DECIMALS, MMR_POOL, Candidate, fuse, gather, is_noise
from shared.search.legs import KeywordLeg
from shared.search.query import Question
from shared.search.reader import SearchIndex
from shared.search.vector_paths import VectorPath, json_ids
from shared.values import value

if TYPE_CHECKING:
    from sqlite3 import Connection

    from shared.index.identity import IdentityRow

#: Candidates of a leg for each step of `candidateMultiplier` (4: the 200 of the original). The number of
#: hits asked for has no part in it, so that fewer hits are a prefix of more.
POOL_STEP = 50

_DETAILS = (
    "SELECT chunks.id, files.path, files.source, chunks.start_line, chunks.end_line, files.mtime_ns"
    " FROM chunks JOIN files ON files.id = chunks.file_id WHERE chunks.id IN (SELECT value FROM json_each(?))"
)
_TEXTS = "SELECT id, text FROM chunks WHERE id IN (SELECT value FROM json_each(?))"


@value
class QueryVector:
    """The vector of a question, and the row id of the identity it can be compared with."""

    value: bytes
    identity_id: int


@dataclass(slots=True, kw_only=True)
class Findings:
    """What a search found so far."""

    #: hybrid, keyword or vector.
    mode: str = "keyword"
    keyword: KeywordLeg = field(default_factory=KeywordLeg)
    #: Best first; at least as many as were asked for, when there are so many.
    ranked: list[Candidate] = field(default_factory=list)
    #: Hits of the vector leg alone that were too weak.
    noise: int = 0
    #: (what is wrong, what to do about it)
    troubles: list[tuple[str, str]] = field(default_factory=list)
    #: Why there is no hit, when nothing is wrong.
    notice: str = ""


def find(
    index: SearchIndex,
    connection: Connection,
    question: Question,
    vector: QueryVector | None,
    *,
    files: list[int] | None,
    settings: Query,
    clock: Clock,
    findings: Findings,
) -> None:
    """Fill `findings`; `files` are the ids of the files to stay in, None for all."""
    only = None if files is None else json_ids(files)
    pool = max(POOL_STEP * settings.hybrid.candidate_multiplier, settings.max_results)
    active = _comparable(connection, vector, findings)
    path = None
    if vector is not None and active is not None:
        path = index.vector_path(connection, active, vector.value)
    has_keyword = False
    if settings.hybrid.enabled or path is None:
        has_keyword = _ask_keywords(connection, question, only, pool, findings)
    findings.mode = "hybrid" if has_keyword and path else "vector" if path else "keyword"
    found = gather(
        findings.keyword.hits,
        legs.vector(connection, path, only, pool) if path else (),
        legs.named_chunks(connection, question, files, pool),
    )
    if path is not None and active is not None:
        _look_up_cosines(connection, path, active, found)
    for one in found.values():
        one.fused = fuse(
            one, settings.hybrid, keyword=has_keyword, vector=path is not None, is_name=question.is_name
        )
    kept = [one for one in found.values() if not is_noise(one, settings.min_score)]
    findings.noise = len(found) - len(kept)
    findings.ranked = _rank(connection, kept, settings, clock)


def texts_of(connection: Connection, candidates: list[Candidate]) -> dict[int, str]:
    """The texts of these chunks, by chunk id."""
    ids = json_ids(one.chunk_id for one in candidates)
    return dict(connection.execute(_TEXTS, (ids,)).fetchall())


def _comparable(connection: Connection, vector: QueryVector | None, findings: Findings) -> IdentityRow | None:
    """The identity that is searched now, if the question's vector is one of its kind."""
    if vector is None:
        return None
    active = identity.active(connection)
    if active is None or active.id != vector.identity_id:
        # Between embedding the question and this snapshot the writer switched to a new model.
        findings.troubles.append(("only keywords were searched: the model was just changed", "search again"))
        return None
    return active


def _ask_keywords(
    connection: Connection, question: Question, only: str | None, pool: int, findings: Findings
) -> bool:
    """Whether the keyword leg is there; its hits go into `findings`."""
    if meta.get(connection, meta.FTS_STALE):
        reason = "keywords were not searched: a SQLite without FTS5 has left the full-text index behind"
        findings.troubles.append((reason, "memline doctor, then memline index"))
        return False
    try:
        findings.keyword = legs.keyword(connection, question, only, pool)
    except driver.library().OperationalError as error:
        if "fts5" not in str(error) and "chunks_fts" not in str(error):
            raise
        findings.troubles.append((f"keywords were not searched: {error}", "memline doctor"))
        return False
    return True


def _look_up_cosines(
    connection: Connection, path: VectorPath, active: IdentityRow, found: dict[int, Candidate]
) -> None:
    """The true cosine of what the vector leg did not bring, so that both halves of a score are known."""
    unknown = [one.chunk_id for one in found.values() if one.cosine is None]
    for chunk_id, cosine in legs.cosines(connection, path, active.id, unknown).items():
        found[chunk_id].cosine = round(cosine, DECIMALS)


def _rank(connection: Connection, kept: list[Candidate], settings: Query, clock: Clock) -> list[Candidate]:
    fading, mmr = settings.hybrid.temporal_decay, settings.hybrid.mmr
    if not fading.enabled:
        # Age changes nothing, so what is far behind needs no look at its file.
        kept = _front(kept, max(settings.max_results, MMR_POOL if mmr.enabled else 0))
    _look_up_details(connection, kept)
    if fading.enabled:
        from shared.search.rerank import fade

        fade(kept, clock.now(), fading.half_life_days)
    ranked = sorted(kept, key=lambda one: one.order)
    if mmr.enabled:
        from shared.search.rerank import diversify

        texts = texts_of(connection, ranked[:MMR_POOL])
        ranked = diversify(ranked, texts, mmr.lambda_, settings.max_results)
    return ranked


def _front(candidates: list[Candidate], wanted: int) -> list[Candidate]:
    """The best `wanted` by score, and whatever ties with the last of them."""
    if len(candidates) <= wanted:
        return candidates
    lowest = sorted((one.score for one in candidates), reverse=True)[wanted - 1]
    return [one for one in candidates if one.score >= lowest]


def _look_up_details(connection: Connection, candidates: list[Candidate]) -> None:
    of = {one.chunk_id: one for one in candidates}
    for chunk_id, *details in connection.execute(_DETAILS, (json_ids(of),)):
        one = of[chunk_id]
        one.path, one.source, one.start_line, one.end_line, one.mtime_ns = details
