"""What token vectors cost a search and the disk; made up, near to few directions as those of a model are."""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from typing import TYPE_CHECKING
from unittest.mock import patch

from benchmarks.bench import DIMS, Bench, unit_vectors
from benchmarks.corpus import questions
from benchmarks.figures import Figure, at_most

if TYPE_CHECKING:
    from collections.abc import Callable

    from memline.shared.config.schema import AgentSettings

_QUESTIONS = 40

#: Content tokens of a chunk, as of a page of prose in English, and of a question.
_TOKENS, _ASKED = 150, 8

_ROWS = 200


def tokens(bench: Bench) -> list[Figure]:
    """A warm hybrid search with token vectors, 10,000 x 384, against the same without them."""
    from memline.shared.embedders.protocol import LateVector
    from memline.shared.findings.answerer import Answerer
    from memline.shared.index import driver, identities
    from memline.shared.index.driver import scalar
    from memline.shared.scheduling.questions import QueryEmbedder
    from memline.shared.search.request import SearchRequest

    settings = bench.vector_place(2_000, 5).settings()
    pack = _packer()
    _fill(settings, pack)
    with closing(driver.open_reader(settings.index_path)) as reader:
        active = identities.active(reader)
        assert active is not None
        count, size = (
            scalar(reader, "SELECT count(*) FROM chunks"),
            "SELECT avg(length(tokens)) FROM token_vectors",
        )
        bytes_each = scalar(reader, size)
    asked = questions(2 * _QUESTIONS)
    vectors = dict(zip(asked, unit_vectors(len(asked), seed=9), strict=True))
    bare: list[float] = []
    late: list[float] = []
    with closing(Answerer(settings, long_lived=True)) as memory:
        # Questions that were not asked before, in turns; the first of each are not counted.
        for number, question in enumerate(asked):
            with_tokens = bool(number % 2)
            vector = LateVector(vectors[question], pack(_ASKED) if with_tokens else b"")
            with patch.object(
                QueryEmbedder, "embed", lambda self, text, active, state, vector=vector: vector
            ):
                began = time.process_time()
                answer = memory.ask(SearchRequest(query=question))
                took = 1000 * (time.process_time() - began)
            if answer.mode != "hybrid" or not answer.hits:
                raise RuntimeError(f"not a hybrid search: {answer.to_json()}")
            if number >= 10:
                (late if with_tokens else bare).append(took)
    one, other = statistics.median(late), statistics.median(bare)
    return [
        at_most(
            f"what token vectors add to a warm hybrid search, {count:,} x {DIMS}",
            one - other,
            30,
            "ms CPU",
            detail=f"{one:.1f} and {other:.1f} ms, medians of {len(late)} questions each",
        ),
        at_most(
            "token vectors of a chunk",
            bytes_each / 1000,
            6,
            "kB",
            detail=f"{_TOKENS} tokens of words that say something",
        ),
    ]


def _packer() -> Callable[[int], bytes]:
    """Return what makes the packed tokens of a text of so many."""
    import numpy as np

    from memline.shared.embedders import token_vectors

    source = np.random.default_rng(1)
    directions = source.standard_normal((60, DIMS)) * np.geomspace(3, 0.3, 60)[:, None]

    def pack(count: int) -> bytes:
        rows = source.standard_normal((count, 60)) @ directions + source.standard_normal((count, DIMS)) / 10
        return token_vectors.pack(sorted(source.integers(0, 1_500, count).tolist()), rows.astype(np.float32))

    return pack


def _fill(settings: AgentSettings, pack: Callable[[int], bytes]) -> None:
    """Give every vector those of its tokens, as a local model does."""
    from memline.shared.index import identities, token_rows
    from memline.shared.index_writer import IndexWriter

    with closing(IndexWriter.of(settings)) as writer, writer.session() as (connection, _):
        active = identities.active(connection)
        assert active is not None
        missing = [
            row[0]
            for row in connection.execute(
                "SELECT id FROM vectors WHERE id NOT IN (SELECT vector_id FROM token_vectors) ORDER BY id"
            )
        ]
        for first in range(0, len(missing), _ROWS):
            rows = [(row_id, pack(_TOKENS)) for row_id in missing[first : first + _ROWS]]
            with writer.transaction():
                token_rows.store(connection, active.id, rows)
            token_rows.reduce(connection, active.id)
