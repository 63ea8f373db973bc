"""The signs choose the vectors that are compared exactly, and the best are the same as without them."""

# Names of types that only a checker has.
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memline.shared.index import driver, identities, matrix, signs
from memline.shared.index.chunks import text_hash
from memline.shared.index.matrix import SignMatrix, VectorMatrix
from memline.shared.index.rows import LearnedCaps, VectorRow
from memline.shared.index_writer import IndexWriter
from memline.shared.search import reader
from memline.shared.search.reader import SearchIndex
from memline.shared.search.vector_backends import SqliteVec
from tests.support.index_rows import MODEL_A, MODEL_B, file_row, forget_vectors
from tests.support.local_model import MODEL, needs_model

WHO = ["my sister", "the plumber", "Nadia", "our cat", "the bank"]
DID = ["repaired", "lost", "bought", "wrote about"]
WHAT = ["the blue bicycle", "an invoice", "tickets to Lisbon", "the garden gate", "a violin"]
Rows = np.ndarray[Any, np.dtype[np.float32]]
DIMS = 96
SUBJECTS = 40
needs_vec = pytest.mark.skipif(
    not driver.can_load_extensions(), reason="this SQLite library cannot load sqlite-vec"
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index of 2,000 vectors is a large one."""
    monkeypatch.setattr(signs, "MIN_ROWS", 500)
    monkeypatch.setattr(signs, "SLICE_ROWS", 300)
    monkeypatch.setattr(signs, "MIN_DEPTH", 40)
    monkeypatch.setattr(reader, "FEW_FLOATS", 0)
    monkeypatch.setattr(reader, "MIN_LIMIT", 10)


def unit(rows: Rows) -> Rows:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")


def of_subjects(count: int, *, seed: int = 0, noise: float = 0.4) -> Rows:
    """Vectors as a model makes them: off the origin, of subjects, with axes of unequal weight."""
    source = np.random.default_rng(seed)
    weights = np.linspace(3, 0.1, DIMS)
    subjects = np.random.default_rng(99).standard_normal((SUBJECTS, DIMS))
    rows = subjects[source.integers(0, len(subjects), count)] + noise * source.standard_normal((count, DIMS))
    return unit(rows * weights + 2.0)


def of_chance(count: int) -> Rows:
    return unit(np.random.default_rng(1).standard_normal((count, DIMS)))


def vector_rows(texts: list[str], rows: Rows) -> list[VectorRow]:
    pairs = zip(texts, rows, strict=True)
    return [VectorRow(hash=text_hash(text), vector=row.tobytes()) for text, row in pairs]


def fill(writer: IndexWriter, rows: Rows, *, name: str = "a", at: int = 1) -> list[str]:
    """Store a vector for each of so many texts, a hundred a file."""
    texts = [f"{name} {number}" for number in range(len(rows))]
    for first in range(0, len(texts), 100):
        writer.store_file(file_row(f"{name}{first}.md", *texts[first : first + 100], at=at))
    stored = [
        VectorRow(hash=text_hash(text), vector=row.tobytes()) for text, row in zip(texts, rows, strict=True)
    ]
    for first in range(0, len(stored), 200):
        writer.store_vectors(MODEL_A, "", stored[first : first + 200], LearnedCaps())
    return texts


@pytest.fixture
def wanting(writer: IndexWriter) -> IndexWriter:
    writer.retarget(MODEL_A)
    return writer


def active_of(writer: IndexWriter) -> identities.IdentityRow:
    active = identities.active(writer.connection)
    assert active is not None
    return active


def exact(writer: IndexWriter, question: Rows, limit: int = 10) -> list[int]:
    matrix = VectorMatrix(active_of(writer).id, active_of(writer).vector_dims)
    matrix.refresh(writer.connection)
    return [found for found, _ in matrix.search(question.tobytes()).top(limit)]


@pytest.fixture(
    params=[pytest.param(False, marks=needs_vec, id="one-shot"), pytest.param(True, id="long-lived")]
)
def index(request: pytest.FixtureRequest, path: Path) -> Iterator[SearchIndex]:
    with closing(SearchIndex(path, long_lived=request.param)) as opened:
        yield opened


def asked(index: SearchIndex, writer: IndexWriter, question: Rows, files: str | None = None) -> list[int]:
    with index.snapshot() as connection:
        backend = index.vector_backend(connection, active_of(writer), question.tobytes())
        assert backend is not None
        return [found for found, _ in backend.top(10, files)]


def recall(index: SearchIndex, writer: IndexWriter, questions: Rows) -> float:
    shares = [len(set(asked(index, writer, each)) & set(exact(writer, each))) for each in questions]
    return sum(shares) / (10 * len(shares))


def depth(writer: IndexWriter) -> int:
    known = signs.read(writer.connection, active_of(writer).id)
    return known.depth_for(signs.count(writer.connection, active_of(writer).id), 10) if known else 0


def unsigned(writer: IndexWriter) -> int:
    query = "SELECT count(*) FROM vector_signs WHERE signs IS NULL"
    return int(driver.scalar(writer.connection, query))


@pytest.mark.parametrize("dims", [384, 1_536, 100, 101])
def test_a_question_has_the_signs_that_a_row_has(dims: int) -> None:
    rows = np.random.default_rng(2).standard_normal((20, dims)).astype("<f4")
    centre = rows.mean(axis=0).tobytes()

    made = signs.of_rows(rows, centre)

    for row, expected in zip(rows, made, strict=True):
        found = np.frombuffer(signs.of_question(row.tobytes(), centre), np.uint8)
        # A sum next to 0 may be on either side.
        assert np.bitwise_count(found ^ expected).sum() <= 1


@pytest.mark.parametrize("dims", [96, 101, 1_536])
def test_nearness_weighs_the_signs_by_the_question(dims: int) -> None:
    rows = np.random.default_rng(4).standard_normal((5_000, dims)).astype("<f4")
    centre = np.zeros(dims, "<f4").tobytes()
    turned = signs.turned_question(rows[0].tobytes(), centre)
    made = signs.of_rows(rows, centre)

    found = signs.nearness(signs.words(made), turned)

    set_bits = np.unpackbits(made, axis=1, count=dims).astype(np.float32)
    step = (turned.max() - turned.min()) / 15
    rounded = turned.min() + step * np.rint((turned - turned.min()) / step)
    assert found == pytest.approx(set_bits @ rounded, rel=1e-4, abs=0.1)
    assert np.corrcoef(found, set_bits @ turned)[0, 1] > 0.98
    assert found.argmax() == 0


def test_a_question_without_direction_weighs_all_signs_alike() -> None:
    made = signs.words(signs.of_rows(of_chance(50), np.zeros(DIMS, "<f4").tobytes()))

    assert set(signs.nearness(made, np.zeros(DIMS, np.float32)).tolist()) == {0.0}


@pytest.mark.parametrize("width", [3, 48, 192, 384])
def test_distances_are_the_bits_that_differ(width: int) -> None:
    rows = np.random.default_rng(3).integers(0, 256, (5_000, width), np.uint8)
    rows[1] = ~rows[0]

    found = signs.distances(signs.words(rows), signs.words(rows[:1])[0])

    assert found.tolist() == np.bitwise_count(rows ^ rows[0]).sum(axis=1, dtype=int).tolist()
    assert found[1] == 8 * width


def test_the_nearest_by_signs_hold_the_nearest(wanting: IndexWriter, index: SearchIndex) -> None:
    fill(wanting, of_subjects(2_000))

    assert 0 < depth(wanting) <= 250
    assert recall(index, wanting, of_subjects(40, seed=5)) >= 0.99
    if index.long_lived:
        assert isinstance(index._matrix, SignMatrix)


def test_what_may_be_among_the_ten_nearest_is_read_too(
    wanting: IndexWriter, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(wanting, of_subjects(2_000))
    monkeypatch.setattr(signs, "MIN_DEPTH", 10)
    monkeypatch.setattr(signs, "least_read", lambda limit: 12)
    index = SearchIndex(path, long_lived=True)
    asked = of_subjects(40, seed=5)

    with closing(index):
        assert recall(index, wanting, asked) >= 0.99
        monkeypatch.setattr(matrix, "SURE", -100.0)
        assert recall(index, wanting, asked) < 0.95


def test_after_many_have_gone_the_others_are_scanned_where_they_are(
    wanting: IndexWriter, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(wanting, of_subjects(2_000))
    index = SearchIndex(path, long_lived=True)
    with closing(index):
        assert recall(index, wanting, of_subjects(4, seed=5)) >= 0.99
        for first in range(0, 400, 100):
            wanting.store_file(file_row(f"a{first}.md", at=9))

        scanned: list[int] = []
        distances = signs.distances

        def counted(rows: Any, question: Any) -> Any:
            scanned.append(len(rows))
            return distances(rows, question)

        monkeypatch.setattr(signs, "distances", counted)
        assert recall(index, wanting, of_subjects(4, seed=5)) >= 0.99
    assert scanned == [2_000] * 4


def test_vectors_whose_signs_say_little_are_compared_exactly(
    wanting: IndexWriter, index: SearchIndex
) -> None:
    fill(wanting, of_chance(2_000))

    assert signs.read(wanting.connection, active_of(wanting).id) is not None
    assert depth(wanting) == 0
    assert recall(index, wanting, of_chance(50)[40:]) == 1.0
    assert not isinstance(index._matrix, SignMatrix)


def test_a_filter_is_within_the_signs(wanting: IndexWriter, index: SearchIndex) -> None:
    rows = of_subjects(2_000)
    fill(wanting, rows)
    file_id = driver.scalar(wanting.connection, "SELECT id FROM files WHERE path = 'a500.md'")
    query = "SELECT vectors.id FROM chunks JOIN vectors USING (text_hash) WHERE file_id = ?"
    here = {row[0] for row in wanting.connection.execute(query, (file_id,))}
    question = of_subjects(1, seed=6)[0]

    found = asked(index, wanting, question, f"[{file_id}]")

    assert found == [each for each in exact(wanting, question, 2_000) if each in here][:10]


def test_the_newest_are_found_and_what_is_gone_is_not(wanting: IndexWriter, index: SearchIndex) -> None:
    fill(wanting, of_subjects(2_000))
    question = of_subjects(1, seed=8)[0]
    before = asked(index, wanting, question)
    left = unsigned(wanting)

    fill(wanting, np.tile(question, (3, 1)), name="new")
    wanting.store_file(file_row("a0.md", at=9))

    assert left < signs.SLICE_ROWS
    assert unsigned(wanting) == left + 3
    found = asked(index, wanting, question)
    assert found == exact(wanting, question)
    assert found != before
    assert driver.scalar(wanting.connection, "SELECT count(*) FROM vector_signs") == 1_903


def test_a_writer_that_was_killed_between_two_slices_costs_no_hit(
    wanting: IndexWriter, index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(signs, "MAX_SLICES", 0)
        fill(wanting, of_subjects(2_000))
    assert unsigned(wanting) == 2_000
    monkeypatch.setattr(signs, "MAX_SLICES", 2)
    wanting.sweep()
    assert unsigned(wanting) == 1_400

    assert recall(index, wanting, of_subjects(20, seed=5)) >= 0.99

    while unsigned(wanting) >= signs.SLICE_ROWS:
        wanting.sweep()
    assert recall(index, wanting, of_subjects(20, seed=5)) >= 0.99


def test_vectors_made_anew_get_a_centre_of_their_own(wanting: IndexWriter, index: SearchIndex) -> None:
    fill(wanting, of_subjects(1_500))
    first = signs.read(wanting.connection, active_of(wanting).id)
    asked(index, wanting, of_subjects(1)[0])

    forget_vectors(wanting)

    assert driver.scalar(wanting.connection, "SELECT count(*) FROM vector_signs") == 0
    fill(wanting, -of_subjects(1_500))
    second = signs.read(wanting.connection, active_of(wanting).id)
    assert first is not None
    assert second is not None
    assert first.centre != second.centre
    assert depth(wanting)
    assert recall(index, wanting, -of_subjects(10, seed=5)) >= 0.99
    if index.long_lived:
        assert isinstance(index._matrix, SignMatrix)
        assert index._matrix.centre == second.centre


def test_another_model_is_searched_by_its_own_signs(wanting: IndexWriter, index: SearchIndex) -> None:
    texts = fill(wanting, of_subjects(1_000))
    asked(index, wanting, of_subjects(1)[0])
    rows = of_subjects(1_000, seed=3)

    wanting.retarget(MODEL_B)
    stored = [
        VectorRow(hash=text_hash(text), vector=row.tobytes()) for text, row in zip(texts, rows, strict=True)
    ]
    wanting.store_vectors(MODEL_B, "", stored, LearnedCaps())
    wanting.sweep()

    assert active_of(wanting).identity == MODEL_B
    assert recall(index, wanting, of_subjects(10, seed=5)) >= 0.99


@needs_vec
def test_an_index_without_signs_is_searched_all_the_same(
    wanting: IndexWriter, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signs, "make", lambda *args: None)
    fill(wanting, of_subjects(700))

    with closing(SearchIndex(path)) as one_shot:
        question = of_subjects(1, seed=2)[0]
        assert asked(one_shot, wanting, question) == exact(wanting, question)
        with one_shot.snapshot() as connection:
            backend = one_shot.vector_backend(connection, active_of(wanting), question.tobytes())
            assert isinstance(backend, SqliteVec)


@pytest.fixture(scope="module")
def embedded() -> tuple[list[str], Rows, Rows]:
    """Texts, and what a real model makes of them and of some questions."""
    model = import_module("llama_cpp").Llama(str(MODEL), embedding=True, n_ctx=64, n_threads=1, verbose=False)
    texts = [f"{who} {did} {what}" for who in WHO for did in DID for what in WHAT]
    asked_for = [f"when did {who} lose {what}" for who, what in zip(WHO, WHAT, strict=True)]
    rows = [model.embed(text) for text in texts + asked_for]
    model.close()
    vectors = unit(np.array(rows, np.float32).reshape(len(rows), -1))
    return texts, vectors[: len(texts)], vectors[len(texts) :]


@needs_model
def test_the_nearest_notes_of_a_real_model_are_among_the_nearest_by_signs(
    writer: IndexWriter,
    index: SearchIndex,
    embedded: tuple[list[str], Rows, Rows],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signs, "MIN_ROWS", 90)
    monkeypatch.setattr(signs, "MAX_SHARE", 0.9)
    monkeypatch.setattr(signs, "SAMPLE_QUESTIONS", 10)
    texts, rows, questions = embedded

    writer.retarget(MODEL_A)
    for number, text in enumerate(texts):
        writer.store_file(file_row(f"{number}.md", text))
    writer.store_vectors(MODEL_A, "", vector_rows(texts, rows), LearnedCaps())

    assert 0 < depth(writer) < len(texts)
    assert recall(index, writer, questions) >= 0.99


def test_the_depth_is_the_one_that_a_sample_at_once_would_tell(
    wanting: IndexWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signs, "_AT_ONCE", 37)
    rows = of_subjects(600)

    fill(wanting, rows)

    known = signs.read(wanting.connection, active_of(wanting).id)
    assert known is not None and known.rows == known.of == 600
    made = signs.words(signs.of_rows(rows, known.centre))
    ranks: list[int] = []
    # Those of every 18th place: 1,200 vectors, 64 questions.
    for own in range(8, 600, 9):
        others = np.delete(np.arange(600), own)
        away = signs.distances(made[others], made[own])
        nearest = np.argsort(-(rows[others] @ rows[own]))[:10]
        ranks += [int((away <= away[each]).sum()) for each in nearest]
    assert known.depth == sorted(ranks)[int(np.ceil(signs.RECALL * len(ranks))) - 1]
