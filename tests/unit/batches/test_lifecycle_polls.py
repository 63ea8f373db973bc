"""A job is polled until it ends: by itself, by time, by the operator, by a change of the model."""

import pytest

from memline.shared.batches import open_batches
from memline.shared.batches.job_rows import BatchResult
from memline.shared.errors import ProviderError, ProviderLater, ProviderStop
from memline.shared.index import jobs
from memline.shared.index.batches import Batch
from memline.shared.index.driver import transaction
from memline.shared.index.vectors import BACKFILL
from memline.shared.values import replace
from tests.support.batch_desk import TEXTS, Desk
from tests.support.index_rows import CAPS, MODEL_B, answer, forget_vectors, vector_of


def test_polls_become_rarer_up_to_a_minute(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)

    waits = []
    for _ in range(8):
        due = desk.batch(batch.token).due
        waits.append(due - desk.clock.now())
        desk.clock.advance(waits[-1])
        desk.step(batch.token)

    assert [round(wait, 1) for wait in waits] == [10, 10, 15, 22.5, 33.8, 50.6, 60, 60]


def test_a_poll_that_fails_says_nothing_of_the_batch(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.errors["get_job"] = [ProviderLater("500"), ProviderStop("bad key", hint="fix it", status=401)]

    desk.run(batch.token, steps=1)
    assert (desk.batch(batch.token).error, desk.batch(batch.token).action) == ("500", "")
    desk.run(batch.token, steps=1)
    assert (desk.batch(batch.token).error, desk.batch(batch.token).action) == ("bad key", "fix it")
    desk.api.finish()
    desk.run(batch.token)

    assert desk.states() == {"ready": TEXTS}


def unknown(times: int) -> list[ProviderError]:
    """The provider does not know the job, so many times."""
    return [ProviderStop("no such batch", hint="check the address", status=404) for _ in range(times)]


def test_a_job_that_its_provider_does_not_know_for_a_while_is_collected_when_it_does(
    desk: Desk, batch: Batch
) -> None:
    desk.step(batch.token)
    desk.api.errors["get_job"] = unknown(9)

    told = []
    for _ in range(9):
        after = desk.run(batch.token, steps=1)
        told.append((after.state, after.error, after.action))
    desk.api.finish()
    collected = desk.run(batch.token)

    hint = f"set back the key that made the job, or run: memline batch cancel {batch.token[:8]}"
    # At first it may be a server that lags: nobody need do anything.
    assert told == [("submitted", "no such batch", action) for action in [""] * 4 + [hint] * 5]
    assert (collected.state, collected.outcome, collected.action) == ("closed", "done", "")
    assert len(desk.api.jobs) == 1
    assert desk.states() == {"ready": TEXTS}


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_job_the_provider_does_not_know_any_more_is_lost_when_its_time_is_over(
    desk: Desk, batch: Batch, is_waiting: bool
) -> None:
    desk.settings = replace(desk.settings, wait=is_waiting)
    desk.step(batch.token)
    desk.run(batch.token, steps=9)
    known_at = desk.batch(batch.token).polled_at
    desk.api.errors["get_job"] = unknown(999)

    after = desk.run(batch.token, steps=99)

    # With a wait of two days for the job itself, from the moment in which the provider knew it.
    since = batch.created_at if is_waiting else known_at
    assert (after.state, after.outcome, after.error) == ("closed", "lost", "no such batch")
    assert 3_600 <= after.closed_at - since <= 3_700
    assert desk.batch_health.failures == 1
    assert desk.states() == {"wanted": TEXTS}
    assert desk.plan().made == 0
    assert len(desk.writer.lease(CAPS, credits=8, only_full=False, held=(0, 1))) == 1


def test_a_job_that_is_unknown_when_its_time_is_over_already_is_looked_at_again(
    desk: Desk, batch: Batch
) -> None:
    desk.step(batch.token)
    desk.clock.advance(desk.timeout_s)
    desk.api.errors["get_job"] = unknown(2)
    desk.api.finish()

    after = desk.run(batch.token)

    assert (after.state, after.outcome, after.stored) == ("closed", "done", TEXTS)


def test_the_operator_ends_the_wait_for_a_job_that_its_provider_does_not_know(
    desk: Desk, batch: Batch
) -> None:
    desk.step(batch.token)
    desk.api.errors["get_job"] = unknown(999)
    desk.api.errors["cancel"] = unknown(999)
    desk.run(batch.token, steps=2)

    assert desk.request_cancel(batch.token)
    after = desk.run(batch.token)

    assert (after.state, after.outcome) == ("closed", "lost")
    assert after.closed_at - batch.created_at < 120
    assert desk.states() == {"wanted": TEXTS}


def test_what_takes_too_long_is_ended_and_what_was_finished_is_kept(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    rows = desk.api.job.rows[:5]
    desk.api.job.results = [BatchResult(key=row.key, vector=vector_of(row.text)) for row in rows]
    desk.clock.advance(desk.timeout_s)

    after = desk.run(batch.token, steps=4)

    assert desk.api.calls["cancel"] == 1
    assert (after.state, after.outcome, after.stored) == ("closed", "timed out", 5)
    assert desk.batch_health.failures == 1
    assert desk.states() == {"ready": 5, "wanted": TEXTS - 5}
    assert desk.plan().made == 0, "the rest goes out in requests"


@pytest.mark.parametrize("call", ["get_job", "cancel"])
def test_a_provider_that_is_away_when_a_job_has_to_end_loses_nothing_of_what_was_finished(
    desk: Desk, batch: Batch, call: str
) -> None:
    desk.step(batch.token)
    rows = desk.api.job.rows[:5]
    desk.api.job.results = [BatchResult(key=row.key, vector=vector_of(row.text)) for row in rows]
    desk.clock.advance(desk.timeout_s)
    desk.api.errors[call] = [ProviderLater("503", status=503) for _ in range(3)]

    after = desk.run(batch.token)

    assert (after.state, after.outcome, after.stored) == ("closed", "timed out", 5)
    assert desk.states() == {"ready": 5, "wanted": TEXTS - 5}


def test_a_job_that_cannot_be_ended_is_given_up_after_a_while(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.errors["cancel"] = [ProviderLater("500") for _ in range(99)]
    desk.clock.advance(desk.timeout_s)

    after = desk.run(batch.token, steps=40)

    assert after.outcome == "timed out"
    assert desk.states() == {"wanted": TEXTS}


def test_a_batch_that_these_settings_do_not_lead_to_waits_until_its_time_is_over(
    desk: Desk, batch: Batch
) -> None:
    desk.step(batch.token)
    desk.unreachable = ProviderStop("no key", hint="set it")

    desk.run(batch.token, steps=3)
    waiting = desk.batch(batch.token)
    desk.clock.advance(desk.timeout_s)
    given_up = desk.run(batch.token, steps=12)

    assert (waiting.state, waiting.error, waiting.action) == ("submitted", "no key", "set it")
    assert (given_up.state, given_up.outcome) == ("closed", "timed out")
    assert "left at the provider: no key" in given_up.error
    assert desk.states() == {"wanted": TEXTS}
    assert len(desk.api.jobs) == 1


@pytest.mark.parametrize("steps", [0, 1])
def test_a_batch_that_the_operator_cancels_gives_its_texts_back_to_requests(
    desk: Desk, batch: Batch, steps: int
) -> None:
    desk.run(batch.token, steps=steps)

    assert desk.request_cancel(batch.token)
    after = desk.run(batch.token)

    assert (after.state, after.outcome, after.error) == ("closed", "cancelled", "by the operator")
    assert desk.batch_health.failures == 0
    assert desk.api.files == {}
    assert desk.plan().made == 0
    assert len(desk.writer.lease(CAPS, credits=8, only_full=False, held=(0, 1))) == 1


def test_texts_of_a_cancelled_job_go_out_in_a_batch_once_they_are_asked_for_again(desk: Desk) -> None:
    connection, clock = desk.writer.connection, desk.clock
    job = jobs.create(connection, jobs.REINDEX, by="a", now_ns=1)
    with transaction(connection):
        connection.execute("UPDATE vectors SET job = ?, priority = ?", (job.id, BACKFILL))
    batch = desk.make()
    desk.step(batch.token)

    counts = jobs.cancel(connection, job, by="a", now=clock.now())
    assert open_batches.cancel_idle(connection, clock.now()) == 1
    desk.run(batch.token)
    later = jobs.create(connection, jobs.REINDEX, by="a", now_ns=2)
    taken_up = jobs.take_up_cancelled(connection, later)

    assert (counts, taken_up) == ((0, TEXTS), TEXTS)
    assert desk.make().rows == TEXTS


def test_a_batch_of_the_model_before_is_ended_once_the_new_one_works(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.writer.retarget(MODEL_B)
    desk.writer.sweep_batches(MODEL_B)
    assert not desk.batch(batch.token).cancel_requested_at, "the name of the new model may be misspelt"
    answer(desk.writer, desk.writer.lease(CAPS, credits=1, only_full=False))

    desk.writer.sweep_batches(MODEL_B)

    assert desk.batch(batch.token).cancel_reason == "the model was changed"


def test_paying_for_everything_again_ends_the_batch_before(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)

    forget_vectors(desk.writer)
    desk.run(batch.token)

    assert desk.api.job.state == "cancelled"
    assert desk.batch(batch.token).state == "closed"
    assert desk.states() == {"wanted": TEXTS}
