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
from memline.shared.search import vectors as search_vectors
from memline.shared.search.search_index import SearchIndex
from memline.shared.search.vectors import SqliteVec
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
    monkeypatch.setattr(signs, "MIN_DEPTH", 100)
    monkeypatch.setattr(search_vectors, "FEW_FLOATS", 0)


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
        backend = index.backends.choose(connection, active_of(writer), question.tobytes())
        assert backend is not None
        return [found for found, _ in backend.top(10, files)]


def recall(index: SearchIndex, writer: IndexWriter, questions: Rows) -> float:
    shares = [len(set(asked(index, writer, each)) & set(exact(writer, each))) for each in questions]
    return sum(shares) / (10 * len(shares))


def centre(writer: IndexWriter) -> bytes | None:
    return signs.read_centre(writer.connection, active_of(writer).id)


def unsigned(writer: IndexWriter) -> int:
    query = "SELECT count(*) FROM vector_signs WHERE signs IS NULL"
    return int(driver.scalar(writer.connection, query))


@pytest.mark.parametrize("dims", [384, 1_536, 100, 101])
def test_a_question_has_the_signs_that_a_row_has(dims: int) -> None:
    rows = np.random.default_rng(2).standard_normal((20, dims)).astype("<f4")
    centre = rows.mean(axis=0).tobytes()

    made = [signs.Aim(row.tobytes(), centre).signs for row in rows]

    for row, expected in zip(rows, made, strict=True):
        found, _ = signs.of_question(row.tobytes(), centre)
        # A sum next to 0 may be on either side.
        here = signs.words(np.frombuffer(found, np.uint8)[None])
        assert np.bitwise_count(here ^ expected).sum() <= 1


@pytest.mark.parametrize("dims", [384, 1_536])
@pytest.mark.parametrize("off", [0.0, 0.02, 1.0])
def test_cosines_are_estimated_wherever_the_question_lies(dims: int, off: float) -> None:
    """Also of a question that has nothing in common with the centre, as one of few words."""
    source = np.random.default_rng(2)
    rows = unit(source.standard_normal((4_000, dims)) / np.sqrt(dims) + off * np.eye(dims)[0])
    question = unit(source.standard_normal((1, dims)) + rows[:1] * np.sqrt(dims) / 2)[0]
    centre = rows.mean(axis=0).tobytes()
    made, lengths = signs.of_rows(rows, centre)
    aim = signs.Aim(question.tobytes(), centre)
    right = rows @ question

    differing = signs.distances(signs.words(made), aim.signs)
    rough = aim.by_distance(differing, lengths)
    weighed = aim.weighed(signs.words(made), lengths)
    _, (by_length, by_bit, by_square) = signs.of_question(question.tobytes(), centre)
    without_numpy = lengths * (by_length + by_bit * differing + by_square * lengths)

    assert (rough - right).std() < 1.8 / np.sqrt(dims)
    assert (weighed - right).std() < 0.85 / np.sqrt(dims)
    assert abs((weighed - right).mean()) < 0.3 / np.sqrt(dims)
    assert np.corrcoef(without_numpy, rough)[0, 1] > 0.999


def test_chances_are_right_as_far_out_as_most_of_many_rows_are() -> None:
    """Among 219,000 rows what is expected comes from four deviations away and more."""
    away = np.linspace(-6, 7, 53)

    assert [signs.chance(each) for each in (0.0, 1.6448536, 4.0)] == pytest.approx(
        [0.5, 0.05, 3.167e-5], 1e-3
    )
    assert matrix._chances(away).tolist() == pytest.approx([signs.chance(each) for each in away], rel=0.012)


@pytest.mark.parametrize("dims", [96, 101, 1_536])
def test_nearness_weighs_the_signs_by_the_question(dims: int) -> None:
    rows = np.random.default_rng(4).standard_normal((5_000, dims)).astype("<f4")
    centre = np.zeros(dims, "<f4").tobytes()
    turned = signs.Aim(rows[0].tobytes(), centre)._turned
    made, _ = signs.of_rows(rows, centre)

    found = signs.nearness(signs.words(made), turned)

    set_bits = np.unpackbits(made, axis=1, count=dims).astype(np.float32)
    step = (turned.max() - turned.min()) / 15
    rounded = turned.min() + step * np.rint((turned - turned.min()) / step)
    assert found == pytest.approx(set_bits @ rounded, rel=1e-4, abs=0.1)
    assert np.corrcoef(found, set_bits @ turned)[0, 1] > 0.98
    assert found.argmax() == 0


def test_a_question_without_direction_weighs_all_signs_alike() -> None:
    made, _ = signs.of_rows(of_chance(50), np.zeros(DIMS, "<f4").tobytes())

    assert set(signs.nearness(signs.words(made), np.zeros(DIMS, np.float32)).tolist()) == {0.0}


@pytest.mark.parametrize("width", [3, 48, 192, 384])
def test_distances_are_the_bits_that_differ(width: int) -> None:
    rows = np.random.default_rng(3).integers(0, 256, (5_000, width), np.uint8)
    rows[1] = ~rows[0]

    found = signs.distances(signs.words(rows), signs.words(rows[:1])[0])

    assert found.tolist() == np.bitwise_count(rows ^ rows[0]).sum(axis=1, dtype=int).tolist()
    assert found[1] == 8 * width


def test_the_nearest_by_signs_hold_the_nearest(wanting: IndexWriter, index: SearchIndex) -> None:
    fill(wanting, of_subjects(2_000))

    assert centre(wanting)
    assert recall(index, wanting, of_subjects(40, seed=5)) >= 0.99


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


def test_more_is_compared_where_the_signs_say_little(
    wanting: IndexWriter, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A line through a hundred points tells less than one through a thousand.
    monkeypatch.setattr(signs, "MIN_DEPTH", 200)
    fill(wanting, of_chance(2_000))
    compared: list[int] = []
    of = matrix.SignScores.of

    def counted(scores: matrix.SignScores, vector_ids: Any) -> dict[int, float]:
        found = of(scores, vector_ids)
        compared.append(len(found))
        return found

    monkeypatch.setattr(matrix.SignScores, "of", counted)
    with closing(SearchIndex(path, long_lived=True)) as index:
        assert recall(index, wanting, of_chance(50)[40:]) >= 0.97
        assert isinstance(index.backends._matrix, SignMatrix)
    assert 1.2 * 10 * signs.MIN_DEPTH < sum(compared) < 10 * 1_900


def hashed_words(count: int, words: int, *, seed: int) -> Rows:
    """Vectors of hashed words, drawn as often as those of a language are: most numbers are near nothing."""
    source = np.random.default_rng(seed)
    axes = np.random.default_rng(7).integers(0, DIMS, 5_000)
    rows = np.zeros((count, DIMS), np.float32)
    for row in rows:
        drawn = np.minimum(source.zipf(1.3, words) - 1, len(axes) - 1)
        np.add.at(row, axes[drawn], 1)
    return unit(rows)


def test_questions_of_few_words_find_the_nearest_of_hashed_words(
    wanting: IndexWriter, index: SearchIndex
) -> None:
    fill(wanting, hashed_words(2_000, 60, seed=1))
    assert signs.read_centre(wanting.connection, active_of(wanting).id)

    hits = 0
    for question in hashed_words(20, 4, seed=2):
        with index.snapshot() as connection:
            backend = index.backends.choose(connection, active_of(wanting), question.tobytes())
            assert backend is not None
            found = [cosine for _, cosine in backend.top(10, None)]
        # Many are as near as each other.
        tenth = min(backend.cosines(exact(wanting, question)).values())
        hits += sum(cosine >= tenth - 1e-5 for cosine in found)
    assert hits >= 0.97 * 200


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
    first = centre(wanting)
    asked(index, wanting, of_subjects(1)[0])

    forget_vectors(wanting)

    assert driver.scalar(wanting.connection, "SELECT count(*) FROM vector_signs") == 0
    fill(wanting, -of_subjects(1_500))
    second = centre(wanting)
    assert first and second and first != second
    assert recall(index, wanting, -of_subjects(10, seed=5)) >= 0.99


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
            backend = one_shot.backends.choose(connection, active_of(wanting), question.tobytes())
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
    monkeypatch.setattr(signs, "MIN_DEPTH", 30)
    texts, rows, questions = embedded

    writer.retarget(MODEL_A)
    for number, text in enumerate(texts):
        writer.store_file(file_row(f"{number}.md", text))
    writer.store_vectors(MODEL_A, "", vector_rows(texts, rows), LearnedCaps())

    assert centre(writer)
    assert recall(index, writer, questions) >= 0.99
