"""Searches of a long-lived process, and the ways to compare vectors."""

from __future__ import annotations

import shutil
import statistics
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

from benchmarks.bench import DIMS, Bench, timed_ms, unit_vectors
from benchmarks.corpus import questions
from benchmarks.figures import Figure, at_most

_QUESTIONS = 40
_CHUNKS = 50_000
_FTS = (
    "SELECT rowid, bm25(chunks_fts) AS rank FROM chunks_fts WHERE chunks_fts MATCH ? ORDER BY rank LIMIT 200"
)


def search(bench: Bench) -> list[Figure]:
    """A warm hybrid search over 50,000 chunks against its two unavoidable parts."""
    import numpy as np

    from memline.shared.findings.answerer import Answerer
    from memline.shared.index import driver
    from memline.shared.scheduling.questions import QueryEmbedder
    from memline.shared.search.request import SearchRequest

    place = bench.vector_place(10_000, 5)
    asked = questions(_QUESTIONS)
    vectors = dict(zip(asked, unit_vectors(_QUESTIONS, seed=9), strict=True))
    matrix = np.frombuffer(b"".join(unit_vectors(_CHUNKS)), "<f4").reshape(-1, DIMS)
    at_hand = patch.object(QueryEmbedder, "embed", lambda self, text, active, state: vectors[text])
    settings = place.settings()
    with (
        at_hand,
        closing(driver.open_reader(settings.index_path)) as reader,
        closing(Answerer(settings, long_lived=True)) as memory,
    ):
        searches, products, queries = [], [], []
        for question in asked:
            request = SearchRequest(query=question)
            answer = memory.ask(request)
            if answer.mode != "hybrid" or not answer.hits:
                raise RuntimeError(f"not a hybrid search: {answer.to_json()}")
            match = " OR ".join(f'"{word}"' for word in question.split())
            vector = np.frombuffer(vectors[question], "<f4")
            searches.append(timed_ms(5, lambda request=request: memory.ask(request)))
            products.append(timed_ms(5, lambda vector=vector: matrix @ vector))
            queries.append(timed_ms(5, lambda match=match: reader.execute(_FTS, (match,)).fetchall()))
    took, product, query = (sum(values) / _QUESTIONS for values in (searches, products, queries))
    return [
        at_most(
            f"warm hybrid search, 50,000 chunks x {DIMS}",
            took / (product + query),
            2,
            "x its parts",
            detail=f"search {took:.1f} ms, product {product:.1f} ms, FTS query {query:.1f} ms"
            f" (mean over {_QUESTIONS} questions)",
        )
    ]


def vectors(bench: Bench) -> list[Figure]:
    """The vector backends alone, over the same 50,000 vectors."""
    from memline.shared.index import driver, identities
    from memline.shared.index.matrix import VectorMatrix
    from memline.shared.search.vector_backends import NumpyMatrix, SqliteVec

    settings = bench.vector_place(10_000, 5).settings()
    with closing(driver.open_reader(settings.index_path)) as reader:
        if error := driver.load_vec(reader):
            raise RuntimeError(error)
        active = identities.active(reader)
        assert active is not None
        query = next(unit_vectors(1, seed=10))
        matrix = VectorMatrix(active.id, active.vector_dims)
        loading = timed_ms(1, lambda: matrix.refresh(reader))
        followed = _following(bench, settings.index_path)
        rows, product = (
            timed_ms(9, lambda make=make: make().top(200, None))
            for make in (
                lambda: SqliteVec(reader, active.id, query),
                lambda: NumpyMatrix(reader, matrix, query),
            )
        )
    return [
        Figure(
            what=f"matrix against a scan of the rows, 50,000 x {DIMS}",
            target="> 1 x as fast",
            measured=f"{rows / product:.2f} x",
            met=rows > product,
            detail=f"matrix {product:.1f} ms, rows {rows:.1f} ms, and {loading:.0f} ms once to load it",
        ),
        at_most("matrix, 64 of 50,000 vectors changed since the last question", followed, 5, "ms"),
    ]


def _following(bench: Bench, index: Path) -> float:
    """Milliseconds that a matrix takes to follow a request's worth of vectors; median of 15, on a copy."""
    from memline.shared.index import driver, identities
    from memline.shared.index.matrix import VectorMatrix

    copy = bench.folder / "followed.sqlite"
    shutil.copyfile(index, copy)
    took = []
    with closing(driver.open_writer(copy)) as writer, closing(driver.open_reader(copy)) as reader:
        active = identities.active(reader)
        assert active is not None
        matrix = VectorMatrix(active.id, active.vector_dims)
        matrix.refresh(reader)
        for _ in range(15):
            writer.execute("UPDATE vectors SET active = 1 - active WHERE id % 781 = 1")
            took.append(timed_ms(1, lambda: matrix.refresh(reader)))
    return statistics.median(took)
