"""What common words say of a few chunks is the same whether all of their chunks are read or not."""

import random
import sqlite3
from collections.abc import Callable

import pytest

from memline.shared.index import full_text
from memline.shared.search import few_rows, keyword
from memline.shared.search.few_rows import Beside, FewRows
from memline.shared.search.forms import Ways
from memline.shared.search.keyword import by_keyword
from memline.shared.search.postings import CHUNKS, Postings
from memline.shared.search.query import analyse
from memline.shared.search.reader import SearchIndex
from tests.unit.search.conftest import Notes
from tests.unit.search.questions import assert_same, fill, found

#: A word, one with other words of its stem in chunks, in headings, with an accent; and what has no one word.
PHRASES = [
    ('"redis"', ""),
    ('"timeout"', '"timeout"'),
    ('"running"', '"running" OR "runs"'),
    ('"several"', '"several"'),
    ('"cafe"', ""),
    ('"grosse"', ""),
    ('"redis timeouts"', ""),
    ('{grams} : "東京"', ""),
]


@pytest.fixture
def index(notes: Notes, opened: Callable[..., SearchIndex]) -> SearchIndex:
    fill(notes)
    return opened()


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look up a few rows even where to read all is faster."""
    for module in (few_rows, keyword):
        monkeypatch.setattr(module, "LEAST_ROWS", 0)
    monkeypatch.setattr(few_rows, "PER_ROW", 0)
    monkeypatch.setattr(keyword, "BESIDE", 0)


@pytest.mark.parametrize("beside", ["", '"timeout"', '"run" OR "several"'])
@pytest.mark.parametrize(("match", "typed"), PHRASES)
@pytest.mark.usefixtures("always")
def test_a_few_rows_get_the_fits_that_reading_all_gives(
    index: SearchIndex, match: str, typed: str, beside: str
) -> None:
    chance = random.Random(5)
    few = FewRows(CHUNKS.weights)
    with index.snapshot() as connection:
        ids = [row for (row,) in connection.execute("SELECT id FROM chunks")]
        sums = dict(
            connection.execute(
                "SELECT rowid, bm25(chunks_fts, 1.0, 0.7, 0.7, 1.0) FROM chunks_fts WHERE chunks_fts MATCH ?",
                (beside,),
            )
            if beside
            else ()
        )
        for size in (1, 20, len(ids), 30):
            rows = sorted(chance.sample(ids, size))
            postings = Postings()
            postings.follow(connection)
            mine = few.fits(
                connection,
                match,
                typed,
                rows,
                size=postings.count(connection, "chunks_fts", match),
                beside=Beside(match=beside, sums=sums) if beside else None,
            )
            if match in ('"redis timeouts"', '{grams} : "東京"'):
                assert mine is None
                continue
            theirs = sorted(postings.read(connection, CHUNKS, match, typed, among=rows))
            assert mine is not None
            assert [row for row, _ in mine] == [row for row, _ in theirs]
            assert [fit for _, fit in mine] == pytest.approx([fit for _, fit in theirs], rel=1e-6)


@pytest.mark.parametrize("files", [None, "[1, 5, 9, 30]"])
@pytest.mark.parametrize("enough", [500, 4])
def test_questions_have_the_same_hits(
    index: SearchIndex, monkeypatch: pytest.MonkeyPatch, enough: int, files: str | None
) -> None:
    monkeypatch.setattr(keyword, "FOUND_ENOUGH", enough)
    monkeypatch.setattr(keyword, "SCORED", 10)
    monkeypatch.setattr(keyword, "MANY_ROWS", 40)
    asked: list[str] = []
    fits = FewRows.fits

    def counted(few: FewRows, *args: object, **words: object) -> list[tuple[int, float]] | None:
        given = fits(few, *args, **words)  # type: ignore[arg-type]
        asked.extend(["few"] * (given is not None))
        return given

    monkeypatch.setattr(FewRows, "fits", counted)
    read_all = found(index, Postings(), files)
    assert not asked

    for module in (few_rows, keyword):
        monkeypatch.setattr(module, "LEAST_ROWS", 0)
    monkeypatch.setattr(few_rows, "PER_ROW", 0)
    monkeypatch.setattr(keyword, "BESIDE", 0)
    # What bm25() gives a word in half of the chunks is a millionth of what it gives another.
    assert_same(found(index, Postings(), files), read_all, rel=1e-7)
    assert asked or (files and enough == 500)


def test_the_forms_of_a_word_are_counted_once_a_chunk(index: SearchIndex) -> None:
    with index.snapshot() as connection:
        ways = Ways(connection, None, Postings())
        for forms in (["timeout", "timeouts"], ["runs", "running", "run"], ["nowhere", "redis"], ["redis"]):
            both = " OR ".join(f'"{form}"' for form in forms)
            query = "SELECT count(*) FROM forms_fts WHERE forms_fts MATCH ?"

            assert ways._count_forms(forms) == connection.execute(query, (both,)).fetchone()[0]


def test_a_line_is_looked_for_only_where_some_chunk_holds_all_its_words(
    notes: Notes, index: SearchIndex
) -> None:
    notes.add("memory/one.md", "kestrel quokka")
    notes.add("memory/other.md", "a lantern for the kestrel")
    for question, is_asked in (("lantern for the quokka", False), ("lantern for the kestrel", True)):
        seen: list[str] = []
        with index.snapshot() as connection:
            connection.set_trace_callback(seen.append)
            hits = by_keyword(connection, analyse(question), None, 12).hits
            connection.set_trace_callback(None)

        assert any("{text}" in each for each in seen) == is_asked
        assert hits[0].is_line == is_asked


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count words beforehand in a small index too."""
    monkeypatch.setattr(full_text, "MANY_CHUNKS", 1)
    monkeypatch.setattr(full_text, "LEAST", 20)


@pytest.mark.usefixtures("counted")
def test_common_words_are_counted_once_until_full_text_changes(notes: Notes, index: SearchIndex) -> None:
    def counts() -> tuple[dict[str, int], list[str]]:
        seen: list[str] = []
        with index.snapshot() as connection:
            postings = Postings()
            postings.follow(connection)
            connection.set_trace_callback(seen.append)
            found = {
                f"{table} {word}": postings.count(connection, table, f'"{word}"')
                for table in ("chunks_fts", "forms_fts")
                for word in ("redis", "timeouts", "timeout", "cafe", "größe", "severance")
            }
            connection.set_trace_callback(None)
        return found, [each for each in seen if "count(*)" in each]

    plain, asked = counts()
    full_text.store_common_words(notes.writer.connection)
    kept, still_asked = counts()
    notes.add("memory/more.md", "redis timeouts")
    after, asked_again = counts()

    assert kept == plain
    # Of `größe`, as it is typed, there is nothing: the index has no accents.
    assert 0 < len(still_asked) < len(asked) == len(asked_again)
    assert after["chunks_fts redis"] == plain["chunks_fts redis"] + 1


@pytest.mark.usefixtures("counted")
def test_where_few_chunks_are_left_no_counts_are(
    notes: Notes, index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = notes.writer.connection
    full_text.store_common_words(connection)
    assert full_text.common_words(connection)["forms_fts"]["redis"] > 20
    monkeypatch.setattr(full_text, "MANY_CHUNKS", 100_000)

    full_text.store_common_words(connection)

    assert full_text.common_words(connection) == {}


@pytest.mark.usefixtures("counted")
def test_words_are_counted_after_a_count_that_broke_off(notes: Notes, index: SearchIndex) -> None:
    connection = notes.writer.connection
    connection.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, chunks_fts, row)")

    full_text.store_common_words(connection)

    assert full_text.common_words(connection)["forms_fts"]["redis"] > 20


@pytest.mark.usefixtures("always")
def test_where_no_temporary_table_can_be_made_all_rows_are_read(
    index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyword, "FOUND_ENOUGH", 3)
    with index.snapshot() as connection:
        right = by_keyword(connection, analyse("redis timeout severance"), None, 12)
    with index.snapshot() as connection:
        connection.set_authorizer(lambda action, *_: action == sqlite3.SQLITE_CREATE_VTABLE)
        try:
            found = by_keyword(connection, analyse("redis timeout severance"), None, 12)
        finally:
            connection.set_authorizer(None)

    assert_same([found], [right], rel=1e-9)
