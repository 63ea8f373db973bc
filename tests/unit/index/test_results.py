"""What comes back and is no plain success: workers that do not fit, dimensions in dispute, old caps."""

from __future__ import annotations

import pytest

from shared.clock import ManualClock
from shared.embedders.protocol import RequestCaps
from shared.index import first_answer, health, identity, meta
from shared.index.dispatch import Request
from shared.index.results import MAX_MISFITS, MISFIT
from shared.index.rows import LearnedCaps, VectorRow
from shared.index.vectors import Backlog, backlog
from shared.index.writer import IndexWriter
from tests.support.index_rows import MODEL_A, answer, fail, file_row, vector

ONE = RequestCaps(max_rows=1, max_tokens=1000, max_text_tokens=100)
THREE, FOUR = vector(1, 0, 0), vector(0, 1, 0, 0)


@pytest.fixture
def wanting(writer: IndexWriter) -> IndexWriter:
    """An index with five texts that wait for their vectors."""
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(5))))
    return writer


def send(writer: IndexWriter, credits: int = 1) -> list[Request]:
    return writer.lease(ONE, credits=credits, only_full=False)


def states(writer: IndexWriter) -> Backlog:
    target = identity.target(writer.connection)
    assert target is not None
    return backlog(writer.connection, target.id)


def bring(writer: IndexWriter, request: Request, made: bytes) -> None:
    rows = [VectorRow(hash=text.hash, vector=made) for text in request.texts]
    writer.store_vectors(request.identity, request.lease, rows, LearnedCaps())


def test_a_worker_that_does_not_fit_gives_its_texts_back_and_holds_up_nobody(wanting: IndexWriter) -> None:
    one, two = send(wanting, credits=2)

    fail(wanting, one, MISFIT)

    assert states(wanting) == Backlog(wanted=4, leased=1)
    assert len(send(wanting, credits=5)) == 4
    assert not health.read(wanting.connection, "openai").paused
    assert wanting.meta(meta.MISFITS)["count"] == 1
    answer(wanting, [two])
    assert wanting.meta(meta.MISFITS) is None


def test_a_provider_that_no_worker_fits_counts_as_stopped(wanting: IndexWriter) -> None:
    for _ in range(MAX_MISFITS):
        (request,) = send(wanting)
        fail(wanting, request, MISFIT)

    state = health.read(wanting.connection, "openai")
    assert (state.paused, state.reason, state.action) == (True, "it was misfit", "do something")
    assert send(wanting) == []
    assert states(wanting) == Backlog(wanted=5)


def test_a_first_answer_of_wrong_dimensions_is_outvoted(wanting: IndexWriter, clock: ManualClock) -> None:
    wrong, right, third = send(wanting, credits=3)
    bring(wanting, wrong, THREE)
    bring(wanting, right, FOUR)
    clock.advance(100)
    after_two = states(wanting)

    bring(wanting, third, FOUR)
    while requests := send(wanting):
        bring(wanting, requests[0], FOUR)
        clock.advance(100)

    assert after_two == Backlog(wanted=4, leased=1)
    assert states(wanting) == Backlog(ready=5)
    target = identity.target(wanting.connection)
    assert target is not None and target.vector_dims == 4
    assert wanting.meta(meta.FIRST_ANSWER) is None


def test_dimensions_that_were_confirmed_are_not_doubted_again(
    wanting: IndexWriter, clock: ManualClock
) -> None:
    one, two, three = send(wanting, credits=3)
    bring(wanting, one, FOUR)
    bring(wanting, two, FOUR)

    bring(wanting, three, THREE)

    assert states(wanting) == Backlog(wanted=3, ready=2)


def test_a_server_that_never_agrees_with_itself_is_not_asked_for_ever(
    wanting: IndexWriter, clock: ManualClock
) -> None:
    wanting.store_file(file_row("b.md", *(f"more {n}" for n in range(100))))

    for number in range(60):
        for request in send(wanting):
            bring(wanting, request, THREE if number % 2 else FOUR)
        clock.advance(100)

    assert wanting.meta(meta.FIRST_ANSWER) is None
    assert states(wanting).ready > first_answer.MAX_DOUBTS


def test_a_cap_that_was_not_met_for_a_week_is_forgotten(wanting: IndexWriter, clock: ManualClock) -> None:
    (request,) = send(wanting)
    wanting.store_vectors(MODEL_A, request.lease, [], LearnedCaps(max_rows=2))

    clock.advance(health.CAPS_S - 1)
    wanting.sweep()
    before = health.read(wanting.connection, "openai").max_rows
    clock.advance(1)
    wanting.sweep()

    assert before == 2
    assert health.read(wanting.connection, "openai").max_rows == 0
    assert wanting.meta(meta.CAPS_LEARNED) is None
