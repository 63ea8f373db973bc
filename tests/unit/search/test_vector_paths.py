from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from shared.config.schema import Query
from shared.index import driver, vec
from shared.search.answer import search
from shared.search.reader import SearchIndex
from shared.search.results import Hit, SearchRequest
from shared.search.vector_paths import BlobScan, Matrix, PurePython, Vec0
from tests.unit.search.conftest import Notes

WORDS = ["redis", "timeout", "garden", "kestrel", "bread", "flour"]
WORDS += ["invoice", "train", "ticket", "battery", "solar", "violin"]
needs_vec = pytest.mark.skipif(
    not driver.can_load_extensions(), reason="this SQLite library cannot load sqlite-vec"
)


@pytest.fixture
def filled(notes: Notes) -> Notes:
    for n in range(60):
        words = [WORDS[(n * step) % len(WORDS)] for step in (1, 5, 7)]
        folder = "home" if n % 5 == 0 else "work"
        notes.add(f"memory/{folder}/{n:02d}.md", f"note {n}: {' '.join(words)}")
    notes.add("memory/work/copy.md", "note 7: " + " ".join(WORDS[(7 * step) % 12] for step in (1, 5, 7)))
    notes.embed()
    return notes


class Ways:
    """The same index, opened so that each of the four ways is taken."""

    def __init__(self, opened: Callable[..., SearchIndex], monkeypatch: pytest.MonkeyPatch) -> None:
        self._opened = opened
        self._monkeypatch = monkeypatch

    def open(self, way: type) -> SearchIndex:
        if way is Matrix:
            return self._opened(long_lived=True)
        if way is PurePython:
            self._monkeypatch.setitem(sys.modules, "shared.index.matrix", None)
            return self._opened(vec_enabled=False)
        if way is BlobScan:
            self._monkeypatch.setattr(vec, "usable", lambda connection, identity_id: False)
        return self._opened()


@pytest.fixture
def ways(opened: Callable[..., SearchIndex], monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(opened, monkeypatch)


def way_of(index: SearchIndex, query: bytes) -> type:
    active = index.active_identity()
    assert active is not None
    with index.snapshot() as connection:
        return type(index.vector_path(connection, active, query))


def ask(index: SearchIndex, notes: Notes, question: str, **options: object) -> tuple[Hit, ...]:
    request = SearchRequest(query=question, max_results=20, min_score=0.0, **options)  # type: ignore[arg-type]
    return search(index, request, Query(), embed_query=notes.question).hits


QUESTIONS: list[tuple[str, dict[str, str]]] = [
    ("kestrel in the garden", {}),
    ("battery invoice", {"path_glob": "memory/home/**"}),
    ("something about music", {}),
    ("train", {"source": "memory", "path_glob": "memory/work/*.md"}),
    ("train", {"source": "sessions"}),
]


@needs_vec
@pytest.mark.parametrize("way", [Vec0, BlobScan, PurePython])
def test_all_ways_give_the_same_hits(filled: Notes, ways: Ways, way: type) -> None:
    by_matrix = ways.open(Matrix)
    expected = [ask(by_matrix, filled, question, **options) for question, options in QUESTIONS]
    assert way_of(by_matrix, filled.question("x")) is Matrix

    other = ways.open(way)
    found = [ask(other, filled, question, **options) for question, options in QUESTIONS]

    assert way_of(other, filled.question("x")) is way
    for mine, theirs in zip(found, expected, strict=True):
        assert [(hit.citation, hit.snippet) for hit in mine] == [
            (hit.citation, hit.snippet) for hit in theirs
        ]
        assert [hit.score for hit in mine] == pytest.approx([hit.score for hit in theirs], abs=2e-6)
        assert [hit.vector_score for hit in mine] == pytest.approx(
            [hit.vector_score for hit in theirs], abs=2e-6
        )


@needs_vec
@pytest.mark.parametrize("way", [Vec0, BlobScan, Matrix, PurePython])
def test_a_filter_comes_before_the_best_are_chosen(filled: Notes, ways: Ways, way: type) -> None:
    index = ways.open(way)
    active = index.active_identity()
    assert active is not None

    with index.snapshot() as connection:
        ids = [row[0] for row in connection.execute("SELECT id FROM files WHERE path LIKE '%/home/%'")]
        path = index.vector_path(connection, active, filled.question("redis"))
        everywhere = path.top(5, None)
        at_home = path.top(5, str(ids))

    assert len(at_home) == 5
    assert {found[0] for found in at_home} != {found[0] for found in everywhere}


@needs_vec
@pytest.mark.parametrize("way", [Vec0, BlobScan, Matrix, PurePython])
def test_a_text_in_two_files_is_a_hit_in_both(filled: Notes, ways: Ways, way: type) -> None:
    hits = ask(ways.open(way), filled, "note 7 " + " ".join(WORDS[(7 * step) % 12] for step in (1, 5, 7)))

    assert {"memory/work/07.md", "memory/work/copy.md"} <= {hit.path for hit in hits[:4]}


@needs_vec
def test_a_hit_of_the_keyword_leg_alone_gets_its_true_cosine(filled: Notes, ways: Ways) -> None:
    index = ways.open(Vec0)
    query = filled.question("nothing of the kind")
    active = index.active_identity()
    assert active is not None

    with index.snapshot() as connection:
        path = index.vector_path(connection, active, query)
        everything = dict(path.top(4_096, None))
        some = list(everything)[-3:]

        looked_up = path.cosines(some)

    assert looked_up == pytest.approx({one: everything[one] for one in some}, abs=1e-6)


def test_without_extension_and_numpy_there_are_still_vectors(filled: Notes, ways: Ways) -> None:
    index = ways.open(PurePython)

    hits = ask(index, filled, "kestrel garden")

    assert way_of(index, filled.question("x")) is PurePython
    assert index.vec_error == "store.vector.enabled is off"
    assert hits[0].vector_score > 0
