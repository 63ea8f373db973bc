"""Taking in what a batch brought: good rows are kept, all other texts go out again."""

from __future__ import annotations

import pytest

from shared.clock import ManualClock
from shared.embedders.batch import BatchResult
from shared.errors import (
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderRefused,
)
from shared.index import health
from shared.index.batches import Batch
from shared.index.writer import IndexWriter
from tests.support.batch_desk import Desk
from tests.support.index_rows import file_row, vector_of

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


def _broken() -> ProviderError:
    return ProviderBrokenAnswer("a line that is no JSON")


@pytest.mark.parametrize("outcome", ["failed", "expired"])
def test_the_good_rows_of_a_job_that_ended_badly_are_kept(desk: Desk, batch: Batch, outcome: str) -> None:
    desk.step(batch.token)
    rows = desk.api.job.rows[:7]
    kept = [BatchResult(key=row.key, vector=vector_of(row.text)) for row in rows]
    desk.api.finish(outcome, kept, reason="the provider had no time")  # type: ignore[arg-type]

    after = desk.run(batch.token)

    assert (after.outcome, after.stored, after.error) == (outcome, 7, "the provider had no time")
    assert desk.states() == {"ready": 7, "wanted": TEXTS - 7}
    assert batch_health(desk).failures == 1


def test_rows_that_are_missing_repeated_permuted_or_foreign_harm_no_other(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    good = desk.api.answers(desk.api.job)
    odd = [BatchResult(key="ff" * 32, vector=vector_of("x")), BatchResult(key="", error=_broken())]
    desk.api.finish("done", [*reversed(good[1:]), *good[3:5], *odd])

    after = desk.run(batch.token)

    assert (after.outcome, after.stored) == ("partial", TEXTS - 1)
    assert desk.states() == {"ready": TEXTS - 1, "wanted": 1}
    assert batch_health(desk).failures == 0
    assert desk.gather().made == 0, "the missing text goes out in a request"


def test_rows_with_errors_fail_or_go_out_again_by_their_kind(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    good = desk.api.answers(desk.api.job)
    bad: list[ProviderError] = [ProviderRefused("not this one"), ProviderLater("429"), _broken()]
    failed = [BatchResult(key=row.key, error=error) for row, error in zip(good, bad, strict=False)]
    desk.api.finish("done", [*good[3:], *failed])

    after = desk.run(batch.token)

    assert (after.outcome, after.stored, after.failed) == ("partial", TEXTS - 3, 3)
    assert desk.states() == {"ready": TEXTS - 3, "failed": 1, "wanted": 2}


def test_a_job_without_one_good_row_is_a_failure(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    rows = desk.api.job.rows
    desk.api.finish("done", [BatchResult(key=row.key, error=ProviderLater("overloaded")) for row in rows])

    after = desk.run(batch.token)

    assert (after.outcome, after.error) == ("failed", "overloaded")
    assert batch_health(desk).failures == 1


def test_rows_that_say_that_their_job_ended_before_their_turn_are_no_failures(
    desk: Desk, batch: Batch
) -> None:
    desk.step(batch.token)
    rows = desk.api.job.rows
    unread = [BatchResult(key=row.key, error=ProviderLater("batch_expired")) for row in rows[3:]]
    desk.api.finish("expired", [*desk.api.answers(desk.api.job)[:3], *unread])

    after = desk.run(batch.token)

    assert (after.stored, after.failed) == (3, 0)
    attempts = desk.writer.connection.execute("SELECT max(attempts), max(due) FROM vectors").fetchone()
    assert attempts == (0, 0.0)


def test_what_was_lost_on_the_way_to_the_index_is_read_again(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.clock.advance(10)

    after = desk.step(batch.token, drop=True)
    assert (after.state, desk.states()) == ("collecting", {"leased": TEXTS})
    desk.run(batch.token)

    assert desk.states() == {"ready": TEXTS}
    assert desk.batch(batch.token).outcome == "done"


def test_what_is_lost_every_time_goes_out_again_in_the_end(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.finish()
    for _ in range(5):
        desk.clock.advance(60)
        desk.step(batch.token, drop=True)

    assert desk.batch(batch.token).state == "closed"
    assert desk.states() == {"wanted": TEXTS}


def test_an_answer_that_breaks_off_is_read_again_and_nothing_is_stored_twice(
    desk: Desk, batch: Batch
) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.api.lost["results"].append(ProviderLater("cut"))

    desk.run(batch.token)

    assert desk.states() == {"ready": TEXTS}
    assert desk.batch(batch.token).stored == TEXTS
    assert desk.api.calls["results"] == 2


def test_files_that_the_provider_does_not_let_go_are_left_in_the_end_and_said(
    desk: Desk, batch: Batch
) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.api.errors["clean_up"] = [ProviderLater("500 at deletion") for _ in range(20)]

    after = desk.run(batch.token, steps=12)

    assert after.state == "closed"
    assert "left at the provider: 500 at deletion" in after.error
    assert desk.api.calls["clean_up"] == 8
