"""Batches as rows: found by what a person knows of them, asked to end, and absent from an older index."""

from memline.shared.index import batches
from tests.support.index_rows import add_batch


def a_batch(writer, clock, token, **columns):
    add_batch(writer, token, **{"created_at": clock.now(), **columns})


def test_open_batches_are_listed_oldest_first_and_closed_ones_are_not(writer, clock):
    a_batch(writer, clock, "first")
    clock.advance(1)
    a_batch(writer, clock, "second", state="intent")
    a_batch(writer, clock, "over", state="closed", outcome="done")

    assert [batch.token for batch in batches.open_batches(writer.connection)] == ["first", "second"]
    assert {batch.token for batch in batches.latest(writer.connection, 2)} == {"second", "over"}


def test_a_batch_is_found_by_the_beginning_of_its_token_and_by_the_name_of_its_job(writer, clock):
    a_batch(writer, clock, "abc1", job_id="batch_7")
    a_batch(writer, clock, "abd2")

    assert [batch.token for batch in batches.find(writer.connection, "abc")] == ["abc1"]
    assert [batch.token for batch in batches.find(writer.connection, "batch_7")] == ["abc1"]
    assert len(batches.find(writer.connection, "ab")) == 2
    assert batches.find(writer.connection, "") == []
    assert batches.find(writer.connection, "%") == []


def test_a_batch_that_is_to_be_cancelled_is_due_at_once(writer, clock):
    a_batch(writer, clock, "one", due=clock.now() + 600)

    assert batches.request_cancel(
        writer.connection, "one", reason="cancelled by the operator", now=clock.now()
    )

    found = batches.get(writer.connection, "one")
    assert found is not None
    assert (found.cancel_requested_at, found.cancel_reason) == (clock.now(), "cancelled by the operator")
    assert found.due == clock.now()
