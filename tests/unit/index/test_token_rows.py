"""Token vectors live and die with their vector, and lose their dimensions once the axes are known."""

import numpy as np
import pytest

from memline.shared.embedders import token_vectors
from memline.shared.index import identities, token_rows, vectors
from memline.shared.index.rows import VectorRow
from memline.shared.scheduling.leases import Answer
from tests.support.index_rows import MODEL_A, file_row, lease_all, stored_tokens, vector_of

DIMS = 96


def tokens_of(text, count=8):
    random = np.random.default_rng(len(text) + ord(text[-1]))
    return token_vectors.pack(range(count), random.normal(size=(count, DIMS)).astype(np.float32))


@pytest.fixture
def searched(wanting):
    """An index whose texts have vectors and those of their tokens."""
    store(wanting)
    return wanting


def store(writer):
    for request in lease_all(writer):
        rows = tuple(
            VectorRow(hash=each.hash, vector=vector_of(each.text), tokens=tokens_of(each.text))
            for each in request.texts
        )
        writer.store_vectors(Answer(identity=request.identity, lease=request.lease, vectors=rows))


def test_a_vector_takes_its_token_vectors_along_when_it_goes(searched):
    searched.store_file(file_row("a.md", at=2, outcome="removed"))
    assert stored_tokens(searched), "as long as the vector is cached, they are"

    with searched.session() as (connection, now):
        vectors.prune_cache(connection, 0, now)

    assert stored_tokens(searched) == []


def test_the_axes_are_fitted_to_the_first_tokens_and_those_that_come_then_are_reduced(wanting, monkeypatch):
    monkeypatch.setattr(token_rows, "FIT_TOKENS", 10)
    store(wanting)
    identity = identities.by_key(wanting.connection, MODEL_A.key)
    assert identity is not None
    fitted = token_rows.projection(wanting.connection, identity.id)

    wanting.store_file(file_row("c.md", "damsons", at=4))
    store(wanting)

    assert stored_tokens(wanting)[-1][1] == token_vectors.project(tokens_of("damsons"), fitted)
    assert token_rows.projection(wanting.connection, identity.id) == fitted
