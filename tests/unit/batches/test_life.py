"""A batch survives kills, lost answers and odd results at each of three providers: one job, all vectors."""

import itertools
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from memline.shared.batches.life import Life
from memline.shared.batches.plan import plan
from memline.shared.config.installation import Ceilings
from memline.shared.config.schema import Batch as Settings
from memline.shared.embedders.choice import choose
from memline.shared.embedders.http import HttpClient
from memline.shared.index import batches, identities
from memline.shared.index.vectors import Backlog
from memline.shared.scheduling import health, jobs
from memline.shared.scheduling.budget import spent
from tests.support.embedding_server import EmbeddingServer, GeminiServer, VoyageServer
from tests.support.index_rows import backlog, file_row, make_job, retarget
from tests.unit.embedders.conftest import KEY, make_settings

SERVERS = {"openai": EmbeddingServer, "voyage": VoyageServer, "gemini": GeminiServer}
TEXTS = 12


class Killed(BaseException):
    """Stands for the end of the process."""


class Desk(SimpleNamespace):
    """An index with texts of a job, the server of a provider, and what a dispatcher and a worker do."""

    def plan(self):
        with self.writer.session() as (connection, now):
            target = identities.target(connection)
            return plan(self.writer.accounts, self.writer.budget, target, self.settings, now)

    def batch(self):
        found, *_ = batches.listed(self.writer.connection)
        return found

    def health(self):
        return health.read(self.writer.accounts, self.identity.provider, health.BATCH)

    def step(self):
        """Let the worker do what is due, as the process that takes over after a kill does."""
        due, _ = batches.due(self.writer.connection, self.clock.now())
        for token in due:
            life = Life(
                accounts=self.writer.accounts,
                budget=self.writer.budget,
                settings=with_batches(self.agent, self.settings),
                clock=self.clock,
                token=token,
                model=identities.target(self.writer.connection),
            )
            try:
                life.advance()
            except Killed:
                self.kills += 1

    def run(self, steps=60):
        """Go on until the batch is closed."""
        for _ in range(steps):
            if not self.batch().is_open:
                break
            self.clock.advance(max(self.batch().due - self.clock.now(), 0.5))
            self.step()
        return self.batch()

    @property
    def log(self):
        return self.server.log()["batch"]


@pytest.fixture(params=SERVERS)
def desk(request, writer, clock):
    with SERVERS[request.param](dims=16, key=KEY) as server:
        remote = {"api_key": KEY, "base_url": server.url}
        agent = make_settings(provider=request.param, remote=remote)
        settings = Settings(enabled=True, min_texts=3, concurrency=2, poll_interval_ms=1000)
        identity = choose(agent).identity
        made = Desk(writer=writer, clock=clock, server=server, agent=agent, identity=identity, kills=0)
        made.settings = settings
        retarget(writer, identity)
        store(made, TEXTS)
        yield made


def with_batches(agent, settings):
    remote = replace(agent.memory.remote, batch=settings)
    return replace(agent, memory=replace(agent.memory, remote=remote))


def store(desk, count, *, is_edit=False, name="a.md"):
    """Store a file of a job, or a live edit, with so many texts."""
    job = "" if is_edit else make_job(desk.writer, name).token
    desk.writer.store_file(file_row(name, *(f"{name} text {n}" for n in range(count))), job=job)


def fail_at(monkeypatch, number, how):
    """Kill the process before or after the call of this number, or lose its answer."""
    numbers = itertools.count(1)
    call, lines = HttpClient.call, HttpClient.lines

    def faulty(client, *arguments, **options):
        mine = next(numbers)
        if mine == number and how == "before":
            raise Killed
        reply = call(client, *arguments, **options)
        if mine == number:
            raise Killed
        return reply

    def faulty_lines(client, *arguments, **options):
        if next(numbers) == number:
            raise Killed
        yield from lines(client, *arguments, **options)

    monkeypatch.setattr(HttpClient, "call", faulty)
    monkeypatch.setattr(HttpClient, "lines", faulty_lines)


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 8))
def test_a_kill_before_or_after_any_call_makes_one_job_and_loses_no_vector(desk, monkeypatch, number, how):
    desk.server.control({"batch": {"looks": 2}})
    fail_at(monkeypatch, number, how)
    desk.plan()

    batch = desk.run()

    assert (batch.state, batch.outcome, batch.stored) == ("closed", "done", TEXTS)
    assert len(desk.log["jobs"]) == 1
    assert backlog(desk.writer) == Backlog(ready=TEXTS)
    assert desk.kills == 1


@pytest.mark.parametrize(
    ("call", "faults"),
    [
        ("upload", ["500", "429:1", "reset"]),
        ("create", ["500", "429:1", "reset-after"]),
        ("create", ["reset", "html"]),
        ("create", ["500-after"]),
        ("look", ["500", "429:1", "html", "reset"]),
        ("look", ["404", "404"]),
        ("output", ["500", "429:1", "html", "reset"]),
        ("output", ["half", "half"]),
        # What a proxy answers for a while is not what the job made.
        ("output", ["html"] * 6),
        ("delete", ["500"]),
    ],
)
def test_a_call_that_fails_some_times_costs_nothing_but_time(desk, call, faults):
    desk.server.control({"batch": {"faults": {call: faults}}})
    desk.plan()

    batch = desk.run()

    assert (batch.outcome, batch.stored, len(desk.log["jobs"])) == ("done", TEXTS, 1)
    assert desk.server.repeated() == {}


def test_a_lost_create_and_a_list_that_is_down_make_one_job(desk):
    desk.server.control({"batch": {"faults": {"create": ["reset-after"], "list": ["500"] * 20}}})
    desk.plan()

    assert desk.run().outcome == "done"
    assert len(desk.log["jobs"]) == 1


@pytest.mark.parametrize(
    ("control", "outcome", "failures"),
    [
        ({"end": "failed"}, "failed", 1),
        ({"end": "expired", "done": 5}, "expired", 1),
        ({"end": "cancelled", "done": 5}, "cancelled", 0),
        ({"rows": "missing:text 3"}, "partial", 0),
        ({"rows": "permuted,duplicate,foreign,not-json,no-object,nul,blank,huge:1"}, "done", 0),
        ({"rows": "nan:text 3,zero:text 4,empty:text 5,no-key:text 6,429:text 7"}, "partial", 0),
        ({"rows": "wrong-dims:text 0"}, "partial", 0),
        ({"rows": "refused:text 3"}, "partial", 0),
        ({"faults": {"upload": "500"}}, "failed", 1),
        ({"faults": {"create": "400:no"}}, "failed", 1),
    ],
)
def test_what_a_job_brings_is_kept_and_the_rest_goes_in_requests(desk, control, outcome, failures):
    desk.server.control({"batch": control})
    desk.plan()

    batch = desk.run()

    assert (batch.state, batch.outcome) == ("closed", outcome)
    assert backlog(desk.writer) == Backlog(ready=batch.stored, wanted=TEXTS - batch.stored)
    assert bool(batch.error) == (outcome != "done")
    assert desk.health().failures == failures
    assert desk.log["files"] == 0 or "done" not in control or outcome == "failed"
    # A second batch would end in the same way, unless there was no job.
    desk.clock.advance(7_200)
    comes_again = outcome == "cancelled" or "faults" in control
    assert (desk.plan(), len(batches.open_batches(desk.writer.connection))) == (False, comes_again)


def test_batches_rest_after_failures_and_one_tries_again(desk):
    desk.server.control({"batch": {"end": "failed"}})
    for number in range(desk.settings.failure_limit):
        store(desk, TEXTS, name=f"{number}.md")
        desk.plan()
        desk.run()

    assert desk.health().state == "open"
    store(desk, TEXTS, name="more.md")
    assert not desk.plan()
    desk.clock.advance(60 * desk.settings.cool_down_minutes + 1)
    desk.server.control({"batch": {"end": "completed"}})
    desk.plan()
    assert desk.run().outcome == "done"
    assert desk.health().state == "closed"


@pytest.mark.parametrize("call", ["upload", "create"])
def test_a_bad_key_pauses_the_account_and_a_server_without_batches_gets_requests(desk, call):
    desk.server.control({"batch": {"faults": {call: "401"}}})
    desk.plan()

    assert desk.run().outcome == "failed"
    requests = health.read(desk.writer.accounts, desk.identity.provider)
    assert requests.paused and "key" in requests.action
    desk.server.control({"batch": {"enabled": False}})
    health.resume(desk.writer.accounts, desk.identity.provider)
    desk.plan()
    assert desk.run().outcome == "failed"
    assert desk.health().state == "open"


def test_a_job_that_its_provider_does_not_know_waits_for_the_operator(desk):
    desk.server.control({"batch": {"looks": 3, "faults": {"look": "404"}}})
    desk.plan()

    waiting = desk.run(steps=12)

    assert waiting.is_open and "jobs cancel" in waiting.action
    batches.request_cancel(desk.writer.connection, waiting.token, reason="by hand", now=desk.clock.now())
    assert desk.run().outcome == "cancelled"
    assert backlog(desk.writer) == Backlog(wanted=TEXTS)


@pytest.mark.parametrize(("looks", "outcome"), [(10_000, "expired"), (2, "cancelled")])
def test_a_job_that_takes_too_long_or_is_not_wanted_is_cancelled_at_its_provider(desk, looks, outcome):
    desk.server.control({"batch": {"looks": 10_000, "done": 3}})
    desk.plan()
    desk.step()
    if outcome == "cancelled":
        token = desk.batch().token
        batches.request_cancel(desk.writer.connection, token, reason="by hand", now=desk.clock.now())

    batch = desk.run(steps=2_000)

    assert (batch.outcome, desk.log["calls"]["cancel"]) == (outcome, 1)
    assert backlog(desk.writer).wanted == TEXTS - batch.stored


def test_a_backfill_that_is_worth_it_waits_for_a_batch(desk):
    desk.settings = Settings(enabled=True, min_texts=TEXTS + 1, concurrency=1)
    assert (desk.plan(), batches.listed(desk.writer.connection)) == (False, [])

    desk.settings = Settings(enabled=True, min_texts=TEXTS, concurrency=1)
    assert not desk.plan()
    store(desk, TEXTS, name="b.md")

    # There is no place for a second one.
    assert desk.plan()
    assert desk.batch().rows == TEXTS


def test_live_edits_and_later_attempts_go_in_requests(desk):
    desk.server.control({"batch": {"end": "failed"}})
    desk.plan()
    desk.run()
    store(desk, TEXTS, is_edit=True, name="edit.md")

    assert not desk.plan()
    assert batches.open_batches(desk.writer.connection) == []


def test_a_backfill_is_held_while_files_of_a_job_are_to_be_read(desk):
    with desk.writer.transaction() as (connection, _):
        jobs.create(connection, jobs.REINDEX, now_ns=1, files=[("b.md", 9)])

    assert desk.plan()
    assert batches.open_batches(desk.writer.connection) == []


def test_a_batch_is_counted_at_its_intent_and_set_to_the_rows_that_were_made(desk):
    desk.server.control({"batch": {"end": "expired", "done": 6}})
    desk.plan()
    counted = desk.batch().tokens

    desk.run()
    today = spent(desk.writer.accounts.file, Ceilings(), desk.clock.now())["today"]
    assert today["tokens"] == counted // 2
