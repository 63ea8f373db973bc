"""Keyword questions that every way to read full text answers alike, over notes that make it hard."""

import random

import pytest

from memline.shared.search.keyword import by_keyword
from memline.shared.search.postings import Postings
from memline.shared.search.query import analyse
from memline.shared.search.ranking import KeywordHits
from memline.shared.search.reader import SearchIndex
from tests.unit.search.conftest import Notes

WORDS = ["redis", "timeouts", "timeout", "running", "runs", "ran", "several", "severance", "Café", "größe"]
WORDS += [
    "b3b9895a",
    "v1.5.2",
    "ERR_CONN_42",
    "東京都",
    "don't",
    "C++",
    "flashcards",
    "flash cards",
    "ぁ",
    "x" * 40,
]

QUESTIONS = [
    "redis timeout",
    '"redis timeout" running',
    "ERR_CONN_42 v1.5.2",
    "東京",
    "severance",
    "cafe grosse",
]
QUESTIONS += [
    "C++ several",
    "flash cards ran",
    "don't",
    "b3b9895a redis",
    "nowhere",
    "2026-03-01 redis",
    "run*",
]


def fill(notes: Notes) -> None:
    """Add notes with words of all frequencies, in texts, headings and paths."""
    chance = random.Random(3)
    common = [2.0**-number for number in range(len(WORDS))]
    for number in range(120):
        size = chance.choice((2, 9, 40, 200))
        lines = " ".join(chance.choices(WORDS, common, k=size)).replace(" running ", "\n\n# running\n\n")
        notes.add(f"memory/{chance.choice(WORDS[:4])}/{number}.md", lines)
    # One text of more tokens than two bytes of a length can say.
    notes.add("memory/long.md", "redis " * 17_000)
    for number in range(0, 120, 7):
        notes.add(f"memory/{number}-again.md", "redis severance")


def found(index: SearchIndex, postings: Postings, files: str | None = None) -> list[KeywordHits]:
    chance = random.Random(4)
    asked = QUESTIONS + [" ".join(chance.sample(WORDS, chance.randint(1, 6))) for _ in range(40)]
    with index.snapshot() as connection:
        return [by_keyword(connection, analyse(each), files, 12, postings) for each in asked * 2]


def assert_same(mine: list[KeywordHits], theirs: list[KeywordHits], rel: float = 1e-12) -> None:
    for one, other in zip(mine, theirs, strict=True):
        assert (one.missing, one.match, one.rarity) == (other.missing, other.match, other.rarity)
        assert [(hit.chunk_id, hit.is_full, hit.has_alone) for hit in one.hits] == [
            (hit.chunk_id, hit.is_full, hit.has_alone) for hit in other.hits
        ]
        for a, b in zip(one.hits, other.hits, strict=True):
            assert a.strength == pytest.approx(b.strength, rel=rel)
            assert a.coverage == pytest.approx(b.coverage, rel=1e-12)
