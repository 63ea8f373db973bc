"""A matrix has what the index has, and finds what an exact comparison of all vectors finds."""

import random
from contextlib import closing
from itertools import count

import numpy as np
import pytest

from memline.shared.index import bits, identities, vectors
from memline.shared.index.chunks import text_hash
from memline.shared.index.driver import load_vec, open_reader
from memline.shared.index.matrix import VectorMatrix
from memline.shared.index.rows import VectorRow
from memline.shared.scheduling import model_change
from memline.shared.scheduling.leases import Answer
from memline.shared.search.search_index import Comparison
from tests.support.index_rows import MODEL_A, MODEL_B, answer, file_row, lease_all, retarget, vector_of

DIMS = 96


@pytest.fixture
def filled(writer):
    retarget(writer, MODEL_A)
    writer.store_file(file_row("a.md", "apples", "pears", "plums"))
    answer(writer, lease_all(writer))
    return writer


@pytest.fixture
def reader(filled, path):
    with closing(open_reader(path)) as connection:
        yield connection


def matrix_of(writer, connection, *, of_bits=False):
    active = identities.active(writer.connection)
    centre = bits.centre_of(connection, active.id) if of_bits else None
    made = VectorMatrix(active.id, active.vector_dims, centre)
    made.refresh(connection)
    return made


def test_after_any_change_of_the_index_it_is_as_if_it_were_loaded_now(filled, reader):
    draw, moments, matrix = random.Random(27), count(2), None

    def another_model_and_back():
        retarget(filled, draw.choice([MODEL_A, MODEL_B]))
        answer(filled, lease_all(filled))

    def some_texts():
        texts = [f"text {draw.randrange(30)}" for _ in range(draw.randrange(6))]
        filled.store_file(file_row(f"{draw.randrange(8)}.md", *dict.fromkeys(texts), at=next(moments)))

    def a_removed_file():
        filled.store_file(file_row(f"{draw.randrange(8)}.md", at=next(moments), outcome="removed"))

    def all_vectors_anew():
        with filled.session() as (connection, now):
            model_change.forget_vectors(connection, now)

    def a_pruned_cache():
        with filled.session() as (connection, now):
            vectors.prune_cache(connection, draw.randrange(5), now)
            model_change.cache_retired(connection, now)

    changes = [some_texts] * 6 + [a_removed_file, another_model_and_back, all_vectors_anew, a_pruned_cache]
    for _ in range(80):
        draw.choice(changes)()
        if draw.random() < 0.7:
            answer(filled, lease_all(filled))
        active = identities.active(filled.connection)
        if active is None or not active.vector_dims:
            continue
        if matrix is None or matrix.identity_id != active.id:
            matrix = VectorMatrix(active.id, active.vector_dims)
        matrix.refresh(reader)
        fresh = matrix_of(filled, reader)
        asked = vector_of("apples")
        assert matrix.top(reader, asked, 100) == fresh.top(reader, asked, 100)
        assert len(matrix) == len(fresh)


def test_only_allowed_vectors_are_candidates(filled, reader):
    matrix, asked = matrix_of(filled, reader), vector_of("apples")
    best, second, third = (found for found, _ in matrix.top(reader, asked, 3))

    assert [found for found, _ in matrix.top(reader, asked, 3, [third, second, 999])] == [second, third]
    assert matrix.cosines(reader, asked, [best, 999]) == {best: pytest.approx(1.0, abs=1e-6)}


def of_subjects(number, *, seed=0):
    """Vectors as a model makes them: off the origin, of subjects, with axes of unequal weight."""
    source = np.random.default_rng(seed)
    subjects = np.random.default_rng(99).standard_normal((40, DIMS))
    rows = subjects[source.integers(0, 40, number)] + 0.4 * source.standard_normal((number, DIMS))
    rows = rows * np.linspace(3, 0.1, DIMS) + 2.0
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")


def store(writer, rows, name, at):
    texts = [f"{name} {number}" for number in range(len(rows))]
    writer.store_file(file_row(f"{name}.md", *texts, at=at))
    stored = tuple(
        VectorRow(hash=text_hash(text), vector=row.tobytes()) for text, row in zip(texts, rows, strict=True)
    )
    writer.store_vectors(Answer(identity=MODEL_A, vectors=stored))


@pytest.fixture
def large(writer, monkeypatch):
    """An index whose vectors have bits, but for the newest."""
    monkeypatch.setattr(bits, "NEAREST", 200)
    monkeypatch.setattr(bits, "NEAREST_BITS", 0)
    retarget(writer, MODEL_A)
    store(writer, of_subjects(2_000), "first", 1)
    bits.make(writer.connection, identities.active(writer.connection).id, DIMS, few_bytes=0)
    store(writer, of_subjects(300, seed=1), "late", 2)
    return writer


@pytest.mark.parametrize("way", ["matrix", "sqlite-vec"])
@pytest.mark.parametrize("is_limited", [False, True])
def test_the_nearest_by_their_bits_have_the_nearest_among_them(large, path, way, is_limited):
    with closing(open_reader(path)) as connection:
        exact, some = matrix_of(large, connection), matrix_of(large, connection, of_bits=True)
        files = "[2]" if is_limited else None
        allowed = range(2_001, 2_301) if is_limited else None
        hits = 0
        for question in of_subjects(50, seed=2):
            asked = question.tobytes()
            if way == "matrix":
                found = some.top(connection, asked, 10, allowed)
            else:
                assert load_vec(connection) == ""
                found = Comparison(connection, some.identity_id, asked, None).top(10, files)
            expected = exact.top(connection, asked, 10, allowed)
            hits += len({row for row, _ in found} & {row for row, _ in expected})
        assert hits >= 490


def test_bits_go_and_come_with_their_vectors(large, path):
    large.store_file(file_row("late.md", at=3, outcome="removed"))
    with large.session() as (connection, now):
        vectors.prune_cache(connection, 0, now)
    with closing(open_reader(path)) as connection:
        assert len(matrix_of(large, connection, of_bits=True)) == 2_000
    with large.session() as (connection, now):
        model_change.forget_vectors(connection, now)
        assert bits.centre_of(connection, 1) is None
