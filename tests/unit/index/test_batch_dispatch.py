"""Which texts wait for a batch, and when one is made of them."""

from __future__ import annotations

import pytest

from shared.clock import ManualClock
from shared.index import backfill, batches, dispatch, health
from shared.index.driver import transaction
from shared.index.writer import IndexWriter
from tests.support.batch_desk import Desk
from tests.support.index_rows import CAPS, answer, file_row

HELD, FREE = 2**62, -1


@pytest.fixture
def desk(writer: IndexWriter, clock: ManualClock) -> Desk:
    return Desk(writer, clock)


def add(desk: Desk, count: int, *, name: str = "a", is_backfill: bool = False) -> None:
    """A file with so many new texts."""
    row = file_row(f"{name}.md", *(f"{name} {n}" for n in range(count)))
    desk.writer.store_file(row, backfill=is_backfill)


def requests(desk: Desk, above: int) -> list[int]:
    """Sizes of the requests that go out now."""
    sent = desk.writer.lease(CAPS, credits=8, only_full=False, above=above)
    return [len(request.texts) for request in sent]


def test_a_backlog_is_held_back_while_it_grows_and_becomes_one_batch_when_it_stops(desk: Desk) -> None:
    for number in range(5):
        add(desk, 4, name=f"f{number}")
        gathered = desk.gather()
        assert (gathered.above, gathered.made) == (HELD, 0)
        assert gathered.again_s > 0
        assert requests(desk, gathered.above) == []
        desk.clock.advance(0.5)

    desk.clock.advance(0.6)
    gathered = desk.gather()

    assert gathered.made == 1
    assert requests(desk, gathered.above) == []
    (batch,) = desk.open()
    assert (batch.state, batch.rows) == ("intent", 20)
    assert desk.states() == {"leased": 20}


def test_while_files_are_on_their_way_nothing_is_made_for_a_minute(desk: Desk) -> None:
    add(desk, 20)
    for _ in range(5):
        assert desk.gather(is_feeding=True).made == 0
        desk.clock.advance(10)

    desk.clock.advance(11)

    assert desk.gather(is_feeding=True).made == 1


def test_a_few_texts_go_out_in_a_request(desk: Desk) -> None:
    add(desk, 2)

    desk.gather()
    desk.clock.advance(1.1)
    gathered = desk.gather()

    assert gathered.made == 0
    assert requests(desk, gathered.above) == [2]


def test_a_few_texts_that_trickle_in_wait_no_longer_than_two_seconds(desk: Desk) -> None:
    add(desk, 1, name="first")
    desk.gather()
    for name in ("second", "third"):
        desk.clock.advance(0.9)
        assert requests(desk, desk.gather().above) == []
        desk.writer.store_file(file_row(f"{name}.md", "the same text"))
    desk.clock.advance(0.3)

    assert requests(desk, desk.gather().above) == [2]


def test_a_full_batch_is_made_while_the_backlog_still_grows(desk: Desk) -> None:
    add(desk, 250)

    gathered = desk.gather()

    assert gathered.made == 2
    assert [batch.rows for batch in desk.open()] == [100, 100]
    assert requests(desk, gathered.above) == []


def test_what_a_full_batch_leaves_over_waits_for_what_is_still_coming(desk: Desk) -> None:
    add(desk, 70, name="first")
    for number in range(9):
        desk.gather(is_feeding=True, max_rows=50, concurrency=9)
        # While a large file is read there is no new text for a moment.
        desk.clock.advance(1.5)
        desk.gather(is_feeding=True, max_rows=50, concurrency=9)
        add(desk, 20, name=f"more {number}")
    desk.gather(max_rows=50, concurrency=9)
    desk.clock.advance(1.1)
    desk.gather(max_rows=50, concurrency=9)

    assert [batch.rows for batch in desk.open()] == [50] * 5


def test_a_backlog_becomes_as_few_batches_as_the_caps_allow(desk: Desk) -> None:
    add(desk, 201)
    desk.gather(concurrency=9)
    desk.clock.advance(1.1)

    desk.gather(concurrency=9)

    assert sorted(batch.rows for batch in desk.open()) == [1, 100, 100]


def test_what_has_no_place_waits_for_one_and_a_live_edit_does_not_wait_with_it(desk: Desk) -> None:
    add(desk, 250)
    desk.gather()
    desk.clock.advance(1.1)
    assert desk.gather().made == 0

    add(desk, 2, name="edit")
    desk.gather()
    desk.clock.advance(1.1)
    gathered = desk.gather()

    assert requests(desk, gathered.above) == [2]
    assert desk.states() == {"leased": 202, "wanted": 50}
    close(desk, desk.open()[0].token)
    assert desk.gather().made == 1
    assert sorted(batch.rows for batch in desk.open()) == [50, 100]


def test_a_batch_holds_no_more_bytes_than_the_provider_takes(desk: Desk) -> None:
    add(desk, 50)
    desk.gather(max_bytes=10_000)
    desk.clock.advance(1.1)

    desk.gather(max_bytes=10_000)

    assert sorted(batch.rows for batch in desk.open()) == [12, 38]


def test_live_edits_come_before_a_backfill(desk: Desk) -> None:
    add(desk, 100, name="old", is_backfill=True)
    add(desk, 10, name="new")
    desk.gather(concurrency=1)
    desk.clock.advance(1.1)

    desk.gather(concurrency=1)

    (batch,) = desk.open()
    turns = desk.writer.connection.execute(
        "SELECT backfill, count(*) FROM vectors WHERE lease = ? GROUP BY backfill", (batch.token,)
    )
    assert dict(turns.fetchall()) == {backfill.LIVE: 10, backfill.BACKFILL: 90}


def test_a_backfill_that_was_cancelled_goes_by_no_batch(desk: Desk) -> None:
    add(desk, 50, is_backfill=True)
    desk.writer.cancel_backfill()
    desk.gather()
    desk.clock.advance(1.1)

    assert desk.gather().made == 0


def test_the_lease_of_a_batch_ends_with_the_batch_only_and_takes_no_credit(desk: Desk) -> None:
    add(desk, 20)
    batch = desk.make()

    desk.clock.advance(10 * dispatch.LEASE_S)
    desk.writer.sweep()
    desk.writer.recover()

    assert desk.states() == {"leased": 20}
    assert desk.writer.lease_tokens() == []
    assert dispatch.requests_out(desk.writer.connection) == 0
    assert desk.batch(batch.token).state == "intent"


def test_with_the_breaker_open_everything_goes_out_in_requests(desk: Desk) -> None:
    add(desk, 20)
    with transaction(desk.writer.connection):
        for _ in range(2):
            health.batch_failed(desk.writer.connection, "openai", "it broke", "", desk.clock.now())

    gathered = desk.gather()

    assert (gathered.above, gathered.made) == (FREE, 0)
    assert requests(desk, gathered.above) == [20]


def test_when_the_cool_down_is_over_one_batch_is_the_probe(desk: Desk) -> None:
    with transaction(desk.writer.connection):
        for _ in range(2):
            health.batch_failed(desk.writer.connection, "openai", "it broke", "", desk.clock.now())
    desk.clock.advance(health.BATCH_RULES.cool_down_s + 1)
    add(desk, 50)
    desk.gather()
    desk.clock.advance(1.1)

    gathered = desk.gather()

    (batch,) = desk.open()
    assert health.read(desk.writer.connection, "openai", health.BATCH).probe == batch.token
    assert gathered.made == 1
    assert desk.gather().above == FREE, "the others do not wait for the probe"


def test_a_paused_provider_gets_no_batch(desk: Desk) -> None:
    add(desk, 20)
    desk.writer.put_meta("paused", True)
    desk.gather()
    desk.clock.advance(1.1)

    assert desk.gather().made == 0


def test_a_text_that_comes_back_while_its_batch_is_out_is_not_sent_again(desk: Desk) -> None:
    add(desk, 20)
    batch = desk.make()
    desk.writer.store_file(file_row("a.md", "something else", at=2))
    desk.writer.store_file(file_row("a.md", *(f"a {n}" for n in range(20)), at=3))

    assert requests(desk, FREE) == []
    desk.step(batch.token)
    desk.api.finish()
    desk.run(batch.token)

    assert desk.states() == {"ready": 20}
    assert desk.batch(batch.token).stored == 20


def test_vectors_of_texts_that_are_gone_when_they_come_rest_in_the_cache(desk: Desk) -> None:
    add(desk, 20)
    batch = desk.make()
    desk.step(batch.token)
    desk.writer.store_file(file_row("a.md", at=2))
    desk.api.finish()

    desk.run(batch.token)

    assert desk.states() == {}
    add_again = file_row("a.md", *(f"a {n}" for n in range(20)), at=3)
    assert desk.writer.store_file(add_again).cached == 20


def test_a_batch_whose_maker_died_while_it_was_filled_goes_out_with_what_it_has(desk: Desk) -> None:
    add(desk, 20)
    batch = desk.make()
    with transaction(desk.writer.connection):
        # A process with our number that was started at another time.
        desk.writer.connection.execute(
            "UPDATE batches SET state = 'filling', rows = 0, owner = ?", (dispatch.this_owner() + "9",)
        )

    desk.writer.batches.sweep()

    found = desk.batch(batch.token)
    assert (found.state, found.rows, found.owner) == ("intent", 20, "")


def test_requests_for_texts_beside_a_waiting_backlog_do_not_walk_over_it(desk: Desk) -> None:
    add(desk, 300)
    desk.gather()
    desk.clock.advance(1.1)
    desk.gather()
    add(desk, 1, name="edit")
    plan = desk.writer.connection.execute(
        "EXPLAIN QUERY PLAN SELECT backfill, id, tokens FROM vectors WHERE identity_id = 1"
        " AND state = 'wanted' AND state <> 'ready' AND backfill = 0 AND id > 5 AND by_request = 0"
        " AND due <= 1 ORDER BY id LIMIT 10"
    ).fetchall()

    assert "vectors_backlog" in str(plan)
    assert "id>?" in str(plan)


def test_what_goes_in_requests_is_counted_and_found_without_reading_the_backlog(desk: Desk) -> None:
    add(desk, 300)
    connection = desk.writer.connection
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    desk.gather()
    desk.clock.advance(1.1)
    gathered = desk.gather()
    requests(desk, gathered.above)
    connection.set_trace_callback(None)

    ours = {sql for sql in asked if sql.startswith("SELECT") and "by_request = 1" in sql}
    plans = [str(connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()) for sql in ours]
    assert len(plans) >= 3
    assert all("vectors_by_request" in plan for plan in plans)


def close(desk: Desk, token: str) -> None:
    """The provider does a batch at once."""
    desk.step(token)
    desk.api.finish()
    desk.run(token)
    assert desk.batch(token).state == "closed"


def test_answers_to_requests_and_batches_do_not_disturb_each_other(desk: Desk) -> None:
    add(desk, 2, name="few")
    desk.gather()
    desk.clock.advance(1.1)
    sent = desk.writer.lease(CAPS, credits=8, only_full=False, above=desk.gather().above)
    add(desk, 20, name="many")
    batch = desk.make()

    answer(desk.writer, sent)

    assert desk.states() == {"ready": 2, "leased": 20}
    assert batches.texts_left(desk.writer.connection, batch.token) == 20
