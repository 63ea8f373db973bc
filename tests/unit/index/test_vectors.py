"""Wanted, ready and cached vectors; a backfill waits behind live edits and can be cancelled."""

import time

from memline.shared.index import meta, vectors
from tests.support.index_rows import (
    MODEL_A,
    answer,
    file_row,
    forget_vectors,
    lease_all,
    retarget,
    target_id,
)


def test_a_vector_whose_chunk_was_removed_meanwhile_is_kept_as_cache(wanting):
    requests = lease_all(wanting)
    wanting.store_file(file_row("a.md", at=2, outcome="removed"))

    answer(wanting, requests)

    assert vectors.count_cached(wanting.connection) == 2
    wanting.store_file(file_row("a.md", "apples", at=3))
    assert meta.get(wanting.connection, meta.CACHED_TOTAL) == 1


def test_a_row_id_is_never_given_to_another_vector(writer):
    retarget(writer, MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    ((before, _),) = vectors.next_texts(writer.connection, target_id(writer), 9, time.time())

    forget_vectors(writer)

    ((after, _),) = vectors.next_texts(writer.connection, target_id(writer), 9, time.time())
    assert after > before
