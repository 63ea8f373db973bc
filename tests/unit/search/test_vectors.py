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


class Ways:
    """The same index, opened so that each backend is used."""

    def __init__(self, opened):
        self._opened = opened

    def open(self, way):
        return self._opened(long_lived=way == "matrix")


@pytest.fixture
def ways(opened):
    return Ways(opened)


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
def test_both_backends_give_the_same_hits(filled, ways):
    by_matrix = ways.open("matrix")
    expected = [ask(by_matrix, filled, question, **options) for question, options in QUESTIONS]
    assert way_of(by_matrix, filled) == "matrix"

    other = ways.open("sqlite-vec")
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
@pytest.mark.parametrize("way", ["sqlite-vec", "matrix"])
def test_a_filter_comes_before_the_best_are_chosen(filled, ways, way):
    index = ways.open(way)
    active = filled.active

    with index.snapshot() as connection:
        ids = [row[0] for row in connection.execute("SELECT id FROM files WHERE path LIKE '%/home/%'")]
        backend = index.comparison(active, filled.question("redis"))
        everywhere = backend.top(5, None)
        at_home = backend.top(5, str(ids))

    assert len(at_home) == 5
    assert {found[0] for found in at_home} != {found[0] for found in everywhere}


@needs_vec
@pytest.mark.parametrize("way", ["sqlite-vec", "matrix"])
def test_a_text_in_two_files_is_a_hit_in_both(filled, ways, way):
    hits = ask(ways.open(way), filled, "note 7 " + " ".join(WORDS[(7 * step) % 12] for step in (1, 5, 7)))

    assert {"memory/work/07.md", "memory/work/copy.md"} <= {
        path for hit in hits[:4] for path in (hit.path, *hit.also_in)
    }


@needs_vec
def test_a_hit_of_the_keyword_retriever_alone_gets_its_true_cosine(filled, ways):
    index = ways.open("sqlite-vec")
    query = filled.question("nothing of the kind")
    active = filled.active

    with index.snapshot():
        backend = index.comparison(active, query)
        everything = dict(backend.top(4_096, None))
        some = list(everything)[-3:]

        looked_up = backend.cosines(some)

    assert looked_up == pytest.approx({one: everything[one] for one in some}, abs=1e-6)
