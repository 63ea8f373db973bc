"""How a batch ends whose provider refuses it, or does not let go of what it made."""

from __future__ import annotations

import pytest

from shared.clock import ManualClock
from shared.embedders.batch import BatchResult
from shared.errors import (
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderRefused,
    ProviderStop,
    ProviderTooBig,
)
from shared.index import batch_waiting, batches, health, identity
from shared.index.batch_claims import free_dead
from shared.index.batches import Batch
from shared.index.writer import IndexWriter
from tests.support.batch_desk import Desk
from tests.support.index_rows import file_row

TEXTS = 20


@pytest.fixture
def desk(writer: IndexWriter, clock: ManualClock) -> Desk:
    desk = Desk(writer, clock)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(TEXTS))))
    return desk


@pytest.fixture
def batch(desk: Desk) -> Batch:
    return desk.make()


def batch_health(desk: Desk) -> health.Health:
    return health.read(desk.writer.connection, "openai", health.BATCH)


def tokens(desk: Desk, token: str) -> int:
    """Tokens of the texts a batch holds."""
    (found,) = desk.writer.connection.execute(
        "SELECT sum(tokens) FROM vectors WHERE lease = ?", (token,)
    ).fetchone()
    return int(found)


def refuse(desk: Desk, limit: int | None) -> None:
    """All running jobs fail for the tokens that the account has under way."""
    error = ProviderTooBig("too many enqueued tokens", max_tokens=limit)
    desk.api.finish("failed", [], "too many enqueued tokens", error)


# What a job made is paid for.


@pytest.mark.parametrize(
    "error", [ProviderLater("500"), ProviderBrokenAnswer("a web page"), ProviderStop("bad key", status=401)]
)
def test_what_a_job_made_is_asked_for_until_it_comes(desk: Desk, batch: Batch, error: ProviderError) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.api.errors["results"] = [error] * 20

    after = desk.run(batch.token, steps=30)

    assert (after.state, after.outcome, after.stored) == ("closed", "done", TEXTS)
    assert desk.states() == {"ready": TEXTS}


def test_what_a_job_made_is_given_up_when_its_time_is_over(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.api.errors["results"] = [ProviderLater("500")] * 500

    after = desk.run(batch.token, steps=100)

    assert (after.state, after.outcome, after.error) == ("closed", "lost", "500")
    assert 3_500 < desk.clock.now() - batch.created_at < 3_800
    assert batch_health(desk).failures == 1
    assert desk.states() == {"wanted": TEXTS}


def test_a_file_that_is_gone_is_not_waited_for(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.api.errors["results"] = [ProviderBrokenAnswer("no such file", status=404)] * 500

    after = desk.run(batch.token, steps=20)

    assert (after.state, after.outcome) == ("closed", "lost")
    assert desk.clock.now() - batch.created_at < 120


def test_somebody_need_not_wait_for_what_a_job_made(desk: Desk, batch: Batch) -> None:
    connection = desk.writer.connection
    desk.step(batch.token)
    desk.api.finish()
    desk.api.errors["results"] = [ProviderLater("500")] * 500
    desk.run(batch.token, steps=10)

    assert batches.ask_cancel(connection, batch.token, reason="by hand", now=desk.clock.now())
    after = desk.run(batch.token)

    assert (after.state, after.outcome, after.error) == ("closed", "cancelled", "by hand")
    assert batch_health(desk).failures == 0
    assert desk.states() == {"wanted": TEXTS}


def test_a_job_that_is_being_ended_is_looked_at_often_again(desk: Desk, batch: Batch) -> None:
    desk.run(batch.token, steps=8)
    desk.api.ends_slowly = True
    batches.ask_cancel(desk.writer.connection, batch.token, reason="by hand", now=desk.clock.now())

    after = desk.step(batch.token)

    assert after.due - desk.clock.now() == desk.timing.poll_s


def test_while_a_step_is_tried_again_its_error_is_told(desk: Desk, batch: Batch) -> None:
    target = identity.target(desk.writer.connection)
    assert target is not None
    settings = desk.settings

    def told() -> str:
        return batch_waiting.waiting(desk.writer.connection, target.id, settings, since=0).delayed

    desk.api.errors["upload"].append(ProviderLater("busy", retry_after_s=30))
    desk.step(batch.token)
    assert told() == "busy"
    desk.run(batch.token, steps=1)

    assert told() == ""


def test_a_provider_that_says_later_for_ever_gets_no_texts_for_ever(desk: Desk, batch: Batch) -> None:
    desk.api.errors["create"] = [ProviderLater("busy", retry_after_s=60) for _ in range(500)]

    after = desk.run(batch.token, steps=100)

    assert (after.state, after.outcome) == ("closed", "failed")
    assert 3_500 < desk.clock.now() - batch.created_at < 3_800
    assert batch_health(desk).failures == 1


def test_a_batch_is_not_taken_over_while_its_file_is_on_its_way(desk: Desk, batch: Batch) -> None:
    freed: list[int] = []

    def half_an_hour() -> None:
        desk.clock.advance(1_800)
        freed.append(free_dead(desk.writer.connection, desk.clock.now()))

    desk.api.during["uploading"] = half_an_hour

    desk.step(batch.token)

    assert freed == [0]
    assert desk.batch(batch.token).state == "submitted"


def test_a_job_that_refuses_every_text_says_nothing_of_the_texts(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    error = ProviderRefused("this model takes no batches")
    desk.api.finish("done", [BatchResult(key=row.key, error=error) for row in desk.api.job.rows])

    after = desk.run(batch.token)

    assert (after.outcome, after.error) == ("failed", "this model takes no batches")
    assert batch_health(desk).failures == 1
    assert desk.states() == {"wanted": TEXTS}


# Too many tokens.


def test_a_job_above_the_tokens_of_an_account_is_made_again_within_them(desk: Desk, batch: Batch) -> None:
    limit = tokens(desk, batch.token) // 3
    desk.step(batch.token)
    refuse(desk, limit)
    desk.run(batch.token)

    sizes = []
    for _ in range(20):
        desk.gather()
        for each in desk.open():
            sizes.append(tokens(desk, each.token))
            desk.step(each.token)
        assert len(desk.open()) <= 1, "the limit is one of all jobs together"
        desk.api.finish()
        for each in desk.open():
            desk.run(each.token)

    assert desk.states() == {"ready": TEXTS}
    assert max(sizes) <= limit
    assert len(sizes) <= 5
    assert batch_health(desk).failures == 0


def test_an_account_that_others_fill_gets_smaller_jobs_and_then_requests(desk: Desk, batch: Batch) -> None:
    limit = tokens(desk, batch.token)

    for _ in range(20):
        desk.gather()
        for each in desk.open():
            desk.step(each.token)
        refuse(desk, limit)
        for each in desk.open():
            desk.run(each.token)

    assert batch_health(desk).state == "open"
    assert min(len(job.rows) for job in desk.api.jobs.values()) >= TEXTS // 5
    assert len(desk.api.jobs) <= 5
    assert desk.gather().above == -1, "everything goes out in requests"


def test_jobs_beside_each_other_that_are_too_much_together_go_one_after_another(desk: Desk) -> None:
    desk.gather(max_rows=10)
    desk.clock.advance(1.1)
    desk.gather(max_rows=10)
    first, second = desk.open()
    limit = tokens(desk, first.token)
    desk.step(first.token)
    desk.step(second.token)
    second_job = next(job for job in desk.api.jobs.values() if job.tag == second.token)
    second_job.state, second_job.results = "failed", []
    second_job.error = ProviderTooBig("too many enqueued tokens", max_tokens=limit)
    desk.run(second.token)

    assert batch_health(desk).max_tokens == limit
    assert desk.gather(max_rows=10).made == 0
    desk.api.finish()
    desk.run(first.token)
    assert desk.gather(max_rows=10).made == 1


def test_halves_that_are_not_worth_a_batch_are_not_made(desk: Desk, batch: Batch) -> None:
    desk.min_texts = TEXTS
    desk.api.errors["upload"].append(ProviderTooBig("too many rows"))

    desk.run(batch.token, steps=2)

    assert batch_health(desk).failures == 1
    assert batch_health(desk).max_rows == 0


def test_a_job_that_no_key_may_make_opens_the_breaker_at_once(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    error = ProviderStop("no batches for you", hint="ask for them", status=403)
    desk.api.finish("failed", [], "no batches for you", error)

    desk.run(batch.token)

    state = batch_health(desk)
    assert (state.state, state.reason, state.action) == ("open", "no batches for you", "ask for them")
