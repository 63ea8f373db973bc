"""Two options that reorder what fusion found: older dated notes fade, near-duplicates make room."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from shared.search.dates import day_of_path, day_of_time
from shared.search.fusion import DECIMALS, MMR_POOL, Candidate
from shared.sources.tokens import DENSE

_TOKEN = re.compile(f"[{DENSE}]|[^\\W{DENSE}]+")


def fade(candidates: Iterable[Candidate], now: float, half_life_days: float) -> None:
    """Set the share of its score that each candidate keeps for its age.

    Only what has a day fades: a note with a date in its name, and a transcript by the time of its file.
    `MEMORY.md` and notes without a date are about what holds.
    """
    today = day_of_time(now)
    for candidate in candidates:
        candidate.decay = _decay(candidate, today, half_life_days)


def _decay(candidate: Candidate, today: date, half_life_days: float) -> float:
    day = day_of_path(candidate.path)
    if day is None and candidate.source == "sessions":
        day = day_of_time(candidate.mtime_ns / 1e9)
    if day is None:
        return 1.0
    age_days = max(0, (today - day).days)
    return float(round(0.5 ** (age_days / half_life_days), DECIMALS))


def diversify(
    ranked: Sequence[Candidate], texts: Mapping[int, str], weight: float, wanted: int
) -> list[Candidate]:
    """Maximal marginal relevance: at each place the chunk whose score is high and whose words are new.

    `ranked` is sorted; `texts` holds at least its first MMR_POOL. `weight` 1 is score only, 0 novelty only.
    Each choice depends on the ones before it alone, so fewer hits are a prefix of more.
    """
    pool = list(ranked[:MMR_POOL])
    if not pool:
        return []
    lowest, span = pool[-1].score, pool[0].score - pool[-1].score
    words = {one.chunk_id: _words(texts[one.chunk_id]) for one in pool}
    nearest = dict.fromkeys(words, 0.0)
    chosen: list[Candidate] = []
    while pool and len(chosen) < wanted:
        values = [
            weight * ((one.score - lowest) / span if span else 1.0) - (1 - weight) * nearest[one.chunk_id]
            for one in pool
        ]
        # The first of the best: `ranked` breaks ties.
        place = max(range(len(pool)), key=lambda i: (round(values[i], DECIMALS), -i))
        winner = pool.pop(place)
        winner.mmr = round(values[place], DECIMALS)
        chosen.append(winner)
        for one in pool:
            likeness = _jaccard(words[winner.chunk_id], words[one.chunk_id])
            nearest[one.chunk_id] = max(nearest[one.chunk_id], likeness)
    return chosen + [one for one in ranked if one.mmr is None][: wanted - len(chosen)]


def _words(text: str) -> frozenset[str]:
    return frozenset(_TOKEN.findall(text.lower()))


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    union = len(one | other)
    return len(one & other) / union if union else 1.0
