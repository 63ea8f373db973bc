"""Jobs as rows: their files and texts, pause, resume, cancel, and which goes first."""

import pytest

from memline.shared.index.vectors import Backlog
from memline.shared.scheduling import jobs
from memline.shared.scheduling.jobs import Left
from tests.support.index_rows import (
    MODEL_A,
    answer,
    backlog,
    fail,
    file_row,
    lease_all,
    make_job,
    retarget,
)


@pytest.fixture
def desk(writer):
    retarget(writer, MODEL_A)
    return writer


def texts(requests):
    return [text.text for request in requests for text in request.texts]


def again(writer, job):
    """The row of a job as it is now."""
    row = jobs.by_token(writer.connection, job.token)
    assert row is not None
    return row


def left(writer, job):
    return jobs.left(writer.connection)[job.id]


def change(writer, verb, job):
    with writer.transaction() as (connection, now):
        if verb == "cancel":
            return jobs.cancel(connection, job, now)
        return jobs.change(connection, job, jobs.PAUSED if verb == "pause" else jobs.RUNNING)


def test_a_job_counts_its_files_and_texts_and_is_done_when_nothing_is_left(desk):
    job = make_job(desk, "a.md", "b.md")
    desk.store_file(file_row("a.md", "apples", "pears"), job=job.token)
    assert (left(desk, job).files, left(desk, job).texts) == (1, 2)

    answer(desk, lease_all(desk))
    assert again(desk, job).state == "running", "a file is left"
    desk.store_file(file_row("b.md", "plums"), job=job.token)
    answer(desk, lease_all(desk))

    done = again(desk, job)
    assert (done.state, done.files, done.texts_done) == ("done", 2, 3)
    assert left(desk, job) == Left()
    assert jobs.open_jobs(desk.connection) == []


def test_the_older_job_goes_first_and_live_edits_before_both(desk):
    older, newer = make_job(desk, "old.md"), make_job(desk, "new.md")
    desk.store_file(file_row("new.md", "of the newer job"), job=newer.token)
    desk.store_file(file_row("old.md", "of the older job"), job=older.token)
    desk.store_file(file_row("live.md", "edited now"))

    assert texts(lease_all(desk)) == ["edited now", "of the older job", "of the newer job"]


def test_texts_of_a_paused_job_wait_and_live_edits_do_not(desk):
    job = make_job(desk, "a.md", "b.md")
    desk.store_file(file_row("a.md", "apples"), job=job.token)

    assert change(desk, "pause", job)

    desk.store_file(file_row("b.md", "pears"), job=job.token)
    desk.store_file(file_row("live.md", "edited now"))
    assert texts(lease_all(desk)) == ["edited now"]
    assert backlog(desk) == Backlog(leased=1, paused=2)
    assert again(desk, job).state == "paused"
    assert jobs.next_to_read(desk.connection) is None


def test_a_live_edit_takes_its_text_out_of_a_paused_job(desk):
    job = make_job(desk, "a.md", "b.md")
    desk.store_file(file_row("a.md", "apples", "pears"), job=job.token)
    change(desk, "pause", job)

    desk.store_file(file_row("live.md", "pears"))

    assert texts(lease_all(desk)) == ["pears"]
    assert left(desk, job).texts == 1


def test_what_a_cancelled_job_leaves_is_known_as_missing_until_another_takes_it_up(desk):
    job = make_job(desk, "a.md", "b.md")
    desk.store_file(file_row("a.md", "apples"), job=job.token)

    assert change(desk, "cancel", job) == (1, 1)

    assert (again(desk, job).state, left(desk, job).files) == ("cancelled", 0)
    desk.store_file(file_row("b.md", "pears"), job=job.token)
    assert lease_all(desk) == []
    assert backlog(desk) == Backlog(cancelled=2)
    retarget(desk, MODEL_A)
    desk.sweep()
    assert lease_all(desk) == []
    with desk.transaction() as (connection, _):
        jobs.take_up(connection)
    answer(desk, lease_all(desk))
    assert (again(desk, job).state, again(desk, job).texts_done) == ("done", 2)


@pytest.mark.parametrize("ending", ["answer", "fail"])
def test_requests_in_flight_of_a_cancelled_job_are_stored_and_not_sent_again(desk, clock, ending):
    job = make_job(desk, "a.md", "b.md")
    desk.store_file(file_row("a.md", "apples", "pears"), job=job.token)
    (request,) = lease_all(desk)

    assert change(desk, "cancel", job) == (1, 0)
    if ending == "answer":
        answer(desk, [request])
    else:
        fail(desk, request, "broken")
    clock.advance(3_600)
    desk.sweep()

    assert lease_all(desk) == []
    assert backlog(desk) == (Backlog(ready=2) if ending == "answer" else Backlog(cancelled=2))


@pytest.mark.parametrize(
    ("before", "verb"),
    [("", "resume"), ("pause", "pause"), ("cancel", "pause"), ("cancel", "resume"), ("cancel", "cancel")],
)
def test_what_the_state_of_a_job_does_not_allow_changes_nothing(desk, before, verb):
    job = make_job(desk, "a.md")
    if before:
        change(desk, before, job)
    row = again(desk, job)

    assert not change(desk, verb, job)

    assert again(desk, job) == row


def test_what_is_asked_after_each_request_is_answered_by_an_index(desk):
    job = make_job(desk, "a.md")
    desk.store_file(file_row("a.md", "apples"), job=job.token)
    statements = []
    desk.connection.set_trace_callback(statements.append)
    lease_all(desk)
    jobs.finish_settled(desk.connection, 1.0)
    desk.retry_in_s()
    desk.connection.set_trace_callback(None)

    plans = [
        row[3]
        for statement in statements
        if statement.lstrip().startswith(("SELECT", "WITH", "UPDATE", "DELETE"))
        for row in desk.connection.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]
    assert any("vectors_state (identity_id=? AND active=? AND state=? AND job=?" in plan for plan in plans)
    assert [plan for plan in plans if plan.startswith("SCAN vectors")] == []
