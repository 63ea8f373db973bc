from __future__ import annotations

from pathlib import Path

import pytest

from memline.shared.index import identities
from memline.shared.index.driver import open_reader
from memline.shared.index.matrix import VectorMatrix
from memline.shared.store import IndexWriter
from tests.support.index_rows import MODEL_A, answer, file_row, lease_all, vector_of


@pytest.fixture
def filled(writer: IndexWriter) -> IndexWriter:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples", "pears", "plums"))
    answer(writer, lease_all(writer))
    return writer


def matrix_of(writer: IndexWriter) -> VectorMatrix:
    active = identities.active(writer.connection)
    assert active is not None
    return VectorMatrix(active.id, active.vector_dims)


def texts(writer: IndexWriter, matrix: VectorMatrix, limit: int = 10) -> list[str]:
    """The texts the matrix finds for `apples`, best first."""
    text_of = dict(
        writer.connection.execute(
            "SELECT vectors.id, chunks.text FROM vectors JOIN chunks USING (text_hash)"
        ).fetchall()
    )
    return [text_of[found] for found, _ in matrix.search(vector_of("apples")).top(limit)]


def test_it_has_the_active_vectors_and_finds_the_nearest(filled: IndexWriter, path: Path) -> None:
    reader = open_reader(path)
    matrix = matrix_of(filled)

    matrix.refresh(reader)

    assert len(matrix) == 3
    assert texts(filled, matrix)[0] == "apples"
    assert matrix.search(vector_of("apples")).top(1)[0][1] == pytest.approx(1.0, abs=1e-6)
    reader.close()


def test_a_removed_vector_is_no_longer_found_and_its_row_is_reused(filled: IndexWriter, path: Path) -> None:
    reader = open_reader(path)
    matrix = matrix_of(filled)
    matrix.refresh(reader)
    size = matrix.nbytes

    filled.store_file(file_row("a.md", "apples", "cherries", "plums", at=2))
    matrix.refresh(reader)
    assert sorted(texts(filled, matrix)) == ["apples", "plums"]
    answer(filled, lease_all(filled))
    matrix.refresh(reader)

    assert sorted(texts(filled, matrix)) == ["apples", "cherries", "plums"]
    assert matrix.nbytes == size
    reader.close()


def test_a_cached_vector_that_is_needed_again_is_found(filled: IndexWriter, path: Path) -> None:
    reader = open_reader(path)
    matrix = matrix_of(filled)
    filled.store_file(file_row("a.md", "apples", at=2))
    matrix.refresh(reader)
    assert len(matrix) == 1

    filled.store_file(file_row("a.md", "apples", "pears", at=3))
    matrix.refresh(reader)

    assert sorted(texts(filled, matrix)) == ["apples", "pears"]
    reader.close()


def test_it_grows_with_the_index(filled: IndexWriter, path: Path) -> None:
    reader = open_reader(path)
    matrix = matrix_of(filled)
    for n in range(40):
        filled.store_file(file_row(f"{n}.md", *(f"text {n}.{k}" for k in range(7))))
        answer(filled, lease_all(filled))
        matrix.refresh(reader)
        assert len(matrix) == 3 + 7 * (n + 1)

    fresh = matrix_of(filled)
    fresh.refresh(reader)

    assert texts(filled, matrix, 50) == texts(filled, fresh, 50)
    reader.close()


def test_nothing_is_read_while_nothing_changes(filled: IndexWriter, path: Path) -> None:
    reader = open_reader(path)
    matrix = matrix_of(filled)
    matrix.refresh(reader)
    statements: list[str] = []
    reader.set_trace_callback(statements.append)

    matrix.refresh(reader)

    assert statements == ["PRAGMA data_version"]
    reader.set_trace_callback(None)
    reader.close()


def test_only_allowed_vectors_are_candidates(filled: IndexWriter, path: Path) -> None:
    reader = open_reader(path)
    matrix = matrix_of(filled)
    matrix.refresh(reader)
    scores = matrix.search(vector_of("apples"))
    best, second, third = (found for found, _ in scores.top(3))

    assert [found for found, _ in scores.top(3, [third, second, 999])] == [second, third]
    assert scores.of([best, 999]).keys() == {best}
    reader.close()


def test_an_empty_index_has_no_hits(writer: IndexWriter, path: Path) -> None:
    reader = open_reader(path)
    matrix = VectorMatrix(1, 4)

    matrix.refresh(reader)

    assert matrix.search(vector_of("apples")).top(5) == []
    reader.close()
