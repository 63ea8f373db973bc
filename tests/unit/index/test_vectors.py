"""Wanted, ready and cached vectors; a backfill waits behind live edits and can be cancelled."""

import re
from pathlib import Path

import pytest

import memline
from memline.shared.clock import ManualClock
from memline.shared.index import identities, jobs, meta, vectors
from memline.shared.index.vectors import BACKFILL, CANCELLED, Backlog
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling.leases import Request
from tests.support.index_rows import (
    MODEL_A,
    MODEL_B,
    answer,
    backlog,
    cancel_backfill,
    fail,
    file_row,
    forget_vectors,
    lease_all,
    make_job,
    nearest,
    target_id,
)


def test_no_statement_looks_for_a_vector_by_its_text_alone() -> None:
    # Without the identity all vectors are read: 80 ms of CPU for each text among 100,000 of 384 dimensions.
    alone = re.compile(r"(?:UPDATE|DELETE FROM) vectors\b[^;)]{0,200}?WHERE text_hash\b")

    folders = [Path(memline.__path__[0]) / name for name in ("shared", "producers", "workers")]
    sources = [path for folder in folders for path in folder.rglob("*.py")]

    assert len(sources) > 200
    assert [path.name for path in sources if alone.search(path.read_text())] == []


def test_the_same_text_in_ten_files_is_leased_once(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    for number in range(10):
        writer.store_file(file_row(f"{number}.md", "the same text"))

    assert [len(request.texts) for request in lease_all(writer)] == [1]


def test_a_ready_vector_is_never_requested_again(wanting: IndexWriter) -> None:
    answer(wanting, lease_all(wanting))
    wanting.store_file(file_row("a.md", at=2, outcome="removed"))

    wanting.store_file(file_row("b.md", "pears", "plums", at=3))

    assert meta.get(wanting.connection, meta.CACHED_TOTAL) == 1
    assert [text.text for request in lease_all(wanting) for text in request.texts] == ["plums"]
    assert nearest(wanting, "pears") == ["pears"]


def test_a_vector_whose_chunk_was_removed_meanwhile_is_kept_as_cache(wanting: IndexWriter) -> None:
    requests = lease_all(wanting)
    wanting.store_file(file_row("a.md", at=2, outcome="removed"))

    answer(wanting, requests)

    assert vectors.count_cached(wanting.connection) == 2
    wanting.store_file(file_row("a.md", "apples", at=3))
    assert meta.get(wanting.connection, meta.CACHED_TOTAL) == 1


def test_the_cache_keeps_only_the_most_recently_used(path: Path, clock: ManualClock) -> None:
    writer = IndexWriter(path, cache_entries=1, clock=clock)
    writer.retarget(MODEL_A)
    for number, text in enumerate(("one", "two", "three")):
        writer.store_file(file_row(f"{text}.md", text, at=1))
        answer(writer, lease_all(writer))
        clock.advance(1)
        writer.store_file(file_row(f"{text}.md", at=2 + number, outcome="removed"))

    writer.sweep()

    assert vectors.count_cached(writer.connection) == 1
    writer.store_file(file_row("three.md", "three", at=9))
    assert meta.get(writer.connection, meta.CACHED_TOTAL) == 1
    writer.close()


def test_a_row_id_is_never_given_to_another_vector(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    answer(writer, lease_all(writer))
    before = writer.connection.execute("SELECT id FROM vectors").fetchall()

    forget_vectors(writer)
    answer(writer, lease_all(writer))

    assert set(writer.connection.execute("SELECT id FROM vectors").fetchall()).isdisjoint(before)


def test_a_live_edit_is_sent_before_the_backfill(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("old.md", "backfill"), job="0")
    writer.store_file(file_row("new.md", "edited now"))

    texts = [text.text for request in lease_all(writer) for text in request.texts]

    assert texts == ["edited now", "backfill"]


@pytest.fixture
def reindexed(writer: IndexWriter) -> IndexWriter:
    """An index with five texts of a backfill."""
    writer.retarget(MODEL_A)
    writer.store_file(file_row("old.md", *(f"text {n}" for n in range(5))), job="0")
    return writer


def texts(requests: list[Request]) -> list[str]:
    return [text.text for request in requests for text in request.texts]


def test_a_cancelled_text_is_not_sent_but_is_still_missing(reindexed: IndexWriter) -> None:
    reindexed.store_file(file_row("new.md", "edited now"))

    assert cancel_backfill(reindexed) == 5

    assert texts(lease_all(reindexed)) == ["edited now"]
    assert backlog(reindexed) == Backlog(leased=1, cancelled=5)
    assert (backlog(reindexed).in_progress, backlog(reindexed).pending) == (1, 6)
    target = identities.target(reindexed.connection)
    assert target is not None
    assert vectors.count_pending(reindexed.connection, target.id) == 6


def test_cancelling_twice_or_with_nothing_to_cancel_does_nothing(reindexed: IndexWriter) -> None:
    cancel_backfill(reindexed)

    assert cancel_backfill(reindexed) == 0
    assert backlog(reindexed) == Backlog(cancelled=5)


def test_a_cancelled_backfill_is_resumed_when_an_operator_asks(reindexed: IndexWriter) -> None:
    cancel_backfill(reindexed)

    job = make_job(reindexed)
    assert jobs.take_up_cancelled(reindexed.connection, job) == 5

    assert vectors.count_by_priority(reindexed.connection, target_id(reindexed), BACKFILL) == 5
    assert len(texts(lease_all(reindexed))) == 5
    assert jobs.take_up_cancelled(reindexed.connection, job) == 0


def test_a_restart_of_the_writer_does_not_resume_a_cancelled_backfill(reindexed: IndexWriter) -> None:
    cancel_backfill(reindexed)

    reindexed.recover()
    reindexed.retarget(MODEL_A)
    reindexed.sweep()

    assert backlog(reindexed) == Backlog(cancelled=5)


def test_requests_in_flight_are_stored_after_the_cancellation(reindexed: IndexWriter) -> None:
    requests = lease_all(reindexed)

    assert cancel_backfill(reindexed) == 0
    answer(reindexed, requests)

    assert backlog(reindexed) == Backlog(ready=5)


def test_a_request_that_fails_after_the_cancellation_is_not_sent_again(
    reindexed: IndexWriter, clock: ManualClock
) -> None:
    (request,) = lease_all(reindexed)
    cancel_backfill(reindexed)

    fail(reindexed, request, "later")
    clock.advance(3_600)
    reindexed.sweep()

    assert lease_all(reindexed) == []
    assert backlog(reindexed) == Backlog(cancelled=5)


def test_files_that_arrive_late_from_a_cancelled_reindex_are_searchable_and_not_embedded(
    reindexed: IndexWriter,
) -> None:
    before = make_job(reindexed, "late.md")
    cancel_backfill(reindexed)
    after = make_job(reindexed, "again.md")

    reindexed.store_file(file_row("late.md", "late"), job=before.token)
    reindexed.store_file(file_row("again.md", "again"), job=after.token)

    assert texts(lease_all(reindexed)) == ["again"]
    assert vectors.count_by_priority(reindexed.connection, target_id(reindexed), CANCELLED) == 6


def test_a_live_edit_takes_its_text_out_of_the_cancelled_backfill(reindexed: IndexWriter) -> None:
    cancel_backfill(reindexed)

    reindexed.store_file(file_row("new.md", "text 3"))

    assert texts(lease_all(reindexed)) == ["text 3"]


def test_a_new_model_whose_backfill_is_cancelled_is_not_switched_to(reindexed: IndexWriter) -> None:
    answer(reindexed, lease_all(reindexed))
    reindexed.retarget(MODEL_B)

    cancel_backfill(reindexed)
    reindexed.sweep()

    active = identities.active(reindexed.connection)
    assert active is not None and active.identity == MODEL_A


def test_a_cancelled_text_does_not_hide_when_the_next_one_is_due(
    reindexed: IndexWriter, clock: ManualClock
) -> None:
    reindexed.store_file(file_row("new.md", "edited now"))
    cancel_backfill(reindexed)
    (request,) = lease_all(reindexed)

    fail(reindexed, request, "broken")

    assert reindexed.retry_in_s() > 0
