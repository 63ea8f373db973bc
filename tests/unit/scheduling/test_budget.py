"""Embedding is counted at the lease, corrected by the answer, and kept below the limits of a day."""

import os
import signal
from contextlib import closing
from multiprocessing import get_context

import msgspec
import pytest

from memline.shared.config.installation import Ceilings, PriceEntry
from memline.shared.embedders.protocol import Identity
from memline.shared.index.accounts import AccountFile
from memline.shared.index_writer import IndexWriter
from memline.shared.providers import RequestCaps
from memline.shared.scheduling.budget import QUESTIONS, TEXTS_SHARE, Budget, Charge, spent
from memline.shared.scheduling.leases import Answer
from memline.shared.sources.tokens import estimate_tokens
from tests.support.clock import ManualClock
from tests.support.index_rows import MODEL_A, answer, fail, file_row, retarget

#: 0.02 dollars a million tokens by requests.
SMALL = Charge(identity=Identity(provider="openai", model="text-embedding-3-small"), account="openai:1")
UNKNOWN = Charge(identity=Identity(provider="openai", model="m", endpoint="elsewhere"), account="openai:1")
CAPS = RequestCaps(max_rows=2, max_tokens=1000)
NOW = 1_750_000_000.0
DAY = "2025-06-15"

#: Tokens of each text of the index.
TEXT_TOKENS = estimate_tokens("text number 00")


@pytest.fixture
def file(tmp_path):
    with closing(AccountFile(tmp_path / "accounts.sqlite")) as file:
        yield file


def today(file, now=NOW):
    counts = spent(file, Ceilings(), now)["today"]
    return counts


def test_texts_leave_a_little_of_a_day_to_questions(file):
    mine = Budget(file, Ceilings(max_cost_per_day=0.02))
    mine.take(SMALL, int(1_000_000 * TEXTS_SHARE), NOW)
    question = msgspec.structs.replace(SMALL, mode=QUESTIONS)

    assert mine.take(question, 50_000, NOW) is None
    assert mine.take(question, 1, NOW) is not None


def test_a_model_without_a_price_has_a_limit_in_tokens_and_stops_where_there_is_none(
    file,
):
    in_tokens = Budget(file, Ceilings(max_cost_per_day=1, max_tokens_per_day=1000))
    in_money = Budget(file, Ceilings(max_cost_per_day=1))
    priced = Budget(file, Ceilings(max_cost_per_day=1), prices={"m": PriceEntry(per_million=1.0)})

    assert in_tokens.take(UNKNOWN, 950, NOW) is None
    by_tokens, by_price = in_tokens.take(UNKNOWN, 1, NOW), in_money.take(UNKNOWN, 1, NOW)

    assert by_tokens is not None and "limits.maxTokensPerDay is reached: 950 tokens of" in by_tokens.what
    assert by_price is not None and "perMillion" in by_price.action
    assert by_price.what.startswith("no price is known for m,")
    assert priced.take(UNKNOWN, 1, NOW) is None


@pytest.mark.parametrize("provider", ["local", "ollama"])
def test_a_model_on_this_machine_costs_nothing(file, provider):
    mine = Budget(file, Ceilings(max_cost_per_day=1, max_tokens_per_day=1))
    charge = Charge(identity=Identity(provider=provider, model="m"), account=provider)

    assert mine.take(charge, 10**9, NOW) is None
    assert today(file)["cost"] == 0


def test_a_correction_counts_on_the_day_of_the_request_and_the_long_sum_forgets_it(file):
    mine = Budget(file, Ceilings(max_cost_per_day=1))
    mine.take(SMALL, 100, NOW)
    mine.correct(SMALL, DAY, -50)

    report = spent(file, Ceilings(), NOW + 86_400)

    assert report["today"]["tokens"] == 0
    cost = pytest.approx(50 * 0.02 / 1e6)
    assert report["thirtyDays"] == {"requests": 1, "tokens": 50, "cost": cost, "unpricedTokens": 0}
    assert [(each["provider"], each["model"]) for each in report["models"]] == [
        ("openai", "text-embedding-3-small")
    ]
    assert spent(file, Ceilings(), NOW + 31 * 86_400)["thirtyDays"]["tokens"] == 0


def test_processes_that_count_together_never_pass_a_limit_also_when_they_are_killed(
    file,
):
    context = get_context("fork")
    children = [context.Process(target=spend_and_die, args=(file.path,)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()

    assert [child.exitcode for child in children] == [-signal.SIGKILL] * 4
    # All that fits, and not a token more.
    assert today(file)["tokens"] == 945


def spend_and_die(path):
    """Spend until nothing is left; then be killed while the file is held."""
    file = AccountFile(path)
    mine = Budget(file, Ceilings(max_tokens_per_day=1000))
    while mine.take(UNKNOWN, 7, NOW) is None:
        pass
    with file.writing():
        os.kill(os.getpid(), signal.SIGKILL)


# With an index.


@pytest.fixture
def writer(tmp_path, clock):
    with closing(IndexWriter(tmp_path / "main.sqlite", clock=clock)) as writer:
        retarget(writer, MODEL_A)
        writer.store_file(file_row("a.md", *(f"text number {n:02}" for n in range(20))))
        yield writer


@pytest.fixture
def clock():
    return ManualClock()


def limit(writer, tokens):
    writer.budget = Budget(writer.accounts.file, Ceilings(max_tokens_per_day=tokens))


def lease(writer):
    """Answer all requests that are sent; return how many texts they had."""
    requests = writer.lease(CAPS, credits=100, only_full=False)
    answer(writer, requests)
    return sum(len(request.texts) for request in requests)


def test_a_limit_that_leaves_less_than_a_text_uses_up_no_probe(writer, clock):
    (request,) = writer.lease(CAPS, credits=1, only_full=False)
    fail(writer, request, "stop")
    clock.advance(60)
    limit(writer, (2 * TEXT_TOKENS + 2) / TEXTS_SHARE)
    assert lease(writer) == 0

    limit(writer, 10**6)

    assert lease(writer) > 0


@pytest.mark.parametrize(
    ("used", "calls", "requests"), [(0, 0, 0), (3, 1, 1), (250, 3, 3)], ids=["unsent", "usage", "cut"]
)
def test_the_first_answer_of_a_request_corrects_its_count_once(writer, clock, used, calls, requests):
    (request,) = writer.lease(CAPS, credits=1, only_full=False)
    # The answer comes on another day: it is of the day of its request.
    counted, began = today(writer.accounts.file, clock.now())["tokens"], clock.now()
    clock.advance(86_400)

    came = Answer(identity=request.identity, lease=request.lease, used_tokens=used, paid_calls=calls)
    writer.store_vectors(came)
    writer.store_vectors(came)

    after = today(writer.accounts.file, began)
    assert counted == 2 * TEXT_TOKENS
    assert (after["tokens"], after["requests"]) == (used, requests)
