"""One ranking out of the legs.

A candidate is a chunk that a leg found. `weighted` adds scores: the bm25 of a chunk over the best bm25 of
this question (SQLite clamps the rarity of a word that is in half of a small index to nearly nothing, so
absolute bm25 means nothing), and the cosine as it is. `rrf` adds reciprocal ranks. Both end in 0 … 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared.config.schema import Hybrid
from shared.search.legs import NAME, PATH, STEM

#: Decimals of a score: beyond them are differences between one way of computing it and another.
DECIMALS = 6

#: The usual constant of reciprocal rank fusion.
RRF_K = 60

#: Candidates MMR chooses from; fixed, so that the first hits are the same however many are asked for.
MMR_POOL = 100

#: How far a file that the question names is lifted towards 1, by how surely it is named.
LIFT = {PATH: 0.6, NAME: 0.6, STEM: 0.3}

#: The same when the question is nothing but that name.
WHOLE_LIFT = {PATH: 1.0, NAME: 1.0, STEM: 0.5}


@dataclass(slots=True, kw_only=True)
class Candidate:
    """A chunk on its way to becoming a hit; the steps of a search fill it in."""

    chunk_id: int
    #: bm25 as SQLite gives it; None when the keyword leg did not find the chunk.
    bm25: float | None = None
    #: bm25 over the best bm25 of the question, 0 … 1.
    keyword: float = 0.0
    #: 1 is the best; 0 when the leg did not find the chunk.
    keyword_rank: int = 0
    #: Cosine, also of chunks that only the keyword leg found; None without a vector.
    cosine: float | None = None
    vector_rank: int = 0
    #: PATH, NAME or STEM when the question names the file; 0 otherwise.
    named: int = 0
    path: str = ""
    source: str = ""
    start_line: int = 0
    end_line: int = 0
    mtime_ns: int = 0
    #: The score of the legs together.
    fused: float = 0.0
    #: Share of it that age leaves.
    decay: float = 1.0
    #: What MMR made of it; None when MMR did not choose it.
    mmr: float | None = None

    @property
    def score(self) -> float:
        """What the hit is shown with and sorted by."""
        # `fused` is rounded already, and a score is asked for a thousand times a search.
        return self.fused if self.decay == 1.0 else round(self.fused * self.decay, DECIMALS)

    @property
    def order(self) -> tuple[float, str, int, int]:
        """Sort key: best first, ties by path and line."""
        return -self.score, self.path, self.start_line, self.chunk_id


def gather(
    keyword: Sequence[tuple[int, float]],
    vector: Sequence[tuple[int, float]],
    named: Sequence[tuple[int, int]],
) -> dict[int, Candidate]:
    """The chunks of all legs by id: (chunk id, bm25), (chunk id, cosine), (chunk id, how it is named)."""
    found: dict[int, Candidate] = {}
    best = -keyword[0][1] if keyword else 0.0
    for rank, (chunk_id, bm25) in enumerate(keyword, 1):
        # bm25 is never above 0; 0 itself (nothing rare about any term) is a match all the same.
        share = round(-bm25 / best, DECIMALS) if best > 0 else 1.0
        found[chunk_id] = Candidate(chunk_id=chunk_id, bm25=bm25, keyword=share, keyword_rank=rank)
    for rank, (chunk_id, cosine) in enumerate(vector, 1):
        candidate = found.setdefault(chunk_id, Candidate(chunk_id=chunk_id))
        candidate.cosine, candidate.vector_rank = round(cosine, DECIMALS), rank
    for chunk_id, tier in named:
        found.setdefault(chunk_id, Candidate(chunk_id=chunk_id)).named = tier
    return found


def fuse(candidate: Candidate, settings: Hybrid, *, keyword: bool, vector: bool, is_name: bool) -> float:
    """The score of the legs together, given which legs were asked.

    `is_name`: the question as a whole names a file. A leg that was not asked has no weight, so the best
    keyword hit scores 1 when there is no vector.
    """
    text_weight = settings.text_weight if keyword else 0.0
    vector_weight = settings.vector_weight if vector else 0.0
    if text_weight + vector_weight <= 0:
        text_weight, vector_weight = float(keyword), float(vector)
    if settings.fusion == "rrf":
        parts = text_weight * _reciprocal(candidate.keyword_rank)
        parts += vector_weight * _reciprocal(candidate.vector_rank)
    else:
        parts = text_weight * candidate.keyword + vector_weight * max(0.0, candidate.cosine or 0.0)
    score = parts / ((text_weight + vector_weight) or 1.0)
    lift = (WHOLE_LIFT if is_name else LIFT).get(candidate.named, 0.0)
    return round(score + lift * (1.0 - score), DECIMALS)


def is_noise(candidate: Candidate, min_score: float) -> bool:
    """Whether only a weak vector speaks for the chunk; never so for a keyword hit, whatever its cosine."""
    if candidate.bm25 is not None or candidate.named:
        return False
    return (candidate.cosine or 0.0) < min_score


def _reciprocal(rank: int) -> float:
    return (RRF_K + 1) / (RRF_K + rank) if rank else 0.0
