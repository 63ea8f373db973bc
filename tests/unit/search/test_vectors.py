import pytest

from memline.shared.config.schema import Hybrid, Query
from memline.shared.index import driver
from memline.shared.index.matrix import VectorMatrix
from memline.shared.search import service
from tests.unit.search.conftest import ask, paths

WORDS = ["redis", "timeout", "garden", "kestrel", "bread", "flour"]
WORDS += ["invoice", "train", "ticket", "battery", "solar", "violin"]
needs_vec = pytest.mark.skipif(bool(driver.vec_error()), reason="this SQLite library cannot load sqlite-vec")


@pytest.fixture
def filled(notes):
    for n in range(60):
        words = [WORDS[(n * step) % len(WORDS)] for step in (1, 5, 7)]
        folder = "home" if n % 5 == 0 else "work"
        notes.add(f"memory/{folder}/{n:02d}.md", f"note {n}: {' '.join(words)}")
    notes.add("memory/work/copy.md", "note 7: " + " ".join(WORDS[(7 * step) % 12] for step in (1, 5, 7)))
    notes.embed()
    return notes


QUESTIONS: list[tuple[str, dict[str, str]]] = [
    ("kestrel in the garden", {}),
    ("battery invoice", {"path": "memory/home/**"}),
    ("train", {"source": "memory", "path": "memory/work/*.md"}),
]


@needs_vec
@pytest.mark.parametrize(("question", "options"), QUESTIONS)
def test_both_backends_give_the_same_hits(filled, opened, question, options):
    def hits(index):
        options_of_all = {"max_results": 20, "settings": Query(min_score=0.0), "embedder": filled.vector}
        return ask(index, question, **options_of_all, **options).hits

    by_matrix, by_rows = opened(long_lived=True), opened()

    for mine, theirs in zip(hits(by_matrix), hits(by_rows), strict=True):
        assert (mine.citation, mine.snippet) == (theirs.citation, theirs.snippet)
        scores = (theirs.score, theirs.vector_score)
        assert (mine.score, mine.vector_score) == pytest.approx(scores, abs=2e-6)
    for index, has_matrix in ((by_matrix, True), (by_rows, False)):
        with index.snapshot():
            assert (
                index.comparison(filled.active, filled.active.id, bytes(128)).matrix is None
            ) is not has_matrix


@needs_vec
@pytest.mark.parametrize("long_lived", [False, True])
def test_a_filter_comes_before_the_best_are_chosen(filled, opened, monkeypatch, long_lived):
    monkeypatch.setattr(service, "POOL_STEP", 1)
    by_meaning = Query(min_score=0.0, hybrid=Hybrid(enabled=False))
    options = {"max_results": 5, "settings": by_meaning, "embedder": filled.vector}
    index = opened(long_lived=long_lived)

    everywhere, at_home = (paths(index, "redis", path=path, **options) for path in ("", "memory/home/**"))

    assert len(everywhere) == len(at_home) == 5
    assert {*everywhere} != {*at_home}


def test_the_vectors_are_looked_at_again_only_where_the_index_changed(filled, opened, monkeypatch):
    looks, refresh = [], VectorMatrix.refresh
    monkeypatch.setattr(VectorMatrix, "refresh", lambda *given: looks.append(refresh(*given)))
    index, options = opened(long_lived=True), {"embedder": filled.vector}

    paths(index, "kestrel", **options), paths(index, "garden", **options)
    before = len(looks)
    filled.add("memory/new.md", "a kestrel")
    paths(index, "kestrel garden", **options)

    assert (before, len(looks)) == (1, 2)
