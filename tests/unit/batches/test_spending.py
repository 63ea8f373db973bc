"""What a batch is counted with, from its plan to its end."""

from collections.abc import Iterable

import pytest

from memline.shared.batches.remote import State
from memline.shared.config.installation import Ceilings
from memline.shared.errors import ProviderRefused, ProviderStop
from memline.shared.index.batches import Batch, tokens_left
from memline.shared.index.chunks import text_hash
from memline.shared.scheduling.budget import Budget, spent
from memline.shared.values import replace
from tests.support.batch_desk import TEXTS, Desk
from tests.support.index_rows import file_row

#: How a job ends that did not do all.
each_early_end = pytest.mark.parametrize("state", ["failed", "cancelled", "expired"])


def tokens_today(desk: Desk) -> float:
    report = spent(desk.writer.accounts.file, Ceilings(), desk.clock.now())
    return float(report["today"]["tokens"])


def keys(texts: Iterable[str]) -> set[str]:
    """What a job calls the rows of texts."""
    return {text_hash(text).hex() for text in texts}


def test_a_batch_is_counted_when_it_is_planned_and_stays_counted_when_it_is_done(
    desk: Desk, batch: Batch
) -> None:
    planned, tokens = tokens_today(desk), tokens_left(desk.writer.connection, batch.token)
    desk.step(batch.token)
    desk.api.finish()
    desk.clock.advance(15)
    closed = desk.step(batch.token)

    assert closed.outcome == "done"
    assert (planned, tokens_today(desk)) == (tokens, tokens)
    # The desk's model has no price.
    assert closed.cost is None
    assert desk.writer.budget.reserved(batch.token) == 0


def test_a_batch_that_its_provider_never_took_costs_nothing(desk: Desk, batch: Batch) -> None:
    desk.api.errors["create"].append(ProviderStop("no batches here", status=404))

    desk.run(batch.token, steps=3)

    assert desk.batch(batch.token).outcome == "failed"
    assert tokens_today(desk) == 0


@each_early_end
def test_of_a_job_that_ended_early_counts_what_its_provider_says_it_did(
    desk: Desk, batch: Batch, state: State
) -> None:
    before = tokens_today(desk)
    desk.step(batch.token)
    desk.writer.connection.execute("UPDATE batches SET rows_done = ?", (TEXTS // 4,))
    desk.api.describes_rows = TEXTS // 4
    desk.api.finish(state, [], error=ProviderRefused("no") if state == "failed" else None)
    desk.clock.advance(15)

    desk.run(batch.token, steps=4)

    assert tokens_today(desk) == before // 4


@each_early_end
def test_of_a_job_whose_provider_counts_no_rows_counts_what_it_brought(
    desk: Desk, batch: Batch, state: State
) -> None:
    planned = tokens_today(desk)
    desk.step(batch.token)
    desk.api.finish(state, desk.api.answers(desk.api.job)[: TEXTS // 2])
    desk.clock.advance(15)

    closed = desk.run(batch.token, steps=4)

    assert (closed.outcome, closed.stored) == (state, TEXTS // 2)
    assert tokens_today(desk) == pytest.approx(planned / 2, rel=0.1)


@each_early_end
@pytest.mark.parametrize("came", ["short", "long"])
@pytest.mark.parametrize("describes_rows", [0, 10])
def test_of_a_job_that_ended_early_counts_every_text_that_came_with_its_own_tokens(
    empty_desk: Desk, state: State, came: str, describes_rows: int
) -> None:
    desk = empty_desk
    texts = {
        "short": [f"short {n}" for n in range(10)],
        "long": [f"long {n}" + " word" * 99 for n in range(10)],
    }
    for name, some in texts.items():
        desk.writer.store_file(file_row(f"{name}.md", *some))
    batch = desk.make()
    desk.step(batch.token)
    desk.api.describes_rows = describes_rows
    desk.api.finish(state, [each for each in desk.api.answers(desk.api.job) if each.key in keys(texts[came])])
    desk.clock.advance(15)

    closed = desk.run(batch.token, steps=4)

    assert (closed.outcome, closed.stored) == (state, 10)
    query = "SELECT sum(tokens) FROM vectors WHERE state = 'ready'"
    assert (tokens_today(desk),) == desk.writer.connection.execute(query).fetchone()


def test_rows_that_a_job_says_it_did_and_that_did_not_come_count_with_the_average_of_the_rest(
    empty_desk: Desk,
) -> None:
    desk = empty_desk
    long = [f"long {n}" + " word" * 99 for n in range(4)]
    desk.writer.store_file(file_row("a.md", *long, *(f"short {n}" for n in range(16))))
    batch = desk.make()
    desk.step(batch.token)
    desk.api.describes_rows = 12
    desk.api.finish("expired", [each for each in desk.api.answers(desk.api.job) if each.key in keys(long)])

    closed = desk.run(batch.token)

    assert (closed.outcome, closed.stored) == ("expired", 4)
    query = "SELECT sum(iif(state = 'ready', tokens, tokens / 2.0)) FROM vectors"
    assert (tokens_today(desk),) == desk.writer.connection.execute(query).fetchone()


def test_a_process_that_died_while_it_planned_leaves_a_batch_that_is_counted_before_it_is_sent(
    desk: Desk, batch: Batch
) -> None:
    counted = tokens_today(desk)
    with desk.writer.accounts.file.writing() as connection:
        connection.execute("DELETE FROM reservations")
        connection.execute("DELETE FROM spending")

    desk.step(batch.token)

    assert tokens_today(desk) == counted


@pytest.mark.parametrize(("says_so", "share"), [(True, 0.5), (False, 1.0)])
def test_rows_that_the_provider_says_have_failed_are_given_back(
    desk: Desk, batch: Batch, says_so: bool, share: float
) -> None:
    planned = tokens_today(desk)
    desk.step(batch.token)
    answers = desk.api.answers(desk.api.job)
    refused = [replace(each, vector=None, error=ProviderRefused("no")) for each in answers[TEXTS // 2 :]]
    desk.api.finish("done", [*answers[: TEXTS // 2], *refused])
    # An answer of no use is charged all the same.
    desk.api.describes_failed = len(refused) * says_so
    desk.clock.advance(15)

    closed = desk.step(batch.token)

    assert (closed.outcome, closed.stored, closed.failed) == ("partial", TEXTS // 2, TEXTS - TEXTS // 2)
    assert tokens_today(desk) == pytest.approx(planned * share, rel=0.1)


def test_a_batch_pays_the_price_of_batches(desk: Desk) -> None:
    file = desk.writer.accounts.file
    prices = {"a": {"perMillion": 2.0, "batchPerMillion": 1.0}}
    desk.writer.budget = Budget(file, ceilings=Ceilings(max_cost_per_day=1), prices=prices)
    batch = desk.make()

    report = spent(file, Ceilings(), desk.clock.now())["today"]
    price = tokens_left(desk.writer.connection, batch.token) / 1e6

    assert report["cost"] == pytest.approx(price)
    assert batch.cost is None

    # Half of it is done: that is what it cost, also when nothing is reserved any more.
    desk.writer.connection.execute("UPDATE batches SET rows_done = ?", (TEXTS // 2,))
    desk.api.errors["create"].append(ProviderStop("no batches here", status=404))
    desk.run(batch.token, steps=3)

    assert desk.batch(batch.token).cost == pytest.approx(price / 2, rel=0.1)
