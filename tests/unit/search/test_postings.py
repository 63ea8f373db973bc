import random
from collections.abc import Callable
from contextlib import closing
from typing import Any
from unittest.mock import Mock

import pytest

from memline.shared.config.schema import Hybrid, Query
from memline.shared.index import full_text
from memline.shared.search import keyword, postings, retrievers
from memline.shared.search.keyword import by_keyword
from memline.shared.search.postings import Postings
from memline.shared.search.query import analyse
from memline.shared.search.reader import SearchIndex
from memline.shared.search.request import SearchRequest
from memline.shared.search.results import Hit
from memline.shared.search.retrieve import retrieve
from tests.unit.search.conftest import Notes

WORDS = ["redis", "timeout", "kestrel", "quokka", "deploy", "rollback", "invoice", "harbour", "lantern"]
QUESTIONS = ("redis timeout", "kestrel deploy rollback lantern", "copper copper harbour invoice quokka")


def asked(index: SearchIndex, notes: Notes, question: str) -> tuple[Hit, ...]:
    embed_query = notes.vector if notes.active else None
    return retrieve(index, SearchRequest(query=question, explain=True), Query(), embed_query=embed_query).hits


def edit(notes: Notes, chance: random.Random) -> None:
    path = f"memory/{chance.randrange(8)}.md"
    if chance.random() < 0.25:
        notes.remove(path)
    else:
        notes.add(path, " ".join(chance.choices(WORDS, k=chance.choice((3, 30)))))


@pytest.mark.parametrize("has_vectors", [False, True])
def test_a_process_that_keeps_scores_answers_as_one_that_has_just_begun(
    notes: Notes, opened: Callable[..., SearchIndex], has_vectors: bool
) -> None:
    chance = random.Random(1)
    edit(notes, chance)
    warm = opened(long_lived=True)

    for _ in range(25):
        edit(notes, chance)
        if has_vectors:
            notes.embed()
        for question in QUESTIONS:
            with closing(SearchIndex(notes.path, long_lived=True)) as cold:
                assert asked(warm, notes, question) == asked(cold, notes, question)


def test_a_text_that_now_stands_in_two_notes_is_found_in_both_by_its_vector(
    notes: Notes, opened: Callable[..., SearchIndex]
) -> None:
    notes.add("memory/a.md", "kestrel")
    notes.embed()
    index = opened(long_lived=True)
    by_meaning = Query(hybrid=Hybrid(enabled=False))

    def found() -> list[str]:
        request = SearchRequest(query="kestrel")
        hits = retrieve(index, request, by_meaning, embed_query=notes.vector).hits
        return [path for hit in hits for path in (hit.path, *hit.also_in)]

    assert found() == ["memory/a.md"]
    notes.add("memory/b.md", "kestrel")
    assert found() == ["memory/a.md", "memory/b.md"]


def test_a_chunk_that_got_its_vector_since_has_its_cosine(
    notes: Notes, opened: Callable[..., SearchIndex]
) -> None:
    notes.add("memory/a.md", "kestrel")
    notes.embed()
    index = opened(long_lived=True)
    notes.add("memory/b.md", "quokka")
    assert asked(index, notes, "quokka")[0].vector_score == 0.0

    notes.embed()

    assert asked(index, notes, "quokka")[0].vector_score > 0.99


def test_the_state_of_the_full_text_index_is_never_the_same_again(notes: Notes) -> None:
    chance = random.Random(2)
    seen = set()

    for _ in range(60):
        # The same words in another order: neither rows nor tokens change in number.
        notes.add("memory/a.md", " ".join(chance.sample(WORDS, k=len(WORDS))))
        notes.add("memory/b.md", " ".join(chance.sample(WORDS, k=len(WORDS))))
        seen.add(repr(full_text.state(notes.writer.connection)))

    assert len(seen) == 60


def test_what_is_kept_is_bounded_and_answers_stay_the_same(
    notes: Notes, opened: Callable[..., SearchIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        notes.add(f"memory/{number}.md", " ".join(WORDS[number % 7 :]))
    notes.embed()
    right = [asked(opened(long_lived=True), notes, question) for question in QUESTIONS]
    monkeypatch.setattr(postings, "MAX_SCORES", 40)
    monkeypatch.setattr(postings, "MAX_ROWS", 20)
    monkeypatch.setattr(postings, "MAX_PHRASES", 4)
    monkeypatch.setattr(retrievers, "MAX_LINKS", 10)
    index = opened(long_lived=True)

    for _ in range(3):
        assert [asked(index, notes, question) for question in QUESTIONS] == right
        assert index.postings._kept <= 40
        assert len(index.postings._counts) <= 4 + 2


def test_common_words_score_only_what_rare_ones_found(
    notes: Notes, opened: Callable[..., SearchIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memline.shared.search.keyword.FOUND_ENOUGH", 3)
    monkeypatch.setattr("memline.shared.search.keyword.SCORED", 5)
    for number in range(40):
        rare = f"quokka lantern n{number}" if number % 6 == 0 else ""
        notes.add(f"memory/{number}.md", f"{rare} " + "redis timeout " * (1 + number % 3))
    index = opened(long_lived=True)
    question = "quokka lantern redis timeout"

    with closing(SearchIndex(notes.path)) as cold:
        first = asked(cold, notes, question)

    # The first time SQLite scores the few, later all are known.
    for _ in range(postings.OFTEN + 1):
        assert asked(index, notes, question) == first
    assert len(first) == 6


def test_a_word_is_common_to_questions_and_not_to_the_steps_of_one(
    notes: Notes, opened: Callable[..., SearchIndex]
) -> None:
    for number in range(20):
        notes.add(f"memory/{number}.md", "redis " * (1 + number % 3))
    with opened(long_lived=True).snapshot() as reader:
        kept = postings.Postings()
        for _ in range(postings.OFTEN - 1):
            kept.follow(reader)
            for rows in ([1, 2], [3, 4], [5]):
                assert not kept._fits
                kept.fits(reader, postings.CHUNKS, '"redis"', among=rows)
        kept.follow(reader)
        kept.fits(reader, postings.CHUNKS, '"redis"', among=[1])

        assert len(kept._fits) == 1


@pytest.mark.parametrize("limit", [4, 12])
def test_of_a_very_common_word_the_best_chunks_are_enough(
    notes: Notes, opened: Callable[..., SearchIndex], monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    chance = random.Random(5)
    rarity = [2.0**-number for number in range(len(WORDS))]
    for number in range(150):
        words = chance.choices(WORDS, rarity, k=chance.choice((3, 3, 8, 20)))
        notes.add(f"memory/{number}.md", " ".join([*words, *(["deploys"] if number % 3 else [])]))
    questions = [" ".join(chance.sample(WORDS, chance.randint(1, 5))) for _ in range(25)]
    questions += ['"redis timeout" kestrel', "redis-timeout quokka", "deployed lantern", "redis"]
    monkeypatch.setattr(keyword, "FOUND_ENOUGH", 15)
    monkeypatch.setattr(keyword, "SCORED", 60)
    fits = postings.Postings.fits
    counts: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        counts.extend([options["best"]] if options.get("best") else [])
        return fits(*arguments, **options)

    monkeypatch.setattr(postings.Postings, "fits", counted)

    def found(most: int) -> list[list[tuple[int, float]]]:
        monkeypatch.setattr(postings, "MAX_ROWS", most)
        monkeypatch.setattr(keyword, "MANY_ROWS", most)
        with opened(long_lived=True).snapshot() as reader:
            kept = postings.Postings()
            asked = [by_keyword(reader, analyse(each), None, limit, kept) for each in questions * 2]
            # Behind the first, what was left out may have been a little better.
            return [[(hit.chunk_id, hit.strength) for hit in each.hits[:4]] for each in asked]

    right = found(1_000)
    assert counts == []
    for mine, theirs in zip(found(20), right, strict=True):
        # What holds all words may be found where the rest of a full list is none of the best.
        assert len(mine) == len(theirs)
        for (chunk, strength), (expected, other) in zip(mine, theirs, strict=True):
            assert chunk == expected or strength > other
    assert len(counts) > 20
    assert set(counts) == {60}


def test_a_change_that_leaves_fts5_as_it_was_is_seen(notes: Notes) -> None:
    """FTS5 counts no changes where it never merges by itself, and after sixty merges no more levels."""
    connection = notes.writer.connection
    blocks, states = [], []
    for number in range(140):
        notes.add("memory/x.md", f"one {('kestrel', 'quokkas')[number % 2]} here")
        full_text.merge_in_slices(connection)
        blocks.append(repr(connection.execute("SELECT block FROM chunks_fts_data WHERE id = 10").fetchall()))
        states.append(repr(full_text.state(connection)))

    assert len({*blocks}) < len(blocks)
    assert len({*states}) == len(states)


def test_what_was_kept_is_not_taken_for_new_after_an_error(
    notes: Notes, index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes.add("memory/a.md", "redis timeout")
    postings = Postings()
    with index.snapshot() as connection:
        postings.follow(connection)
        assert postings.count(connection, "chunks_fts", '"redis"') == 1
    notes.add("memory/b.md", "redis again")
    with monkeypatch.context() as patch, index.snapshot() as connection:
        patch.setattr(full_text, "state", Mock(side_effect=OSError("disk I/O error")))
        with pytest.raises(OSError, match="disk"):
            postings.follow(connection)

    with index.snapshot() as connection:
        postings.follow(connection)
        assert postings.count(connection, "chunks_fts", '"redis"') == 2
