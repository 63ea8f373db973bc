"""Lift chunks over others by which terms of a question they hold; a set of terms is a bit for each."""

from __future__ import annotations

from collections.abc import Mapping

#: Part of its own score by which a chunk is above those that it is lifted over.
ABOVE = 0.01

#: The other words beside which a word that one file alone has comes first.
LOUD_WORDS = 2


def lift(own: dict[int, float], parts: Mapping[int, int]) -> dict[int, float]:
    """Lift chunks over the best that holds a part of what they hold."""
    best: dict[int, float] = {}
    for chunk_id, score in own.items():
        part = parts[chunk_id]
        best[part] = max(score, best.get(part, 0.0))
    tops: dict[int, float] = {}
    over: dict[int, float] = {}
    for part in sorted(best, key=int.bit_count):
        over[part] = max((top for other, top in tops.items() if other & part == other), default=0.0)
        tops[part] = max(best[part], over[part] + ABOVE * best[part])
    return {
        chunk_id: max(score, over[parts[chunk_id]] + ABOVE * score) if over[parts[chunk_id]] else score
        for chunk_id, score in own.items()
    }


def alone_first(sums: dict[int, float], masks: Mapping[int, int], words: int, ids: int) -> dict[int, float]:
    """Lift what holds a term that one file alone has over what has none of these.

    A word lifts over what holds LOUD_WORDS others at most, an id over everything.
    """
    lacking = [(score, masks[each].bit_count()) for each, score in sums.items() if not masks[each] & words]
    if not words or not lacking:
        return sums
    over_id = max(score for score, _ in lacking)
    over_word = max((score for score, count in lacking if count <= LOUD_WORDS), default=0.0)
    return {
        each: max(score, (over_id if masks[each] & ids else over_word) + ABOVE * score)
        if masks[each] & words
        else score
        for each, score in sums.items()
    }
