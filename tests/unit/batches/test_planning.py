"""Which texts wait for a batch, and when one is made of them."""

from collections.abc import Callable, Collection
from functools import partial
from math import ceil
from typing import Any

import pytest

from memline.shared.batches.planning import BatchPlan, BatchPlanner
from memline.shared.config.installation import Ceilings
from memline.shared.index import batches, jobs, meta, vectors
from memline.shared.index.driver import transaction
from memline.shared.scheduling import health, leases
from memline.shared.scheduling.budget import TEXTS_SHARE, Budget
from tests.support.batch_desk import Desk
from tests.support.index_rows import BATCH_RULES, CAPS, answer, cancel_backfill, file_row

#: A ceiling that was met before.
BOTH = (vectors.LIVE_EDIT, vectors.BACKFILL)


def add(desk: Desk, count: int, *, name: str = "a", is_backfill: bool = False) -> None:
    """A file with so many new texts."""
    row = file_row(f"{name}.md", *(f"{name} {n}" for n in range(count)))
    desk.writer.store_file(row, job="0" if is_backfill else "")


def requests(desk: Desk, held: Collection[int] = ()) -> list[int]:
    """Sizes of the requests that are sent now."""
    sent = desk.writer.lease(CAPS, credits=8, only_full=False, held=held)
    return [len(request.texts) for request in sent]


def rest(desk: Desk, **options: Any) -> BatchPlan:
    """Plan, and again when nothing has come for so long that the backlog is whole."""
    desk.plan(**options)
    desk.clock.advance(1.1)
    return desk.plan(**options)


def coming(desk: Desk, seconds: int) -> BatchPlan:
    """Plan every ten seconds while files are on their way, and once more after so many."""
    for _ in range(seconds // 10):
        assert desk.plan(has_pending_files=True).made == 0
        desk.clock.advance(10)
    desk.clock.advance(seconds % 10)
    return desk.plan(has_pending_files=True)


def pause(desk: Desk) -> None:
    meta.put(desk.writer.connection, meta.PAUSED, True)


def cancel(desk: Desk) -> None:
    cancel_backfill(desk.writer)


def limit(desk: Desk, *, tokens: int) -> None:
    """A ceiling of a day that leaves so many tokens to texts."""
    ceilings = Ceilings(max_tokens_per_day=ceil(tokens / TEXTS_SHARE))
    desk.writer.budget = Budget(desk.writer.accounts.file, ceilings=ceilings)


def edits(count: int) -> Callable[[Desk], None]:
    return partial(add, count=count)


def backfill(count: int) -> Callable[[Desk], None]:
    return partial(add, count=count, name="old", is_backfill=True)


#: What comes and how it is planned; rows of the batches, and sizes of the requests that are sent then.
PLANS: dict[str, tuple[list[Callable[[Desk], object]], Callable[[Desk], BatchPlan], list[int], list[int]]] = {
    "a few texts go out in a request": ([edits(2)], rest, [], [2]),
    "a full batch is made while the backlog grows": ([edits(250)], Desk.plan, [100, 100], []),
    "as few as the caps allow, not one text": ([edits(201)], partial(rest, concurrency=9), [100, 100], [1]),
    "no more bytes than the provider takes": ([edits(50)], partial(rest, max_bytes=10_000), [12, 38], []),
    "a cancelled backfill goes by no batch": ([backfill(50), cancel], rest, [], []),
    "with the breaker open all go out in requests": ([edits(20), Desk.open_breaker], Desk.plan, [], [20]),
    "a paused provider gets no batch": ([edits(20), pause], rest, [], []),
    "for a minute none is made while files come": ([edits(20)], partial(coming, seconds=50), [], []),
    "and then one": ([edits(20)], partial(coming, seconds=61), [20], []),
}


@pytest.mark.parametrize(("steps", "planned", "batched", "sent"), PLANS.values(), ids=PLANS)
def test_what_waits_goes_by_batch_or_in_requests(
    empty_desk: Desk,
    steps: list[Callable[[Desk], object]],
    planned: Callable[[Desk], BatchPlan],
    batched: list[int],
    sent: list[int],
) -> None:
    for step in steps:
        step(empty_desk)

    plan = planned(empty_desk)

    assert sorted(batch.rows for batch in empty_desk.open()) == batched
    assert requests(empty_desk, plan.held) == sent


def test_a_backlog_is_held_back_while_it_grows_and_becomes_one_batch_when_it_stops(empty_desk: Desk) -> None:
    desk = empty_desk
    for number in range(5):
        add(desk, 4, name=f"f{number}")
        plan = desk.plan()
        assert (plan.held, plan.is_growing, plan.made) == (BOTH, True, 0)
        assert requests(desk, plan.held) == []
        desk.clock.advance(0.5)

    desk.clock.advance(0.6)
    plan = desk.plan()

    assert plan.made == 1
    assert requests(desk, plan.held) == []
    (batch,) = desk.open()
    assert (batch.state, batch.rows) == ("intent", 20)
    assert desk.states() == {"leased": 20}


def test_a_few_texts_that_trickle_in_wait_no_longer_than_two_seconds(empty_desk: Desk) -> None:
    desk = empty_desk
    add(desk, 1, name="first")
    desk.plan()
    for name in ("second", "third"):
        desk.clock.advance(0.9)
        assert requests(desk, desk.plan().held) == []
        desk.writer.store_file(file_row(f"{name}.md", "the same text"))
    desk.clock.advance(0.3)

    assert requests(desk, desk.plan().held) == [2]


def test_what_a_full_batch_leaves_over_waits_for_what_is_still_coming(empty_desk: Desk) -> None:
    desk = empty_desk
    add(desk, 70, name="first")
    for number in range(9):
        desk.plan(has_pending_files=True, max_rows=50, concurrency=9)
        # While a large file is read there is no new text for a moment.
        desk.clock.advance(1.5)
        desk.plan(has_pending_files=True, max_rows=50, concurrency=9)
        add(desk, 20, name=f"more {number}")
    rest(desk, max_rows=50, concurrency=9)

    assert [batch.rows for batch in desk.open()] == [50] * 5


def test_what_has_no_place_waits_for_one_and_a_live_edit_does_not_wait_with_it(empty_desk: Desk) -> None:
    desk = empty_desk
    add(desk, 250, is_backfill=True)
    assert rest(desk).made == 0

    add(desk, 2, name="edit")
    plan = rest(desk)

    assert plan.held == (vectors.BACKFILL,)
    assert requests(desk, plan.held) == [2]
    assert desk.states() == {"leased": 202, "wanted": 50}
    close(desk, desk.open()[0].token)
    assert desk.plan().made == 1
    assert sorted(batch.rows for batch in desk.open()) == [50, 100]


def test_a_live_edit_does_not_wait_while_a_backfill_comes_in(empty_desk: Desk) -> None:
    desk = empty_desk
    add(desk, 50, is_backfill=True)
    desk.plan(has_pending_files=True)
    desk.clock.advance(2.5)

    add(desk, 1, name="edit")
    plan = desk.plan(has_pending_files=True)

    assert plan.held == (vectors.BACKFILL,)
    assert requests(desk, plan.held) == [1]


def test_a_full_batch_of_a_backfill_takes_no_live_edit_along(empty_desk: Desk) -> None:
    desk = empty_desk
    add(desk, 150, name="old", is_backfill=True)
    add(desk, 1, name="edit")

    desk.plan(has_pending_files=True)

    assert desk.states() == {"leased": 100, "wanted": 51}
    assert requests(desk, (vectors.BACKFILL,)) == [1]


def test_live_edits_come_before_a_backfill(empty_desk: Desk) -> None:
    desk = empty_desk
    add(desk, 100, name="old", is_backfill=True)
    add(desk, 10, name="new")
    rest(desk, concurrency=1)

    (batch,) = desk.open()
    turns = desk.writer.connection.execute(
        "SELECT priority, count(*) FROM vectors WHERE lease = ? GROUP BY priority", (batch.token,)
    )
    assert dict(turns.fetchall()) == {vectors.LIVE_EDIT: 10, vectors.BACKFILL: 90}


def test_the_lease_of_a_batch_ends_with_the_batch_only_and_takes_no_credit(empty_desk: Desk) -> None:
    desk = empty_desk
    add(desk, 20)
    batch = desk.make()

    desk.clock.advance(10 * leases.LEASE_S)
    desk.writer.sweep()
    desk.writer.recover()

    assert desk.states() == {"leased": 20}
    assert leases.tokens(desk.writer.connection) == []
    assert desk.batch(batch.token).state == "intent"


def test_when_the_cool_down_is_over_one_batch_is_the_probe(empty_desk: Desk) -> None:
    desk = empty_desk
    desk.open_breaker()
    desk.clock.advance(BATCH_RULES.open_s + 1)
    add(desk, 50)
    plan = rest(desk)

    (batch,) = desk.open()
    assert health.read(desk.writer.accounts, "openai", health.BATCH).probe == batch.token
    assert plan.made == 1
    assert desk.plan().held == (), "the others do not wait for the probe"


def test_a_text_that_comes_back_while_its_batch_is_out_is_not_sent_again(empty_desk: Desk) -> None:
    desk = empty_desk
    add(desk, 20)
    batch = desk.make()
    desk.writer.store_file(file_row("a.md", "something else", at=2))
    desk.writer.store_file(file_row("a.md", *(f"a {n}" for n in range(20)), at=3))

    assert requests(desk) == []
    desk.step(batch.token)
    desk.api.finish()
    desk.run(batch.token)

    assert desk.states() == {"ready": 20}
    assert desk.batch(batch.token).stored == 20


def test_vectors_of_texts_that_are_gone_when_they_come_rest_in_the_cache(empty_desk: Desk) -> None:
    desk = empty_desk
    add(desk, 20)
    batch = desk.make()
    desk.step(batch.token)
    desk.writer.store_file(file_row("a.md", at=2))
    desk.api.finish()

    desk.run(batch.token)

    assert desk.states() == {}
    add_again = file_row("a.md", *(f"a {n}" for n in range(20)), at=3)
    desk.writer.store_file(add_again)
    assert meta.get(desk.writer.connection, meta.CACHED_TOTAL) == 20


def test_a_batch_whose_maker_died_while_it_was_filled_goes_with_the_texts_it_has(empty_desk: Desk) -> None:
    desk = empty_desk
    add(desk, 20)
    batch = desk.make()
    with transaction(desk.writer.connection):
        # A process with our number that was started at another time.
        desk.writer.connection.execute(
            "UPDATE batches SET rows = 0, owner = ?, owner_until = ?",
            (leases.current_owner() + "9", desk.clock.now() + 60),
        )

    desk.writer.sweep_batches()
    assert desk.writer.take_due_batches()[0] == [batch.token]
    after = desk.step(batch.token)

    assert (after.state, after.rows, after.owner) == ("submitted", 20, "")


def test_a_planner_that_was_overtaken_does_not_take_the_claim_from_the_worker(
    empty_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = empty_desk
    add(desk, 20)
    fill = BatchPlanner._fill

    def overtaken(planner: BatchPlanner, *args: Any) -> None:
        fill(planner, *args)
        with transaction(desk.writer.connection):
            desk.writer.connection.execute("UPDATE batches SET owner = 'a worker', owner_until = 9e9")

    monkeypatch.setattr(BatchPlanner, "_fill", overtaken)

    assert desk.make().owner == "a worker"


def test_at_a_ceiling_no_batch_is_made_that_its_first_text_does_not_fit_into(empty_desk: Desk) -> None:
    desk = empty_desk
    older, newer = (jobs.create(desk.writer.connection, jobs.REINDEX, by="a", now_ns=n) for n in (1, 2))
    # The texts of the older job were written down later.
    desk.writer.store_file(file_row("small.md", *(f"s {n}" for n in range(10))), job=newer.token)
    large = (f"{n} " + "word " * 100 for n in range(10))
    desk.writer.store_file(file_row("large.md", *large), job=older.token)
    (most,) = desk.writer.connection.execute("SELECT max(tokens) FROM vectors").fetchone()
    limit(desk, tokens=most - 1)

    plan = rest(desk)

    assert (plan.made, plan.held, batches.latest(desk.writer.connection, 9)) == (0, (vectors.BACKFILL,), [])

    limit(desk, tokens=most)
    assert desk.plan().made == 1
    assert [batch.rows for batch in desk.open()] == [1]


def test_requests_for_texts_beside_a_waiting_backlog_do_not_walk_over_it(empty_desk: Desk) -> None:
    desk = empty_desk
    add(desk, 300)
    rest(desk)
    add(desk, 1, name="edit")
    plan = desk.writer.connection.execute(
        "EXPLAIN QUERY PLAN SELECT priority, id, tokens FROM vectors WHERE identity_id = 1"
        " AND state = 'wanted' AND state <> 'ready' AND priority = 0 AND by_request = 0"
        " AND due <= 1 ORDER BY id LIMIT 10"
    ).fetchall()

    assert "vectors_backlog" in str(plan)


def test_what_goes_in_requests_is_counted_and_found_without_reading_the_backlog(empty_desk: Desk) -> None:
    desk = empty_desk
    add(desk, 300)
    connection = desk.writer.connection
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    plan = rest(desk)
    requests(desk, plan.held)
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


def test_answers_to_requests_and_batches_do_not_disturb_each_other(empty_desk: Desk) -> None:
    desk = empty_desk
    add(desk, 2, name="few")
    desk.plan()
    desk.clock.advance(1.1)
    sent = desk.writer.lease(CAPS, credits=8, only_full=False, held=desk.plan().held)
    add(desk, 20, name="many")
    batch = desk.make()

    answer(desk.writer, sent)

    assert desk.states() == {"ready": 2, "leased": 20}
    assert batches.texts_left(desk.writer.connection, batch.token) == 20
