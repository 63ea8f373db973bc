from __future__ import annotations

from datetime import UTC, datetime

from shared.search.fusion import Candidate
from shared.search.rerank import diversify, fade

NOW = datetime(2026, 3, 12, 15, tzinfo=UTC).timestamp()


def faded(path: str, *, source: str = "memory", mtime: float = 0.0) -> float:
    candidate = Candidate(chunk_id=1, path=path, source=source, mtime_ns=int(mtime * 1e9), fused=1.0)
    fade([candidate], NOW, 30)
    return candidate.score


def test_a_dated_note_loses_half_in_a_half_life() -> None:
    assert faded("memory/2026-03-12.md") == 1.0
    assert faded("memory/2026-02-10.md") == 0.5
    assert faded("memory/2026-01-11-rollout.md") == 0.25


def test_a_note_of_tomorrow_counts_as_one_of_today() -> None:
    assert faded("memory/2026-03-13.md") == 1.0


def test_what_has_no_day_never_fades() -> None:
    assert faded("MEMORY.md") == 1.0
    assert faded("memory/deploy.md") == 1.0


def test_transcripts_fade_by_the_time_of_their_file() -> None:
    assert faded("sessions/a.jsonl", source="sessions", mtime=NOW - 30 * 86_400) == 0.5


def ranked(*scores: float) -> list[Candidate]:
    return [Candidate(chunk_id=n, path=f"{n}.md", fused=score) for n, score in enumerate(scores)]


TEXTS = {
    0: "redis timeout five seconds",
    1: "redis timeout five seconds",
    2: "bread recipe with rye flour",
    3: "redis timeout six",
}


def test_a_near_duplicate_makes_room_for_something_new() -> None:
    order = diversify(ranked(0.9, 0.89, 0.6, 0.5), TEXTS, 0.5, 4)

    assert [one.chunk_id for one in order] == [0, 2, 1, 3]


def test_with_all_weight_on_relevance_the_order_stays() -> None:
    order = diversify(ranked(0.9, 0.89, 0.6, 0.5), TEXTS, 1.0, 4)

    assert [one.chunk_id for one in order] == [0, 1, 2, 3]


def test_fewer_are_a_prefix_of_more() -> None:
    more = [one.chunk_id for one in diversify(ranked(0.9, 0.89, 0.6, 0.5), TEXTS, 0.7, 4)]

    for wanted in range(5):
        fewer = diversify(ranked(0.9, 0.89, 0.6, 0.5), TEXTS, 0.7, wanted)
        assert [one.chunk_id for one in fewer] == more[:wanted]
