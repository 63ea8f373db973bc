"""One process at a time works on a batch, and a dead one not for long."""

import pytest

from memline.shared.batches.open_batches import ClaimLost, claimed, free_dead, take_due
from memline.shared.index import meta
from memline.shared.index.batches import Batch
from memline.shared.index.driver import transaction
from memline.shared.scheduling import leases
from tests.support.batch_desk import Desk


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
