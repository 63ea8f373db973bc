"""A backfill waits behind live edits; cancelled, it sends nothing more and is still known to be missing."""

from __future__ import annotations

import pytest

from shared.clock import ManualClock
from shared.index import backfill, dispatch, identity, vectors
from shared.index.backfill import BACKFILL, SET_ASIDE
from shared.index.dispatch import Request
from shared.index.vectors import Backlog
from shared.index.writer import IndexWriter
from tests.support.index_rows import MODEL_A, MODEL_B, answer, fail, file_row, lease_all


@pytest.fixture
def reindexed(writer: IndexWriter) -> IndexWriter:
    """An index with five texts of a backfill."""
    writer.retarget(MODEL_A)
    writer.store_file(file_row("old.md", *(f"text {n}" for n in range(5))), backfill=True)
    return writer


def backlog(writer: IndexWriter) -> Backlog:
    return vectors.backlog(writer.connection, target_id(writer))


def target_id(writer: IndexWriter) -> int:
    target = identity.target(writer.connection)
    assert target is not None
    return target.id


def texts(requests: list[Request]) -> list[str]:
    return [text.text for request in requests for text in request.texts]


def test_what_is_cancelled_is_not_sent_but_is_still_missing(reindexed: IndexWriter) -> None:
    reindexed.store_file(file_row("new.md", "edited now"))

    assert reindexed.cancel_backfill() == 5

    assert texts(lease_all(reindexed)) == ["edited now"]
    assert backlog(reindexed) == Backlog(leased=1, cancelled=5)
    assert (backlog(reindexed).coming, backlog(reindexed).pending) == (1, 6)


def test_cancelling_twice_or_with_nothing_to_cancel_does_nothing(reindexed: IndexWriter) -> None:
    reindexed.cancel_backfill()

    assert reindexed.cancel_backfill() == 0
    assert backlog(reindexed) == Backlog(cancelled=5)


def test_what_was_cancelled_is_taken_up_again_when_somebody_asks(reindexed: IndexWriter) -> None:
    reindexed.cancel_backfill()

    assert reindexed.take_up_backfill() == 5

    assert backfill.count(reindexed.connection, target_id(reindexed), BACKFILL) == 5
    assert len(texts(lease_all(reindexed))) == 5
    assert reindexed.take_up_backfill() == 0


def test_a_restart_of_the_writer_does_not_take_up_what_was_cancelled(reindexed: IndexWriter) -> None:
    reindexed.cancel_backfill()

    reindexed.recover()
    reindexed.retarget(MODEL_A)
    reindexed.sweep()

    assert backlog(reindexed) == Backlog(cancelled=5)


def test_requests_that_are_out_are_kept_when_they_come(reindexed: IndexWriter) -> None:
    requests = lease_all(reindexed)

    assert reindexed.cancel_backfill() == 0
    answer(reindexed, requests)

    assert backlog(reindexed) == Backlog(ready=5)


def test_a_request_that_fails_after_the_cancellation_is_not_sent_again(
    reindexed: IndexWriter, clock: ManualClock
) -> None:
    (request,) = lease_all(reindexed)
    reindexed.cancel_backfill()

    fail(reindexed, request, "later")
    clock.advance(3_600)
    reindexed.sweep()

    assert lease_all(reindexed) == []
    assert backlog(reindexed) == Backlog(cancelled=5)


def test_files_that_arrive_late_from_a_cancelled_reindex_are_searchable_and_not_embedded(
    reindexed: IndexWriter, clock: ManualClock
) -> None:
    before, _ = clock.now_ns(), clock.advance(1)
    reindexed.cancel_backfill()
    clock.advance(1)

    reindexed.store_file(file_row("late.md", "late"), backfill=True, asked_ns=before)
    reindexed.store_file(file_row("again.md", "again"), backfill=True, asked_ns=clock.now_ns())

    assert texts(lease_all(reindexed)) == ["again"]
    assert backfill.count(reindexed.connection, target_id(reindexed), SET_ASIDE) == 6


def test_a_live_edit_takes_its_text_out_of_the_cancelled_backfill(reindexed: IndexWriter) -> None:
    reindexed.cancel_backfill()

    reindexed.store_file(file_row("new.md", "text 3"))

    assert texts(lease_all(reindexed)) == ["text 3"]


def test_a_new_model_whose_backfill_is_cancelled_is_not_switched_to(reindexed: IndexWriter) -> None:
    answer(reindexed, lease_all(reindexed))
    reindexed.retarget(MODEL_B)

    reindexed.cancel_backfill()
    reindexed.sweep()

    active = identity.active(reindexed.connection)
    assert active is not None and active.identity == MODEL_A


def test_what_is_cancelled_does_not_hide_when_the_next_text_is_due(
    reindexed: IndexWriter, clock: ManualClock
) -> None:
    reindexed.store_file(file_row("new.md", "edited now"))
    reindexed.cancel_backfill()
    (request,) = lease_all(reindexed)

    fail(reindexed, request, "broken")

    assert reindexed.next_try_s() > 0


def test_requests_out_are_the_leases(reindexed: IndexWriter) -> None:
    assert dispatch.requests_out(reindexed.connection) == 0

    requests = lease_all(reindexed)

    assert dispatch.requests_out(reindexed.connection) == len(requests) == 1
