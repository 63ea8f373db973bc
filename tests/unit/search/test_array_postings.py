"""What is summed up in arrays is what dictionaries give, and what cannot be read so is read from FTS5."""

import sys
from collections.abc import Callable
from sqlite3 import Connection

import pytest

from memline.shared.search import array_postings, keyword
from memline.shared.search.array_postings import ArrayPostings
from memline.shared.search.keyword import by_keyword
from memline.shared.search.postings import CHUNKS, Postings
from memline.shared.search.query import analyse
from memline.shared.search.ranking import KeywordHits
from memline.shared.search.reader import SearchIndex
from tests.unit.search.conftest import Notes
from tests.unit.search.questions import assert_same, fill, found


@pytest.fixture
def index(notes: Notes, opened: Callable[..., SearchIndex], monkeypatch: pytest.MonkeyPatch) -> SearchIndex:
    monkeypatch.setattr(array_postings, "MANY_CHUNKS", 0)
    monkeypatch.setattr(array_postings, "FEW_ROWS", 0)
    fill(notes)
    return opened(long_lived=True)


def has_arrays(postings: Postings, connection: Connection) -> bool:
    assert isinstance(postings, ArrayPostings)
    return postings._has_arrays(connection)


@pytest.mark.parametrize("enough", [500, 4])
def test_arrays_and_dictionaries_give_the_same_hits(
    index: SearchIndex, monkeypatch: pytest.MonkeyPatch, enough: int
) -> None:
    monkeypatch.setattr(keyword, "FOUND_ENOUGH", enough)
    monkeypatch.setattr(keyword, "SCORED", 10)
    with index.snapshot():
        assert isinstance(index.postings, ArrayPostings)

    assert_same(found(index, index.postings), found(index, Postings()))


def test_within_files_they_give_the_same_hits(index: SearchIndex) -> None:
    assert_same(found(index, index.postings, "[1, 5, 9, 30]"), found(index, Postings(), "[1, 5, 9, 30]"))


def test_words_are_scored_without_bm25(index: SearchIndex) -> None:
    with index.snapshot() as connection:
        seen: list[str] = []
        connection.set_trace_callback(seen.append)
        by_keyword(connection, analyse("redis timeout several"), None, 12, index.postings)
        connection.set_trace_callback(None)

    assert seen
    assert not [each for each in seen if "bm25(chunks_fts" in each]


def test_all_rows_of_a_word_are_read_for_the_first_question_about_some(index: SearchIndex) -> None:
    with index.snapshot() as connection:
        kept = index.postings
        rows = sorted(row for row, _ in kept.fits(connection, CHUNKS, '"redis"', among=[1, 2, 3]))
        seen: list[str] = []
        connection.set_trace_callback(seen.append)
        again = sorted(row for row, _ in kept.fits(connection, CHUNKS, '"redis"', among=[1, 2, 3]))
        connection.set_trace_callback(None)

    assert rows == again != []
    assert seen == []


def test_what_is_kept_of_chunks_is_that_of_the_chunks_there_are(notes: Notes, index: SearchIndex) -> None:
    def hits(postings: Postings) -> list[KeywordHits]:
        with index.snapshot() as connection:
            postings.follow(connection)
            return [by_keyword(connection, analyse(each), None, 300, postings) for each in ("redis", "last")]

    with index.snapshot():
        kept = index.postings
    hits(kept)
    # The highest id goes, and the next chunk is of another length in a file of another name.
    notes.remove("memory/119-again.md")
    notes.add("memory/last.md", "redis severance timeout " * 9)

    assert_same(hits(kept), hits(Postings()))


def test_few_chunks_need_no_arrays(index: SearchIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_postings, "MANY_CHUNKS", 10_000)

    with index.snapshot() as connection:
        assert not has_arrays(index.postings, connection)


def test_rows_that_leave_most_of_an_array_empty_are_not_put_into_one(
    notes: Notes, index: SearchIndex
) -> None:
    notes.writer.connection.execute(
        "INSERT INTO chunks_fts (rowid, text, heading, path, grams) VALUES (9000000, 'redis', '', '', '')"
    )

    with index.snapshot() as connection:
        index.postings.follow(connection)
        assert not has_arrays(index.postings, connection)


def test_without_numpy_dictionaries_are_used(
    notes: Notes, opened: Callable[..., SearchIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes.add("memory/a.md", "redis")
    monkeypatch.setitem(sys.modules, "memline.shared.search.array_postings", None)
    index = opened(long_lived=True)

    with index.snapshot() as connection:
        assert type(index.postings) is Postings
        assert by_keyword(connection, analyse("redis"), None, 12, index.postings).hits


def test_lengths_are_read_again_when_the_index_changes(notes: Notes, index: SearchIndex) -> None:
    found(index, index.postings)
    for number in range(0, 120, 3):
        notes.add(f"memory/{number}-again.md", "timeout " * number)

    assert_same(found(index, index.postings), found(index, Postings()))
