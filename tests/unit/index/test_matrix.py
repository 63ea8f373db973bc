import json
import random
import re
from contextlib import closing
from itertools import count
from pathlib import Path
from sqlite3 import Connection

import pytest

from memline.shared.index import identities, matrix, vectors
from memline.shared.index.driver import open_reader
from memline.shared.index.matrix import VectorMatrix
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import model_change
from tests.support.index_rows import MODEL_A, MODEL_B, answer, file_row, lease_all, vector, vector_of


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


def cosines(matrix: VectorMatrix) -> list[dict[int, float]]:
    """What a matrix knows: the cosine of each of its vectors with each axis."""
    axes = [vector(*(float(at == axis) for at in range(4))) for axis in range(4)]
    return [dict(sorted(matrix.search(axis).of(range(1, 1_000)).items())) for axis in axes]


def fresh(writer: IndexWriter, reader: Connection) -> list[dict[int, float]]:
    """What a matrix that is loaded now knows."""
    matrix = matrix_of(writer)
    matrix.refresh(reader)
    return cosines(matrix)


def test_of_a_large_index_only_what_changed_is_read(filled: IndexWriter, path: Path) -> None:
    filled.store_file(file_row("b.md", *map(str, range(500))))
    for _ in range(5):
        answer(filled, lease_all(filled))
    with closing(open_reader(path)) as reader:
        matrix = matrix_of(filled)
        matrix.refresh(reader)
        filled.store_file(file_row("a.md", "apples", "cherries", at=2))
        answer(filled, lease_all(filled))
        statements: list[str] = []
        reader.set_trace_callback(statements.append)

        matrix.refresh(reader)

        reader.set_trace_callback(None)
        assert cosines(matrix) == fresh(filled, reader)
        assert len(matrix) == 502
    # pears and plums became cache, cherries came.
    (read,) = [each for each in statements if "embedding" in each]
    assert len(json.loads(re.findall(r"\[.*\]", read)[0])) == 3
    assert not [each for each in statements if each.startswith("SELECT id FROM vectors")]


def test_after_any_change_of_the_index_it_is_as_if_it_were_loaded_now(
    filled: IndexWriter, path: Path
) -> None:
    draw = random.Random(27)
    matrix = None

    def another_model_and_back() -> None:
        filled.retarget(draw.choice([MODEL_A, MODEL_B]))
        answer(filled, lease_all(filled))

    def some_texts() -> None:
        texts = [f"text {draw.randrange(30)}" for _ in range(draw.randrange(6))]
        filled.store_file(file_row(f"{draw.randrange(8)}.md", *dict.fromkeys(texts), at=next(moments)))

    def a_removed_file() -> None:
        row = file_row(f"{draw.randrange(8)}.md", at=next(moments), outcome="removed")
        filled.store_file(row)

    def all_vectors_anew() -> None:
        with filled.session() as (connection, now):
            model_change.forget_vectors(connection, now)

    def a_pruned_cache() -> None:
        with filled.session() as (connection, now):
            vectors.prune_cache(connection, draw.randrange(5), now)
            model_change.cache_retired(connection)

    moments = count(2)
    changes = [some_texts] * 6 + [a_removed_file, another_model_and_back, all_vectors_anew, a_pruned_cache]
    with closing(open_reader(path)) as reader:
        for _ in range(120):
            draw.choice(changes)()
            if draw.random() < 0.7:
                answer(filled, lease_all(filled))
            active = identities.active(filled.connection)
            if active is None or not active.vector_dims:
                # Nothing is searched until the first vector is there.
                continue
            if matrix is None or (matrix.identity_id, matrix.dims) != (active.id, active.vector_dims):
                matrix = matrix_of(filled)
            matrix.refresh(reader)
            assert cosines(matrix) == fresh(filled, reader)


def test_a_reader_that_is_further_behind_than_the_log_compares_all(filled: IndexWriter, path: Path) -> None:
    with closing(open_reader(path)) as reader:
        matrix = matrix_of(filled)
        matrix.refresh(reader)
        filled.store_file(file_row("a.md", "apples", "cherries", at=2))
        answer(filled, lease_all(filled))
        filled.connection.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 66000)"
            " INSERT INTO vector_changes (vector_id) SELECT 0 FROM n"
        )

        matrix.refresh(reader)

        assert cosines(matrix) == fresh(filled, reader)
        assert sorted(texts(filled, matrix)) == ["apples", "cherries"]
        kept = reader.execute("SELECT count(*) FROM vector_changes").fetchone()[0]
        assert kept == 65_536


def test_vectors_that_come_by_any_statement_are_seen(filled: IndexWriter, path: Path) -> None:
    with closing(open_reader(path)) as reader:
        matrix = matrix_of(filled)
        matrix.refresh(reader)
        filled.connection.execute(
            "INSERT INTO vectors (identity_id, text_hash, state, embedding)"
            " SELECT identity_id, x'00', state, embedding FROM vectors LIMIT 1"
        )

        matrix.refresh(reader)

        assert len(matrix) == 4


def test_a_change_that_is_rolled_back_is_not_logged(filled: IndexWriter, path: Path) -> None:
    with closing(open_reader(path)) as reader:
        matrix = matrix_of(filled)
        matrix.refresh(reader)
        filled.connection.execute("BEGIN IMMEDIATE")
        filled.connection.execute("UPDATE vectors SET active = 0")
        filled.connection.execute("ROLLBACK")
        filled.store_file(file_row("a.md", "apples", "cherries", at=2))

        matrix.refresh(reader)

        assert texts(filled, matrix) == ["apples"]


def test_only_allowed_vectors_are_candidates(filled: IndexWriter, path: Path) -> None:
    reader = open_reader(path)
    matrix = matrix_of(filled)
    matrix.refresh(reader)
    scores = matrix.search(vector_of("apples"))
    best, second, third = (found for found, _ in scores.top(3))

    assert [found for found, _ in scores.top(3, [third, second, 999])] == [second, third]
    assert scores.of([best, 999]).keys() == {best}
    reader.close()


def test_vectors_are_read_by_their_ids(filled: IndexWriter) -> None:
    plan = filled.connection.execute(f"EXPLAIN QUERY PLAN {matrix._EMBEDDINGS}", ("[1]", 1, 4)).fetchall()

    assert plan[0][3] == "SEARCH vectors USING INTEGER PRIMARY KEY (rowid=?)"


def test_an_empty_index_has_no_hits(writer: IndexWriter, path: Path) -> None:
    reader = open_reader(path)
    matrix = VectorMatrix(1, 4)

    matrix.refresh(reader)

    assert matrix.search(vector_of("apples")).top(5) == []
    reader.close()
