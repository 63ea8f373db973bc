import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from memline.shared.batches.planning import BatchRules
from memline.shared.clock import ManualClock
from memline.shared.config.installation import Ceilings
from memline.shared.embedders.protocol import Identity
from memline.shared.index.accounts import AccountFile
from memline.shared.index.driver import scalar
from memline.shared.index_writer import IndexWriter
from memline.shared.providers import RequestCaps
from memline.shared.scheduling import breaker, budget, health
from memline.shared.scheduling.budget import BATCH, QUESTIONS, TEXTS_SHARE, Budget, Charge, spent
from memline.shared.scheduling.ceilings import NO_PRICE, Refusal, refusal_of
from tests.support.index_rows import MODEL_A, answer, backlog, file_row, lease_all

#: 0.02 dollars a million tokens by requests, half of it by batches.
SMALL = Charge(identity=Identity(provider="openai", model="text-embedding-3-small"), account="openai:1")
UNKNOWN = replace(SMALL, identity=Identity(provider="openai", model="m", endpoint="elsewhere"))
CAPS = RequestCaps(max_rows=2, max_tokens=1000)
#: Of the batches; a text of the tests has some four tokens.
RULES = BatchRules(concurrency=9, min_texts=2, max_rows=100, max_bytes=10**9)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[AccountFile]:
    with closing(AccountFile(tmp_path / "accounts.sqlite")) as file:
        yield file


def tokens_today(file: AccountFile, clock: ManualClock) -> float:
    counts = spent(file, Ceilings(), clock.now())["today"]
    return float(counts["tokens"])


def test_a_day_has_a_ceiling_in_dollars_and_the_next_day_another(
    file: AccountFile, clock: ManualClock
) -> None:
    mine = Budget(file, ceilings=Ceilings(max_cost_per_day=0.02))
    most = int(1_000_000 * TEXTS_SHARE)

    taken = mine.reserve(SMALL, "a", most, clock.now())
    refused = mine.reserve(SMALL, "b", 1, clock.now())

    assert taken == most
    assert isinstance(refused, Refusal)
    assert "limits.maxCostPerDay is reached: $0.0190 of $0.0200 today, 2025-06-15 UTC" in refused.reason
    assert "goes on at 2025-06-16 00:00 UTC; or raise limits.maxCostPerDay" in refused.action
    clock.advance(86_400)
    assert mine.reserve(SMALL, "b", 1, clock.now()) == 1


def test_texts_leave_a_little_of_a_day_to_questions(file: AccountFile, clock: ManualClock) -> None:
    mine = Budget(file, ceilings=Ceilings(max_cost_per_day=0.02))
    mine.reserve(SMALL, "a", int(1_000_000 * TEXTS_SHARE), clock.now())
    question = replace(SMALL, mode=QUESTIONS)

    assert mine.reserve(question, "", 50_000, clock.now()) == 50_000
    assert isinstance(mine.reserve(question, "", 1, clock.now()), Refusal)


def test_a_model_without_a_price_has_a_ceiling_in_tokens_and_stops_where_there_is_none(
    file: AccountFile, clock: ManualClock
) -> None:
    in_tokens = Budget(file, ceilings=Ceilings(max_cost_per_day=1, max_tokens_per_day=1000))
    in_money = Budget(file, ceilings=Ceilings(max_cost_per_day=1))
    priced = Budget(file, ceilings=Ceilings(max_cost_per_day=1), prices={"m": {"perMillion": 1.0}})

    assert in_tokens.reserve(UNKNOWN, "a", 950, clock.now()) == 950
    by_tokens = in_tokens.reserve(UNKNOWN, "b", 1, clock.now())
    by_price = in_money.reserve(UNKNOWN, "b", 1, clock.now())

    assert isinstance(by_tokens, Refusal) and by_tokens.key == "maxTokensPerDay"
    assert "950 tokens of 1,000 tokens" in by_tokens.reason
    assert isinstance(by_price, Refusal) and by_price.key == NO_PRICE
    assert "no price is known for m" in by_price.reason and "perMillion" in by_price.action
    assert priced.reserve(UNKNOWN, "b", 1, clock.now()) == 1


def test_a_model_on_this_machine_is_not_counted(file: AccountFile, clock: ManualClock) -> None:
    mine = Budget(file, ceilings=Ceilings(max_cost_per_day=1, max_tokens_per_day=1))
    local = replace(SMALL, identity=Identity(provider="local", model="m", endpoint="file"))
    ollama = replace(SMALL, identity=Identity(provider="ollama", model="m"))

    assert mine.reserve(local, "a", 10**9, clock.now()) == 10**9
    assert mine.reserve(ollama, "a", 10**9, clock.now()) == 10**9
    assert spent(file, Ceilings(), clock.now())["today"]["cost"] == 0


def test_an_answer_sets_the_count_right_once(file: AccountFile, clock: ManualClock) -> None:
    mine = Budget(file, ceilings=Ceilings(max_cost_per_day=1))
    for token in ("refused", "half", "twice", "unknown"):
        mine.reserve(SMALL, token, 100, clock.now())
    # The answer comes on another day: it is of the day of its request.
    clock.advance(86_400)
    for token, tokens in (("refused", 0), ("half", 50), ("twice", 200), ("unknown", None)):
        mine.settle(token, tokens)
        mine.settle(token, tokens)

    report = spent(file, Ceilings(), clock.now())

    assert report["today"]["tokens"] == 0
    assert report["thirtyDays"] == {
        "requests": 3,
        "tokens": 350,
        "cost": pytest.approx(350 * 0.02 / 1e6),
        "unpricedTokens": 0,
    }
    clock.advance(30 * 86_400)
    assert spent(file, Ceilings(), clock.now())["thirtyDays"]["tokens"] == 0


def test_a_request_counts_as_often_as_it_was_perhaps_paid_for(file: AccountFile, clock: ManualClock) -> None:
    mine = Budget(file, ceilings=Ceilings())
    for token, tokens, calls in (("cut", 250, 3), ("refused", 0, 0), ("killed", None, 1)):
        mine.reserve(SMALL, token, 100, clock.now())
        mine.settle(token, tokens, calls)
        mine.settle(token, tokens, calls)

    today = spent(file, Ceilings(), clock.now())["today"]

    assert (today["requests"], today["tokens"]) == (4, 350)


def test_processes_that_reserve_together_never_pass_a_ceiling_also_when_they_are_killed(
    file: AccountFile, clock: ManualClock
) -> None:
    context = get_context("fork")
    children = [context.Process(target=spend_and_die, args=(file.path, number)) for number in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()

    assert [child.exitcode for child in children] == [-signal.SIGKILL] * 4
    # All that fits, and not a token more; what each had begun when it was killed is not there.
    with file.reading() as connection:
        assert scalar(connection, "SELECT sum(tokens) FROM spending") == 945


def spend_and_die(path: Path, number: int) -> None:
    """Reserve until nothing is left; then be killed in the middle of a transaction."""
    file, clock = AccountFile(path), ManualClock()
    mine = Budget(file, ceilings=Ceilings(max_tokens_per_day=1000))
    step = 0
    while mine.reserve(UNKNOWN, f"{number}-{step}", 7, clock.now()) == 7:
        step += 1
    with file.writing() as connection:
        connection.execute("UPDATE spending SET tokens = 0, unpriced = 0")
        os.kill(os.getpid(), signal.SIGKILL)


# With an index.


@pytest.fixture
def writer(tmp_path: Path, clock: ManualClock) -> Iterator[IndexWriter]:
    with closing(IndexWriter(tmp_path / "main.sqlite", clock=clock)) as writer:
        writer.retarget(MODEL_A)
        writer.store_file(file_row("a.md", *(f"text number {n:02}" for n in range(20))))
        yield writer


def limit(writer: IndexWriter, **ceilings: float) -> None:
    prices = {"a": {"perMillion": 1.0}} if any("cost" in name for name in ceilings) else {}
    made = Ceilings(**ceilings)
    writer.budget = Budget(writer.accounts.file, ceilings=made, prices=prices)


def lease(writer: IndexWriter) -> int:
    """Answer all requests that are sent; return how many texts they had."""
    requests = writer.lease(CAPS, credits=100, only_full=False)
    answer(writer, requests)
    for request in requests:
        writer.settle(request.lease, None)
    return sum(len(request.texts) for request in requests)


def tokens_of_a_text(writer: IndexWriter) -> int:
    (tokens,) = writer.connection.execute("SELECT DISTINCT tokens FROM vectors").fetchone()
    return int(tokens)


def test_texts_wait_at_the_ceiling_and_go_on_the_next_day(writer: IndexWriter, clock: ManualClock) -> None:
    each = tokens_of_a_text(writer)
    limit(writer, max_tokens_per_day=10 * each)

    first = lease(writer)
    mark = refusal_of(writer.connection, writer.budget.ceilings, clock.now())
    again = lease(writer)
    clock.advance(86_400)
    is_over = refusal_of(writer.connection, writer.budget.ceilings, clock.now()) is None
    next_day = lease(writer)

    # Nine and a half are for texts, the rest is for questions. A request is as small as what is left.
    assert (first, again, next_day) == (9, 0, 9)
    assert mark is not None and mark.key == "maxTokensPerDay"
    assert is_over
    assert backlog(writer).wanted == 2


def test_a_ceiling_that_was_raised_is_waited_for_no_longer(writer: IndexWriter, clock: ManualClock) -> None:
    limit(writer, max_tokens_per_day=tokens_of_a_text(writer))
    assert lease(writer) == 0

    limit(writer, max_tokens_per_day=10**6)

    assert refusal_of(writer.connection, writer.budget.ceilings, clock.now()) is None
    assert lease(writer) == 20
    assert refusal_of(writer.connection, writer.budget.ceilings, clock.now()) is None


def test_a_batch_is_as_large_as_the_ceiling_allows_and_pays_the_price_of_batches(
    writer: IndexWriter, clock: ManualClock
) -> None:
    each = tokens_of_a_text(writer)
    limit(writer, max_cost_per_day=12 * each / 1e6 / TEXTS_SHARE)

    clock.advance(10)
    writer.plan_batches(RULES, only=MODEL_A, has_pending_files=False)
    clock.advance(10)
    plan = writer.plan_batches(RULES, only=MODEL_A, has_pending_files=False)
    requests = writer.lease(CAPS, credits=9, only_full=False, held=plan.held)

    rows = [rows for (rows,) in writer.connection.execute("SELECT rows FROM batches")]
    assert rows == [12]
    assert requests == []
    assert refusal_of(writer.connection, writer.budget.ceilings, clock.now()) is not None
    assert tokens_today(writer.accounts.file, clock) == 12 * each


def test_a_probe_counts_and_goes_out_at_no_ceiling(writer: IndexWriter, clock: ManualClock) -> None:
    limit(writer, max_tokens_per_day=1)
    stopped = breaker.after_stop(breaker.Health(), breaker.REQUEST_RULES, "no", "", clock.now() - 1_000)
    health.update(writer.accounts, "openai", health.REQUESTS, clock.now(), lambda _: stopped)

    assert lease_all(writer) == []
    limit(writer, max_tokens_per_day=1000)
    (probe,) = lease_all(writer)
    assert probe.is_probe
    assert tokens_today(writer.accounts.file, clock) == tokens_of_a_text(writer)
    assert budget.BATCH == BATCH
