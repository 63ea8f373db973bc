"""One process at a time works on a batch, and a dead one not for long."""

import pytest

from memline.shared.batches import open_batches
from memline.shared.batches.open_batches import ClaimLost, claimed, free_dead, take_due
from memline.shared.errors import ProviderLater
from memline.shared.index import meta
from memline.shared.index.batches import Batch
from memline.shared.index.driver import transaction
from memline.shared.scheduling import leases
from tests.support.batch_desk import Desk
from tests.support.index_rows import MODEL_A


def due(desk: Desk) -> list[str]:
    """The batches that are taken now."""
    taken, _ = take_due(desk.writer.connection, desk.clock.now())
    return taken


def test_two_workers_do_not_work_on_one_batch(desk: Desk, batch: Batch) -> None:
    desk.api.during["upload"] = lambda: desk.step(batch.token)

    desk.step(batch.token)

    assert desk.api.calls["upload"] == 1
    assert desk.batch(batch.token).state == "submitted"


def test_a_worker_whose_batch_was_taken_over_records_nothing_more(desk: Desk, batch: Batch) -> None:
    connection = desk.writer.connection
    with pytest.raises(ClaimLost), claimed(connection, batch.token, desk.clock) as claim:
        assert claim is not None
        with transaction(connection):
            connection.execute("UPDATE batches SET owner = 'another'")
        claim.record(state="submitted")

    assert desk.batch(batch.token).state == "intent"


def test_what_a_dead_process_held_is_due_at_once(desk: Desk, batch: Batch) -> None:
    with transaction(desk.writer.connection):
        desk.writer.connection.execute(
            "UPDATE batches SET owner = ?, owner_until = ?, due = ?",
            (f"{leases.current_owner()}9/x", desk.clock.now() + 300, desk.clock.now() + 300),
        )
    assert due(desk) == []

    assert free_dead(desk.writer.connection, desk.clock.now()) == 1

    assert due(desk) == [batch.token]


def test_while_sending_is_paused_only_batches_that_a_provider_has_are_polled(
    desk: Desk, batch: Batch
) -> None:
    meta.put(desk.writer.connection, meta.PAUSED, True)
    assert desk.writer.take_due_batches() == ([], None)
    desk.step(batch.token)
    desk.clock.advance(20)

    taken, _ = desk.writer.take_due_batches()

    assert taken == [batch.token]


def test_a_batch_is_taken_once_until_its_message_must_be_lost(desk: Desk, batch: Batch) -> None:
    assert due(desk) == [batch.token]
    assert due(desk) == []
    desk.clock.advance(31)
    assert due(desk) == [batch.token]


def test_a_batch_is_looked_at_when_a_clock_that_was_ahead_is_set_right(desk: Desk, batch: Batch) -> None:
    """Its deadline does not last for as long as the clock was ahead."""
    desk.clock.set_back(-7_200)
    submitted = desk.step(batch.token)
    desk.clock.set_back(7_200)
    desk.writer.sweep_batches(MODEL_A)

    assert due(desk) == [batch.token]
    after = desk.batch(batch.token)
    assert after.deadline - desk.clock.now() == submitted.deadline - submitted.submitted_at
    assert max(after.submitted_at, after.polled_at, after.created_at) <= desk.clock.now()


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_batch_is_not_given_up_by_a_clock_that_jumps(desk: Desk, batch: Batch, is_cancelled: bool) -> None:
    desk.api.ends_slowly = True
    desk.step(batch.token)
    if is_cancelled:
        desk.request_cancel(batch.token)
        desk.step(batch.token)
    before = desk.batch(batch.token)

    desk.clock.set_back(-7_200)
    taken = due(desk)
    after = desk.step(batch.token)

    assert taken == [batch.token]
    assert desk.api.calls["cancel"] == is_cancelled
    assert (after.state, after.cancel_reason) == (before.state, before.cancel_reason)
    assert after.deadline - before.deadline == pytest.approx(7_200, abs=120)


def test_a_step_that_failed_while_the_clock_was_ahead_is_tried_again(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.clock.set_back(-1_200)
    desk.api.errors["get_job"] = [ProviderLater("busy")]
    desk.step(batch.token)

    desk.clock.set_back(1_200)
    desk.writer.sweep_batches(MODEL_A)

    assert due(desk) == [batch.token]


def test_a_wait_of_a_clock_that_is_right_holds(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.clock.advance(-2)

    desk.writer.sweep_batches(MODEL_A)

    assert due(desk) == []


def test_the_time_in_which_nothing_ran_is_no_time_of_a_batch_whose_worker_was_killed(
    desk: Desk, batch: Batch
) -> None:
    before = desk.step(batch.token)
    with transaction(desk.writer.connection):
        owner = f"{leases.current_owner()}9/x"
        desk.writer.connection.execute("UPDATE batches SET owner = ?", (owner,))

    desk.clock.advance(36_000)
    free_dead(desk.writer.connection, desk.clock.now())

    assert due(desk) == [batch.token]
    assert desk.batch(batch.token).deadline - before.deadline == pytest.approx(36_000, abs=120)


def test_a_batch_that_is_seldom_looked_at_is_given_up_in_the_end(desk: Desk, batch: Batch) -> None:
    before = desk.step(batch.token)

    for _ in range(10):
        desk.clock.advance(86_400)
        due(desk)

    after = desk.batch(batch.token)
    assert before.deadline < after.deadline == before.submitted_at + open_batches.LONGEST_S
