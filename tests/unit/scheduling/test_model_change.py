"""The vectors of a new model are built beside the old ones, and search switches when they are complete."""

from contextlib import closing

import pytest
from msgspec.structs import replace

from memline.shared.embedders.choice import Choice
from memline.shared.index import identities, vectors
from memline.shared.index.rows import VectorRow
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import jobs, model_change
from memline.shared.scheduling.health import Failure
from memline.shared.scheduling.leases import Answer
from tests.support.index_rows import (
    CAPS,
    MODEL_A,
    MODEL_B,
    answer,
    fail,
    file_row,
    lease_all,
    retarget,
    use,
    vector_of,
)


def active_model(writer):
    active = identities.active(writer.connection)
    assert active is not None
    return active.identity.model


def test_going_back_ends_the_job_of_the_change_and_no_other(wanting):
    answer(wanting, lease_all(wanting))
    connection = wanting.connection
    other = jobs.create(connection, jobs.REINDEX, now_ns=1, files=[("a.md", 1)])
    for state in (jobs.RUNNING, jobs.PAUSED):
        retarget(wanting, MODEL_B)
        (change,) = [each for each in jobs.open_jobs(connection) if each.kind == jobs.MODEL]
        assert change.state == jobs.RUNNING
        if state == jobs.PAUSED:
            jobs.change(connection, change, jobs.PAUSED)

        retarget(wanting, MODEL_A)
        wanting.sweep()

        ended = jobs.by_token(connection, change.token)
        assert ended is not None and ended.state == jobs.CANCELLED
        assert [each.id for each in jobs.open_jobs(connection)] == [other.id]


@pytest.mark.parametrize("sweeps", [True, False])
def test_a_change_that_is_taken_up_again_goes_on_where_it_was(writer, sweeps):
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(20))))
    retarget(writer, MODEL_A)
    (first,) = writer.lease(replace(CAPS, max_rows=5), credits=1, only_full=False)
    answer(writer, [first])
    for model in (MODEL_B, MODEL_A, MODEL_B, MODEL_A):
        if sweeps:
            writer.sweep()
        retarget(writer, model)
    writer.sweep()

    texts = {text.text for request in lease_all(writer) for text in request.texts}
    held = {text.text for text in first.texts}
    assert texts | held >= {f"text {n}" for n in range(20)}


def test_without_a_provider_nothing_is_wanted_and_nothing_lost(wanting):
    answer(wanting, lease_all(wanting))

    retarget(wanting, None)
    wanting.store_file(file_row("b.md", "plums"))

    assert active_model(wanting) == "a"
    assert lease_all(wanting) == []
    retarget(wanting, MODEL_A)
    assert [text.text for request in lease_all(wanting) for text in request.texts] == ["plums"]


def test_a_model_that_stopped_is_tried_at_once_with_other_dimensions(wanting):
    fail(wanting, lease_all(wanting)[0], "stop")

    retarget(wanting, MODEL_A)
    assert lease_all(wanting) == []
    retarget(wanting, replace(MODEL_A, dims=2))

    assert len(lease_all(wanting)) == 1


def test_search_stays_with_the_old_model_when_many_texts_fail_under_the_new(writer):
    retarget(writer, MODEL_A)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(10))))
    answer(writer, lease_all(writer))

    retarget(writer, MODEL_B)
    (request,) = lease_all(writer)
    first = request.texts[0]
    stored = VectorRow(hash=first.hash, vector=vector_of(first.text))
    refused = Failure(hashes=tuple(text.hash for text in request.texts[1:]), kind="refused", error="no")
    writer.store_vectors(
        Answer(identity=MODEL_B, lease=request.lease, vectors=(stored,), failures=(refused,))
    )

    assert active_model(writer) == "a"


def test_an_identity_that_is_used_again_meanwhile_is_not_turned_into_cache(writer, path):
    retarget(writer, MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    answer(writer, lease_all(writer))
    retarget(writer, MODEL_B)
    answer(writer, lease_all(writer))
    with closing(IndexWriter(path)) as other:
        retarget(other, MODEL_A)

    model_change.cache_retired(writer.connection, 1.0)

    target = identities.target(writer.connection)
    assert target is not None and target.identity == MODEL_A
    assert vectors.backlog(writer.connection, target.id).ready == 1


def test_a_process_without_a_provider_changes_nothing_for_the_others(writer):
    retarget(writer, MODEL_A)

    use(writer, Choice(requested="auto", provider="none", reason="no key"))
    writer.store_file(file_row("a.md", "apples"))

    assert len(lease_all(writer)) == 1

    use(writer, Choice(requested="none", provider="none"))
    assert identities.target(writer.connection) is None
