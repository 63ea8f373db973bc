"""The list of hashes, and what is made of a forgotten text at a provider."""

import re
from contextlib import closing
from pathlib import Path

from memline.shared.index import batches, erase, forgotten
from memline.shared.index.chunks import text_hash
from memline.shared.index_writer import IndexWriter
from memline.shared.sources.forgetting import line_hash, without
from tests.support.index_rows import answer, file_row, lease_all, target_id


def test_lines_are_blanked_and_the_others_keep_their_numbers() -> None:
    gone = {line_hash("b"), line_hash("  - c ")}

    assert without("a\nb\n\n- c\n b \nd", gone) == "a\n\n\n\n\nd"
    assert without("a\n\nb", {line_hash("")}) == "a\n\nb"


def test_a_text_in_a_batch_cancels_it_and_its_lease_is_gone(wanting: IndexWriter) -> None:
    token = "t" * 32
    with wanting.transaction() as (connection, now):
        connection.execute(
            "INSERT INTO batches (token, identity_id, state, created_at) VALUES (?, ?, 'submitted', ?)",
            (token, target_id(wanting), now),
        )
        connection.execute("UPDATE vectors SET state = 'leased', lease = ?", (token,))
    wanting.store_file(file_row("a.md", "pears", at=2))

    with wanting.session() as (connection, now):
        removed = erase.drop_vectors(connection, [text_hash("apples")], now)

    (batch,) = batches.open_batches(wanting.connection)
    assert removed == 1
    assert batch.cancel_requested_at
    assert batches.texts_left(wanting.connection, token) == 1


def test_a_text_that_another_note_has_keeps_its_vector(wanting: IndexWriter) -> None:
    wanting.store_file(file_row("b.md", "apples"))
    answer(wanting, lease_all(wanting))
    wanting.store_file(file_row("a.md", "pears", at=2))

    with wanting.session() as (connection, now):
        removed = erase.drop_vectors(connection, [text_hash("apples")], now)

    assert removed == 0


def test_texts_are_refused_only_where_lines_still_stand(writer: IndexWriter) -> None:
    with writer.transaction() as (connection, now):
        forgotten.add(connection, "a.md", "text", [b"1" * 32], now)
        assert forgotten.texts_of(connection, "a.md") == frozenset()

        forgotten.add(connection, "a.md", "line", [b"2" * 32], now)

        assert forgotten.texts_of(connection, "a.md") == {b"1" * 32}
        assert forgotten.lines_of(connection, "a.md").lines == {b"2" * 32}
        assert forgotten.lines_of(connection, "b.md").lines == frozenset()
        assert forgotten.count(connection) == 1


def test_long_texts_that_were_deleted_stand_nowhere_in_the_file(path: Path) -> None:
    """Their rows have pages of their own, which are used again."""
    with closing(IndexWriter(path)) as writer:
        for edit in range(1, 121):
            words = " ".join(f"q{edit}x{number}" for number in range(20 + edit * 37 % 900))
            writer.store_file(file_row(f"{edit % 9}.md", words, f"{words} end", at=edit))
        writer.tidy()

    found = {int(each) for each in re.findall(rb"q(\d+)x", path.read_bytes())}
    assert found == set(range(112, 121))
