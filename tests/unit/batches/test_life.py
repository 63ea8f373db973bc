"""A batch survives kills, lost answers and odd results at each of three providers: one job, all vectors."""

import dataclasses
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
from memline.shared.index.rows import VectorRow
from memline.shared.index.vectors import Backlog
from memline.shared.scheduling import health, jobs
from memline.shared.scheduling.budget import spent
from memline.shared.scheduling.leases import Answer
from tests.support.embedding_server import EmbeddingServer, GeminiServer, VoyageServer
from tests.support.index_rows import backlog, file_row, make_job, retarget, vector
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
        for token, _ in due:
            life = Life(
                accounts=self.writer.accounts,
                budget=self.writer.budget,
                store=self.writer.store_vectors,
                settings=with_batches(self.agent, self.settings),
                clock=self.clock,
                token=token,
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
    assert [job.state for job in jobs.listed(desk.writer.connection)] == ["done"]
    assert desk.kills == 1


@pytest.mark.parametrize(
    ("call", "faults"),
    [
        ("upload", ["500", "429:1", "reset"]),
        ("create", ["500-after"]),
        ("look", ["404", "404", "html"]),
        # What a proxy answers for a while is not what the job made.
        ("output", ["half", "half", *["html"] * 4]),
    ],
)
def test_a_call_that_fails_some_times_costs_nothing_but_time(desk, call, faults):
    desk.server.control({"batch": {"faults": {call: faults}}})
    desk.plan()

    batch = desk.run()

    assert (batch.outcome, batch.stored, len(desk.log["jobs"])) == ("done", TEXTS, 1)
    assert desk.server.repeated() == {}


@pytest.mark.parametrize(
    ("control", "outcome", "stored", "failures"),
    [
        ({"end": "failed"}, "failed", 0, 1),
        ({"end": "expired", "done": 5}, "expired", 5, 1),
        ({"end": "cancelled", "done": 5}, "cancelled", 5, 0),
        ({"rows": "permuted,duplicate,foreign,not-json"}, "done", TEXTS, 0),
        ({"rows": "missing:text 3,nan:text 4,wrong-dims:text 0,refused:text 5"}, "partial", TEXTS - 4, 0),
        ({"faults": {"upload": "500"}}, "failed", 0, 1),
        ({"faults": {"create": "400:no"}}, "failed", 0, 1),
    ],
)
def test_what_a_job_brings_is_kept_and_the_rest_goes_in_requests(desk, control, outcome, stored, failures):
    desk.server.control({"batch": control})
    desk.plan()
    counted = desk.batch().tokens

    batch = desk.run()

    assert (batch.state, batch.outcome, batch.stored) == ("closed", outcome, stored)
    assert backlog(desk.writer) == Backlog(ready=stored, wanted=TEXTS - stored)
    assert bool(batch.error) == (outcome != "done")
    assert desk.health().failures == failures
    assert desk.log["files"] == 0 or "create" in control.get("faults", {})
    # Counted at its intent, and set to the rows that were made.
    if "rows" not in control:
        today = spent(desk.writer.accounts.file, Ceilings(), desk.clock.now())["today"]
        assert today["tokens"] == counted * stored // TEXTS
    # A second batch would end in the same way, unless there was no job.
    desk.clock.advance(7_200)
    comes_again = outcome == "cancelled" or "faults" in control
    assert (desk.plan(), len(batches.open_batches(desk.writer.connection))) == (False, comes_again)


def test_a_job_whose_vectors_have_other_dimensions_has_failed_and_says_so(desk):
    row = VectorRow(hash=b"another text", vector=vector(*[0.25] * 16))
    desk.writer.store_vectors(Answer(identity=desk.identity, vectors=(row,)))
    desk.server.control({"batch": {"rows": "wrong-dims"}})
    desk.plan()

    batch = desk.run()

    assert (batch.outcome, batch.error) == ("failed", "15 dimensions came, the index has 16")
    assert desk.health().failures == 1


@pytest.mark.parametrize("odd", ["n/a", ["5"]])
def test_a_count_that_is_no_number_keeps_no_job_from_being_found(desk, monkeypatch, odd):
    shown = desk.server.wire.job
    monkeypatch.setattr(desk.server.wire, "job", lambda job: shown(dataclasses.replace(job, done=odd)))
    desk.server.control({"batch": {"faults": {"create": "500-after"}}})
    desk.plan()

    assert (desk.run().outcome, len(desk.log["jobs"])) == ("done", 1)


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
    assert desk.health().paused


@pytest.mark.parametrize("fault", ["401", "404"])
def test_a_job_that_its_provider_does_not_know_waits_for_the_operator(desk, fault):
    desk.server.control({"batch": {"looks": 3, "faults": {"look": fault}}})
    desk.plan()

    waiting = desk.run(steps=12)

    assert waiting.is_open and "jobs cancel" in waiting.action
    batches.request_cancel(desk.writer.connection, waiting.token, reason="by hand", now=desk.clock.now())
    cancelled = desk.run()

    assert (cancelled.outcome, cancelled.action) == ("cancelled", "")
    assert backlog(desk.writer) == Backlog(wanted=TEXTS)
    # The provider took the texts: only this job is out of reach.
    requests = health.read(desk.writer.accounts, desk.identity.provider)
    assert not requests.paused and not desk.health().paused


@pytest.mark.parametrize(
    ("looks", "is_asked", "outcome", "cancels"),
    [(10_000, False, "expired", 1), (10_000, True, "cancelled", 1), (0, True, "done", 0)],
)
def test_a_job_that_takes_too_long_or_is_not_wanted_is_cancelled(desk, looks, is_asked, outcome, cancels):
    desk.server.control({"batch": {"looks": looks}})
    desk.plan()
    desk.step()
    if is_asked:
        token = desk.batch().token
        batches.request_cancel(desk.writer.connection, token, reason="by hand", now=desk.clock.now())

    batch = desk.run(steps=2_000)

    # One that has ended meanwhile is collected.
    assert (batch.outcome, desk.log["calls"].get("cancel", 0)) == (outcome, cancels)
    assert backlog(desk.writer).wanted == TEXTS - batch.stored


def test_a_batch_that_no_text_needs_any_more_makes_no_job(desk):
    desk.plan()
    desk.writer.store_file(file_row("a.md", at=2))

    assert desk.run().outcome == "cancelled"
    assert desk.log["calls"] == {}


def test_a_backfill_that_is_worth_it_waits_for_a_batch(desk):
    desk.settings = Settings(enabled=True, min_texts=TEXTS + 1, concurrency=1)
    assert (desk.plan(), batches.listed(desk.writer.connection)) == (False, [])
    desk.settings = Settings(enabled=True, min_texts=TEXTS, concurrency=1)
    store(desk, TEXTS, is_edit=True, name="edit.md")
    with desk.writer.transaction() as (connection, _):
        job = jobs.create(connection, jobs.REINDEX, now_ns=1, files=[("b.md", 9)])
    assert (desk.plan(), batches.listed(desk.writer.connection)) == (True, [])

    desk.writer.store_file(file_row("b.md", *(f"b text {n}" for n in range(TEXTS))), job=job.token)
    desk.plan()
    store(desk, TEXTS, name="c.md")

    # There is no place for a second one; a live edit goes in a request.
    assert desk.plan()
    assert desk.batch().rows == 2 * TEXTS


def test_a_step_that_is_due_is_called_for_once_and_the_next_one_at_once(desk):
    desk.plan()
    calls = [desk.writer.due_batches()[0] for _ in range(2)]
    desk.step()
    desk.clock.advance(2)

    assert [*calls, desk.writer.due_batches()[0]] == [True, False, True]
