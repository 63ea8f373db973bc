"""Make one order of what words and vectors say of chunks.

`weighted`, of a chunk with the keyword sum s (`scorer.py`), the cosine c and late interaction l:

    fused  =  (wt s / best s + wv .85 (max(c, 0) + l / best l) + .3 name / best s) / (wt + wv + .7 wv) + lifts

Without token vectors the middle is wv c. wt is halved where no chunk holds a word that was asked. The name of
the file counts once more beside vectors, which know nothing of it. `rrf` adds reciprocal ranks in the place
of the first two. A chunk whose vector is pending has in its place what the nearest has, times the share of
its own words: where half of the notes wait, six hits have .95 of the evidence, and .78 without.
"""

import math
import re
from collections.abc import Mapping
from datetime import date

from memline.shared.config.schema import Hybrid
from memline.shared.search.matches import Row
from memline.shared.search.terms import Words
from memline.shared.sources.dates import day_of_time
from memline.shared.sources.paths import SESSIONS
from memline.shared.sources.tokens import DENSE

#: Decimals of what orders, and of what is shown: beyond are differences between ways of computing.
FINE, DECIMALS = 9, 6
#: What the cosine and late interaction each weigh, of the weight of vectors; what the name of a file adds;
#: and the usual constant of reciprocal rank fusion.
LATE, NAME_BESIDE, RRF_K = 0.85, 0.3, 60
#: Candidates that MMR chooses from; fixed, so that fewer hits are a prefix of more.
MMR_POOL = 100


def fuse(
    mode: str,
    words: Words,
    cosines: Mapping[int, float],
    late: Mapping[int, float],
    lifts: Mapping[int, float],
    settings: Hybrid,
) -> dict[int, float]:
    """Return what orders each chunk; `mode`: hybrid, keyword or vector."""
    best = max(words.sums.values(), default=0.0) or 1.0
    shares = {each: said / best for each, said in words.sums.items()}
    near = {each: max(said, 0.0) for each, said in cosines.items()}
    by_mode, whole = {"keyword": (1.0, 0.0), "vector": (0.0, 1.0)}, 1.0
    wt, wv = by_mode.get(mode, (settings.text_weight, settings.vector_weight))
    if settings.fusion == "rrf":
        near, shares = _reciprocal(near), _reciprocal(shares)
    elif near:
        wt *= (1.0 + max(map(words.coverage, words.sums), default=1.0)) / 2
        if late:
            top = max(late.values()) or 1.0
            # A chunk without token vectors has its cosine in the place.
            near = {each: LATE * (said + late.get(each, min(said, top)) / top) for each, said in near.items()}
            whole += (2 * LATE - 1) * wv
    most, fused = max(near.values(), default=0.0), dict[int, float]()
    for chunk_id in dict.fromkeys((*shares, *near, *lifts)):
        share = shares.get(chunk_id, 0.0)
        said = wt * share + wv * near.get(chunk_id, most * share)
        if near:
            said += NAME_BESIDE * whole * min(1.0, words.named.get(chunk_id, 0.0) / best)
        fused[chunk_id] = round(said / whole + lifts.get(chunk_id, 0.0), FINE)
    return fused


def decay(row: Row, now: float, half_life_days: float) -> float:
    """Return by how much age lowers the score of a chunk of a note with a day, or of a transcript."""
    day = str(day_of_time(row.mtime_ns / 1e9)) if row.source == SESSIONS else row.day
    age_days = max(0, (day_of_time(now) - date.fromisoformat(day)).days) if day else 0
    return round(math.pow(0.5, age_days / half_life_days), DECIMALS)


def diversify(pool: list[Row], scores: Mapping[int, float], weight: float) -> list[Row]:
    """Order rows by maximal marginal relevance: a high score and new words.

    `weight` 1 is score only, 0 novelty only. Each choice depends on the ones before it alone.
    """
    said = [scores[row.id] for row in pool] or [0.0]
    span = max(said) - min(said) or 1.0
    token = re.compile(f"[{DENSE}]|[^\\W{DENSE}]+")
    words = {row.id: {*token.findall(row.text.lower())} for row in pool}
    merits = {row.id: weight * (1.0 - (max(said) - scores[row.id]) / span) for row in pool}
    alike, chosen = dict.fromkeys(words, 0.0), list[Row]()
    while pool:
        # The first of the best: the pool is in order.
        winner = max(pool, key=lambda row: round(merits[row.id] - (1 - weight) * alike[row.id], DECIMALS))
        pool.remove(winner)
        chosen.append(winner)
        for row in pool:
            both = words[winner.id] | words[row.id]
            alike[row.id] = max(alike[row.id], len(words[winner.id] & words[row.id]) / (len(both) or 1))
    return chosen


def _reciprocal(scores: Mapping[int, float]) -> dict[int, float]:
    best_first = sorted(scores, key=lambda each: (-scores[each], each))
    return {each: (RRF_K + 1) / (RRF_K + rank) for rank, each in enumerate(best_first, 1)}
