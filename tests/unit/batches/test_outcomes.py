"""Batches end: what follows for their texts and for the breaker."""

import pytest
from msgspec.structs import replace

from memline.shared.batches.job_rows import BatchResult
from memline.shared.batches.open_batches import KEPT, free_dead
from memline.shared.errors import (
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderRefused,
    ProviderStop,
    ProviderTooBig,
)
from memline.shared.index import batches
from memline.shared.index.batches import Batch
from memline.shared.index.driver import transaction
from tests.support.batch_desk import TEXTS, Desk
from tests.support.index_rows import BATCH_RULES, vector_of


def refuse(desk: Desk, token: str) -> None:
    """The job of a batch fails for the tokens that the account has under way."""
    desk.step(token)
    error = ProviderTooBig("too many enqueued tokens")
    desk.api.finish("failed", [], "too many enqueued tokens", error)
    desk.run(token)


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
    # Its hour, and a quarter of one.
    assert 4_400 < desk.clock.now() - batch.created_at < 4_700
    assert desk.batch_health.failures == 1
    assert desk.states() == {"wanted": TEXTS}


def test_what_was_finished_when_time_was_over_is_asked_for_until_it_comes(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    rows = desk.api.job.rows[:5]
    desk.api.job.results = [BatchResult(key=row.key, vector=vector_of(row.text)) for row in rows]
    desk.clock.advance(desk.timeout_s)
    desk.api.errors["results"] = [ProviderLater("503", status=503)] * 12

    after = desk.run(batch.token, steps=30)

    assert (after.state, after.outcome, after.stored) == ("closed", "timed out", 5)


def test_a_file_that_is_gone_is_not_waited_for(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.api.errors["results"] = [ProviderBrokenAnswer("no such file", status=404)] * 500

    after = desk.run(batch.token, steps=20)

    assert (after.state, after.outcome) == ("closed", "lost")
    assert desk.clock.now() - batch.created_at < 120


def test_the_operator_need_not_wait_for_what_a_job_made(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.api.errors["results"] = [ProviderLater("500")] * 500
    desk.run(batch.token, steps=10)

    assert desk.request_cancel(batch.token)
    after = desk.run(batch.token)

    assert (after.state, after.outcome, after.error) == ("closed", "cancelled", "by the operator")
    assert desk.batch_health.failures == 0
    assert desk.states() == {"wanted": TEXTS}


def test_a_job_that_is_being_ended_is_looked_at_often_again(desk: Desk, batch: Batch) -> None:
    desk.run(batch.token, steps=8)
    desk.api.ends_slowly = True
    batches.request_cancel(
        desk.writer.connection, batch.token, reason="by the operator", now=desk.clock.now()
    )

    after = desk.step(batch.token)

    assert after.due - desk.clock.now() == 10.0


def test_a_provider_that_says_later_for_ever_gets_no_texts_for_ever(desk: Desk, batch: Batch) -> None:
    desk.api.errors["create"] = [ProviderLater("busy", retry_after_s=60) for _ in range(500)]

    after = desk.run(batch.token, steps=100)

    assert (after.state, after.outcome) == ("closed", "failed")
    assert 3_500 < desk.clock.now() - batch.created_at < 3_800
    assert desk.batch_health.failures == 1


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
    assert desk.batch_health.failures == 1
    assert desk.states() == {"wanted": TEXTS}


# Too big.


def test_a_day_after_a_refusal_the_provider_is_asked_for_more_again(desk: Desk, batch: Batch) -> None:
    refuse(desk, batch.token)
    desk.clock.advance(86_401)

    assert desk.make().rows == TEXTS


def test_halves_that_are_not_worth_a_batch_are_not_made(desk: Desk, batch: Batch) -> None:
    desk.settings = replace(desk.settings, min_texts=TEXTS)
    desk.api.errors["upload"].append(ProviderTooBig("too many rows"))

    desk.run(batch.token, steps=2)

    assert desk.batch(batch.token).outcome == "failed"
    assert desk.batch_health.failures == 1


def test_a_job_that_no_key_may_make_opens_the_breaker_at_once(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    error = ProviderStop("no batches for you", hint="ask for them", status=403)
    desk.api.finish("failed", [], "no batches for you", error)

    desk.run(batch.token)

    state = desk.batch_health
    assert (state.state, state.reason, state.action) == ("open", "no batches for you", "ask for them")


# The breaker.


def test_a_batch_that_works_as_the_probe_of_an_open_breaker_closes_it(desk: Desk) -> None:
    desk.open_breaker()
    desk.clock.advance(BATCH_RULES.open_s + 1)
    probe = desk.make()
    assert (desk.batch_health.state, desk.batch_health.probe) == ("half_open", probe.token)

    desk.step(probe.token)
    desk.api.finish()
    desk.run(probe.token)

    assert (desk.batch_health.state, desk.batch_health.failures) == ("closed", 0)


def test_a_batch_that_fails_as_the_probe_opens_the_breaker_for_longer(desk: Desk) -> None:
    desk.open_breaker()
    desk.clock.advance(BATCH_RULES.open_s + 1)
    probe = desk.make()

    desk.step(probe.token)
    desk.api.finish("failed", [], "it broke again")
    desk.run(probe.token)

    state = desk.batch_health
    assert (state.state, state.reason, state.opens) == ("open", "it broke again", 2)


def test_a_probe_that_is_cancelled_lets_another_batch_be_the_probe(desk: Desk) -> None:
    desk.open_breaker()
    desk.clock.advance(BATCH_RULES.open_s + 1)
    probe = desk.make()
    batches.request_cancel(
        desk.writer.connection, probe.token, reason="by the operator", now=desk.clock.now()
    )

    desk.run(probe.token)

    assert (desk.batch_health.state, desk.batch_health.probe) == ("open", "")
    assert desk.batch_health.probe_at <= desk.clock.now()


# Ends without a provider.


def test_only_the_last_closed_batches_are_kept(desk: Desk, batch: Batch) -> None:
    connection = desk.writer.connection
    with transaction(connection):
        connection.executemany(
            "INSERT INTO batches (token, identity_id, state, created_at, closed_at)"
            " VALUES (?, ?, 'closed', 0, ?)",
            ((f"old {number}", batch.identity_id, number) for number in range(KEPT + 5)),
        )

    desk.writer.sweep_batches()

    kept = batches.latest(connection, 1_000)
    assert len(kept) == KEPT + 1
    assert "old 4" not in {each.token for each in kept}
