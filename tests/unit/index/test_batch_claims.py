"""Who works on a batch: one process at a time, and a dead one not for long."""

from __future__ import annotations

import pytest

from shared.clock import ManualClock
from shared.index import dispatch
from shared.index.batch_claims import ClaimLost, claimed, free_dead, hand_out
from shared.index.batches import Batch
from shared.index.driver import transaction
from shared.index.writer import IndexWriter
from tests.support.batch_desk import Desk
from tests.support.index_rows import CAPS, file_row

TEXTS = 20


@pytest.fixture
def desk(writer: IndexWriter, clock: ManualClock) -> Desk:
    desk = Desk(writer, clock)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(TEXTS))))
    return desk


@pytest.fixture
def batch(desk: Desk) -> Batch:
    return desk.make()


def handed(desk: Desk) -> list[str]:
    """The batches that are handed out now."""
    given, _ = hand_out(desk.writer.connection, desk.clock.now())
    return [batch.token for batch in given]


def test_two_workers_do_not_work_on_one_batch(desk: Desk, batch: Batch) -> None:
    desk.api.during["upload"] = lambda: desk.step(batch.token)

    desk.step(batch.token)

    assert desk.api.calls["upload"] == 1
    assert desk.batch(batch.token).state == "submitted"


def test_a_worker_whose_batch_was_taken_over_records_nothing_more(desk: Desk, batch: Batch) -> None:
    connection = desk.writer.connection
    with pytest.raises(ClaimLost), claimed(connection, batch.token, ("intent",), desk.clock) as claim:
        assert claim is not None
        with transaction(connection):
            connection.execute("UPDATE batches SET owner = 'another'")
        claim.record(state="submitted")

    assert desk.batch(batch.token).state == "intent"


def test_what_a_dead_process_held_is_due_at_once(desk: Desk, batch: Batch) -> None:
    with transaction(desk.writer.connection):
        desk.writer.connection.execute(
            "UPDATE batches SET owner = ?, owner_until = ?, due = ?",
            (f"{dispatch.this_owner()}9/x", desk.clock.now() + 300, desk.clock.now() + 300),
        )
    assert handed(desk) == []

    assert free_dead(desk.writer.connection, desk.clock.now()) == 1

    assert handed(desk) == [batch.token]


def test_a_batch_that_nobody_is_there_to_begin_with_is_recalled(desk: Desk, batch: Batch) -> None:
    assert desk.writer.batches.recall() == 1

    assert (desk.batch(batch.token).state, desk.batch(batch.token).outcome) == ("closed", "cancelled")
    assert desk.states() == {"wanted": TEXTS}
    assert len(desk.writer.lease(CAPS, credits=8, only_full=False, above=2**62)) == 1


def test_a_batch_that_was_begun_is_not_recalled(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)

    assert desk.writer.batches.recall() == 0


def test_while_texts_are_paused_by_hand_only_what_a_provider_has_is_looked_at(
    desk: Desk, batch: Batch
) -> None:
    desk.writer.put_meta("paused", True)
    assert desk.writer.batches.hand_out() == ([], None)
    desk.step(batch.token)
    desk.clock.advance(20)

    given, _ = desk.writer.batches.hand_out()

    assert [one.token for one in given] == [batch.token]


def test_a_batch_is_handed_out_once_until_its_message_must_be_lost(desk: Desk, batch: Batch) -> None:
    assert handed(desk) == [batch.token]
    assert handed(desk) == []
    desk.clock.advance(31)
    assert handed(desk) == [batch.token]
