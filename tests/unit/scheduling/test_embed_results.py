"""Answers that are not plain successes: workers of another model, dimensions that contradict each other."""

import pytest

from memline.shared.index import identities, vectors
from memline.shared.index.rows import LearnedCaps, VectorRow
from memline.shared.index.vectors import Backlog
from memline.shared.providers import RequestCaps
from memline.shared.scheduling import health, leases
from memline.shared.scheduling.embed_results import Failure
from tests.support.index_rows import MODEL_A, backlog, fail, file_row, lease_all, vector, vector_of

ONE = RequestCaps(max_rows=1, max_tokens=1000)
THREE, FOUR = vector(1, 0, 0), vector(0, 1, 0, 0)


@pytest.fixture
def five_texts(writer):
    """An index with five texts that wait for their vectors."""
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(5))))
    return writer


def send(writer, credits=1):
    return writer.lease(ONE, credits=credits, only_full=False)


def bring(writer, request, made):
    rows = [VectorRow(hash=text.hash, vector=made) for text in request.texts]
    writer.store_vectors(request.identity, request.lease, rows, LearnedCaps())


def test_a_definite_no_stops_the_provider_at_once_with_a_hint(five_texts):
    (request,) = send(five_texts)

    fail(five_texts, request, "stop")

    state = health.read(five_texts.accounts, "openai")
    assert (state.paused, state.reason, state.action) == (True, "it was stop", "do something")
    assert send(five_texts) == []
    assert backlog(five_texts) == Backlog(wanted=5)


def test_a_refused_text_fails_alone_with_its_reason(wanting, clock):
    (request,) = lease_all(wanting)
    refused = Failure(kind="refused", error="not this one")
    wanting.record_failure(request.identity, request.lease, [request.texts[0].hash], refused, LearnedCaps())
    wanting.store_vectors(
        request.identity,
        request.lease,
        [VectorRow(hash=request.texts[1].hash, vector=vector_of("pears"))],
        LearnedCaps(),
    )

    assert backlog(wanting) == Backlog(ready=1, failed=1)
    target = identities.target(wanting.connection)
    assert target is not None
    assert [row[1:] for row in vectors.failures(wanting.connection, target.id, 10)] == [
        ("not this one", "a.md")
    ]
    assert leases.tokens(wanting.connection) == []


def test_broken_answers_are_tried_again_and_then_counted_as_failed(wanting, clock):
    for _ in range(vectors.TEXT_ATTEMPTS):
        assert backlog(wanting).failed == 0
        (request,) = lease_all(wanting)
        fail(wanting, request, "broken")
        clock.advance(60)

    assert backlog(wanting) == Backlog(failed=2)


def test_vectors_of_other_dimensions_are_never_stored(wanting):
    (request,) = lease_all(wanting)
    rows = [
        VectorRow(hash=request.texts[0].hash, vector=vector(1, 0, 0, 0)),
        VectorRow(hash=request.texts[1].hash, vector=vector(1, 0)),
    ]

    wanting.store_vectors(request.identity, request.lease, rows, LearnedCaps())

    assert backlog(wanting) == Backlog(ready=1, wanted=1)


def test_caps_learned_from_an_answer_bound_the_next_requests(wanting):
    wanting.store_file(file_row("b.md", "one", "two", "three"))
    first = wanting.lease(RequestCaps(max_rows=1, max_tokens=1000), credits=1, only_full=False)
    rows = [VectorRow(hash=text.hash, vector=vector_of(text.text)) for text in first[0].texts]
    wanting.store_vectors(MODEL_A, first[0].lease, rows, LearnedCaps(max_rows=3))

    assert [len(request.texts) for request in lease_all(wanting)] == [3, 1]
