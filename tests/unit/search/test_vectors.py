import pytest

from memline.shared.config.schema import Query
from memline.shared.index import driver
from memline.shared.search.request import SearchRequest
from memline.shared.search.service import retrieve

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


def way_of(index, notes):
    with index.snapshot():
        chosen = index.comparison(notes.active, notes.question("x"))
        return "sqlite-vec" if chosen.matrix is None else "matrix"


def ask(index, notes, question, **options):
    request = SearchRequest(query=question, max_results=20, min_score=0.0, **options)
    return retrieve(index, request, Query(), embedder=notes.vector).hits


QUESTIONS: list[tuple[str, dict[str, str]]] = [
    ("kestrel in the garden", {}),
    ("battery invoice", {"path": "memory/home/**"}),
    ("something about music", {}),
    ("train", {"source": "memory", "path": "memory/work/*.md"}),
    ("train", {"source": "sessions"}),
]


@needs_vec
def test_both_backends_give_the_same_hits(filled, opened):
    by_matrix = opened(long_lived=True)
    expected = [ask(by_matrix, filled, question, **options) for question, options in QUESTIONS]
    assert way_of(by_matrix, filled) == "matrix"

    other = opened()
    found = [ask(other, filled, question, **options) for question, options in QUESTIONS]

    assert way_of(other, filled) == "sqlite-vec"
    for mine, theirs in zip(found, expected, strict=True):
        assert [(hit.citation, hit.snippet) for hit in mine] == [
            (hit.citation, hit.snippet) for hit in theirs
        ]
        assert [hit.score for hit in mine] == pytest.approx([hit.score for hit in theirs], abs=2e-6)
        assert [hit.vector_score for hit in mine] == pytest.approx(
            [hit.vector_score for hit in theirs], abs=2e-6
        )


@needs_vec
@pytest.mark.parametrize("long_lived", [False, True])
def test_a_filter_comes_before_the_best_are_chosen(filled, opened, long_lived):
    index = opened(long_lived=long_lived)
    active = filled.active

    with index.snapshot() as connection:
        ids = [row[0] for row in connection.execute("SELECT id FROM files WHERE path LIKE '%/home/%'")]
        backend = index.comparison(active, filled.question("redis"))
        everywhere = backend.top(5, None)
        at_home = backend.top(5, str(ids))

    assert len(at_home) == 5
    assert {found[0] for found in at_home} != {found[0] for found in everywhere}
