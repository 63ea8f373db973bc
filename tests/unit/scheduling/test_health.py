from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memline.shared.clock import ManualClock
from memline.shared.config.schema import Batch
from memline.shared.index.accounts import Accounts
from memline.shared.index.driver import transaction
from memline.shared.index.rows import LearnedCaps
from memline.shared.index.vectors import Backlog
from memline.shared.index_writer import IndexWriter
from memline.shared.providers import RequestCaps
from memline.shared.scheduling import breaker, health, leases
from memline.shared.scheduling.breaker import CLOSED, HALF_OPEN, OPEN, Health, Rules
from memline.shared.scheduling.embed_results import Failure
from memline.shared.scheduling.health import BATCH
from memline.shared.scheduling.leases import LEASE_S, Request
from tests.support.index_rows import (
    BATCH_RULES,
    MODEL_A,
    MODEL_B,
    answer,
    backlog,
    batch_failed,
    fail,
    file_row,
    lease_all,
)

SMALL = RequestCaps(max_rows=2, max_tokens=1000, max_text_tokens=100)
RULES = Rules(limit=3, open_s=100, max_open_s=250, first_cooldown_s=1)
NOW = 1_750_000_000.0


def opened(was: Health | None = None, now: float = NOW) -> Health:
    return breaker.after_stop(was or Health(), RULES, "no", "pay", now)


def half_open(now: float = NOW) -> Health:
    after = breaker.begin_probe(opened(now=now - 100), "probe", now)
    assert after is not None
    return after


def test_failures_in_a_row_open_it_and_cooldowns_grow_between_them() -> None:
    one = breaker.after_failure(Health(), RULES, "away", "wait", NOW)
    two = breaker.after_failure(one, RULES, "away", "wait", NOW + 1)
    three = breaker.after_failure(two, RULES, "away", "wait", NOW + 3)

    assert (one.state, one.retry_at, two.retry_at) == (CLOSED, NOW + 1, NOW + 3)
    assert (three.state, three.failures, three.retry_at) == (OPEN, 3, 0)
    assert (three.reason, three.action, three.since, three.probe_at) == ("away", "wait", NOW + 3, NOW + 103)


def test_a_success_between_failures_counts_them_anew() -> None:
    two = Health(failures=2, reason="away")

    after = breaker.after_success(two)

    assert after == Health()


def test_what_fails_together_counts_once() -> None:
    one = breaker.after_failure(Health(), RULES, "away", "", NOW)

    assert breaker.after_failure(one, RULES, "away", "", NOW + 0.5) == one


def test_a_definite_no_opens_it_at_once_with_what_to_do() -> None:
    after = opened()

    assert (after.state, after.reason, after.action) == (OPEN, "no", "pay")
    assert after.is_stuck(NOW + 99)
    assert not after.is_stuck(NOW + 100)


def test_a_wait_that_the_provider_asked_for_is_not_a_failure() -> None:
    after = breaker.after_trouble(Health(), "busy", "", 60, NOW)

    assert (after.state, after.failures, after.retry_at) == (CLOSED, 0, NOW + 60)


def test_only_one_probe_is_sent_and_only_when_the_cooldown_is_over() -> None:
    was = opened()

    early = breaker.begin_probe(was, "a", NOW + 99)
    first = breaker.begin_probe(was, "a", NOW + 100)
    assert first is not None
    second = breaker.begin_probe(first, "b", NOW + 10_000)

    assert early is None
    assert (first.state, first.probe) == (HALF_OPEN, "a")
    assert second is None


def test_a_probe_that_works_closes_it() -> None:
    assert breaker.after_success(half_open(), probe="probe") == Health()


def test_each_probe_that_fails_doubles_the_cool_down_up_to_the_longest() -> None:
    cool_downs = []
    state, now = opened(), NOW
    for _ in range(4):
        now = state.probe_at
        probing = breaker.begin_probe(state, "probe", now)
        assert probing is not None
        state = breaker.after_failure(probing, RULES, "still", "", now, probe="probe")
        cool_downs.append(state.probe_at - now)

    assert cool_downs == [200, 250, 250, 250]
    assert state.since == NOW
    assert state.reason == "still"


def test_a_provider_that_is_dead_for_years_does_not_overflow() -> None:
    was = Health(state=HALF_OPEN, opens=100_000, probe="p")

    assert breaker.after_failure(was, RULES, "", "", NOW, probe="p").probe_at == NOW + 250


def test_a_probe_answered_with_retry_after_is_followed_by_one_at_that_time() -> None:
    after = breaker.after_trouble(half_open(), "busy", "", 60, NOW, probe="probe")

    assert (after.state, after.probe_at, after.opens) == (OPEN, NOW + 60, 1)


def test_a_lost_probe_is_followed_by_another_at_once() -> None:
    after = breaker.after_lost_probe(half_open(), "probe", NOW)

    assert (after.state, after.probe_at) == (OPEN, NOW)


def test_a_probe_whose_text_is_refused_has_found_the_provider_well() -> None:
    assert breaker.after_refused_text(half_open(), probe="probe") == Health()
    assert breaker.after_refused_text(Health(failures=1)) == Health(failures=1)


@pytest.mark.parametrize("was", [opened(), half_open()], ids=[OPEN, HALF_OPEN])
def test_what_comes_late_from_before_it_opened_changes_nothing(was: Health) -> None:
    later = NOW + 1

    assert breaker.after_success(was, probe="old") == was
    assert breaker.after_failure(was, RULES, "x", "", later, probe="old") == was
    assert breaker.after_stop(was, RULES, "x", "", later, probe="old") == was
    assert breaker.after_trouble(was, "x", "", 5, later, probe="old") == was
    assert breaker.after_lost_probe(was, "old", later) == was


def test_a_manual_pause_allows_no_probe_until_it_is_ended(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    with transaction(writer.connection):
        health.set_paused(writer.accounts, "openai", True, health.REQUESTS)
    paused = lease_all(writer)
    with transaction(writer.connection):
        health.set_paused(writer.accounts, "openai", False, health.REQUESTS)

    assert paused == []
    assert len(lease_all(writer)) == 1


def test_on_trial_one_more_failure_opens_it_and_a_success_forgives() -> None:
    trial = breaker.on_trial(opened(), RULES)

    assert (trial.state, trial.reason, trial.paused) == (CLOSED, "", False)
    assert breaker.after_failure(trial, RULES, "again", "", NOW).state == OPEN
    assert breaker.after_success(trial) == Health()


def test_caps_and_a_manual_pause_outlive_every_change() -> None:
    was = Health(max_rows=5, max_tokens=7, manual=True)

    after = breaker.on_trial(breaker.after_success(opened(was)), RULES)

    assert (after.max_rows, after.max_tokens, after.manual) == (5, 7, True)
    assert breaker.begin_probe(opened(was), "p", NOW + 10_000) is None


def test_a_request_that_took_too_long_halves_the_next_and_quick_answers_let_them_grow_again() -> None:
    slow = breaker.after_sizes(Health(), LearnedCaps(slow_rows=64))
    same = breaker.after_sizes(slow, LearnedCaps(slow_rows=128))
    smaller = breaker.after_sizes(same, LearnedCaps(slow_rows=32))
    sizes = []
    grown = smaller
    for _ in range(2 * breaker.GROW_AFTER):
        grown = breaker.after_sizes(grown, LearnedCaps(quick_rows=grown.shrunk_rows))
        sizes.append(grown.shrunk_rows)

    assert (slow.shrunk_rows, same.shrunk_rows, smaller.shrunk_rows) == (64, 64, 32)
    assert sizes == [32, 32, 32, 64, 64, 64, 64, 128]


def test_answers_to_small_requests_and_slow_answers_let_nothing_grow() -> None:
    shrunk = Health(shrunk_rows=32, quick_answers=breaker.GROW_AFTER - 1)

    assert breaker.after_sizes(shrunk, LearnedCaps(quick_rows=31)) == shrunk
    assert breaker.after_sizes(shrunk, LearnedCaps()) == shrunk
    assert breaker.after_sizes(shrunk, LearnedCaps(slow_rows=32)).quick_answers == 0


def test_a_size_that_no_provider_takes_is_no_cap() -> None:
    shrunk = Health(shrunk_rows=breaker.MAX_SHRUNK_ROWS // 2, quick_answers=breaker.GROW_AFTER - 1)

    assert breaker.after_sizes(shrunk, LearnedCaps(quick_rows=shrunk.shrunk_rows)).shrunk_rows == 0


def limited(was: Health, rows: int, now: float) -> Health:
    return breaker.after_text_limit(was, rows, "429", "", 30.0, now, "")


def test_a_second_limit_of_texts_for_the_same_size_halves_the_requests() -> None:
    first = limited(Health(), 50, NOW)
    together = limited(first, 50, NOW + 1)
    smaller = limited(first, 20, NOW + 31)
    second = limited(first, 50, NOW + 31)
    after_vectors = limited(breaker.after_success(first), 50, NOW + 31)

    assert (first.shrunk_rows, first.limited_rows, first.retry_at) == (0, 50, NOW + 30)
    assert (together.shrunk_rows, smaller.shrunk_rows, after_vectors.shrunk_rows) == (0, 0, 0)
    assert (second.shrunk_rows, second.limited_rows, second.retry_at) == (25, 0, NOW + 61)


def test_a_single_text_that_meets_the_limit_for_ever_opens_the_breaker() -> None:
    state, now, waits = Health(), NOW, 0
    while not state.paused:
        state, now, waits = limited(state, 1, now), now + 31, waits + 1

    assert waits == 1 + breaker.REQUEST_RULES.limit
    assert state.reason == "429"


#: What may happen to requests, the likelier the more often: (what, which process or request).
EVENTS = st.tuples(
    st.sampled_from(
        ["send"] * 4
        + ["ok", "later", "stop", "stop", "stop", "broken", "refused", "told to wait", "lost"]
        + ["a moment", "a cool-down", "a cool-down", "a cool-down", "a lease", "an hour"]
        + ["sweep", "restart", "asked"]
    ),
    st.integers(0, 3),
)


@given(events=st.lists(EVENTS, min_size=40, max_size=60))
@settings(max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_no_sequence_of_events_sends_two_probes(
    events: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Shorter than a lease: what was sent before the breaker opened may still be out when a probe is due.
    monkeypatch.setattr(breaker, "REQUEST_RULES", replace(breaker.REQUEST_RULES, open_s=25.0))
    clock = ManualClock()
    path = tmp_path / str(uuid.uuid4()) / "main.sqlite"
    with Processes(path, clock) as writers:
        writers[0].retarget(MODEL_A)
        writers[0].store_file(file_row("a.md", *(f"text {n}" for n in range(300))))
        #: With the time their lease ends.
        in_flight: list[tuple[Request, float]] = []
        for what, which in events:
            writer = writers[which % 2]
            was = health.read(writer.accounts, "openai")
            if what == "send":
                sent = writer.lease(SMALL, credits=3, only_full=False)
                if was.state != CLOSED and sent:
                    assert len(sent) == 1
                    assert not in_flight, "a probe next to another request"
                    assert was.state == HALF_OPEN or was.probe_at <= clock.now()
                in_flight += [(request, clock.now() + LEASE_S) for request in sent]
            elif what in ("ok", "later", "stop", "broken", "refused", "told to wait", "lost"):
                if in_flight:
                    request, _ = in_flight.pop(which % len(in_flight))
                    hear(writer, request, what)
            elif what in WAITS:
                clock.advance(WAITS[what])
                in_flight = [(request, until) for request, until in in_flight if until > clock.now()]
            elif what == "sweep":
                writer.sweep()
            elif what == "restart":
                writers.restart(which % 2)
            else:
                writer.retry_all()
            _makes_sense(health.read(writers[0].accounts, "openai"))


WAITS = {"a moment": 1.0, "a cool-down": 26.0, "a lease": LEASE_S + 1, "an hour": 3_600.0}


class Processes:
    """Two writers of one index."""

    def __init__(self, path: Path, clock: ManualClock) -> None:
        self._open = lambda: IndexWriter(path, clock=clock)
        self._writers = [self._open(), self._open()]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.close()

    def __getitem__(self, number: int) -> IndexWriter:
        return self._writers[number]

    def restart(self, number: int) -> None:
        self._writers[number].close()
        self._writers[number] = self._open()


def hear(writer: IndexWriter, request: Request, what: str) -> None:
    if what == "ok":
        answer(writer, [request])
    elif what == "lost":
        with writer.transaction() as (connection, now):
            leases.free(connection, now, [request.lease])
    elif what == "told to wait":
        fail(writer, request, "later", retry_after_s=20)
    else:
        fail(writer, request, what)


def _makes_sense(state: Health) -> None:
    assert bool(state.probe) == (state.state == HALF_OPEN)
    assert bool(state.since) == (state.state != CLOSED)
    if state.state != CLOSED:
        assert state.reason and state.action


BATCH_EVENTS = st.tuples(
    st.sampled_from(["make"] * 3 + ["worked", "failed", "failed", "for good", "lost", "29 min", "31 min"]),
    st.integers(0, 3),
)


@given(events=st.lists(BATCH_EVENTS, min_size=20, max_size=80))
@settings(max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_no_sequence_of_batches_makes_two_probes(events: list[tuple[str, int]], tmp_path: Path) -> None:
    now = NOW
    with Processes(tmp_path / str(uuid.uuid4()) / "main.sqlite", ManualClock()) as writers:
        accounts = writers[0].accounts
        connection = accounts.index
        in_flight: list[str] = []
        probes: set[str] = set()
        for number, (what, which) in enumerate(events):
            if what == "make":
                with transaction(connection):
                    was = health.read(accounts, "openai", health.BATCH)
                    may = health.may_batch(accounts, "openai", now, tag=f"batch {number}")
                    if may:
                        open_batch(accounts, f"batch {number}")
                if may and was.state != CLOSED:
                    assert not probes, "two probes at a time"
                    probes.add(f"batch {number}")
                in_flight += [f"batch {number}"] * may
            elif what.endswith("min"):
                now += 60 * int(what.split()[0])
            elif in_flight:
                tag = in_flight.pop(which % len(in_flight))
                probes.discard(tag)
                with transaction(connection):
                    end_batch(accounts, tag, what, now)


def open_batch(accounts: Accounts, tag: str) -> None:
    accounts.index.execute(
        "INSERT OR IGNORE INTO identities (id, key, provider, model, endpoint, dims, scheme, created_at)"
        " VALUES (1, 'key', 'openai', 'model', '', 0, '', 0)"
    )
    accounts.index.execute(
        "INSERT INTO batches (token, identity_id, state, created_at) VALUES (?, 1, 'intent', 0)", (tag,)
    )


def end_batch(accounts: Accounts, tag: str, what: str, now: float) -> None:
    accounts.index.execute("UPDATE batches SET state = 'closed' WHERE token = ?", (tag,))
    if what == "worked":
        health.update(accounts, "openai", BATCH, now, lambda was: breaker.after_success(was, probe=tag))
    elif what == "lost":
        health.update(accounts, "openai", BATCH, now, lambda was: breaker.after_lost_probe(was, tag, now))
    else:
        batch_failed(accounts, "it failed", now, tag=tag, for_good=what == "for good")


def fail_batches(writer: IndexWriter, times: int, now: float = NOW) -> Health:
    state = Health()
    for _ in range(times):
        with transaction(writer.connection):
            state = batch_failed(writer.accounts, "it expired", now)
    return state


def test_two_batches_that_fail_stop_batches_and_leave_requests_alone(writer: IndexWriter) -> None:
    one = fail_batches(writer, 1)
    two = fail_batches(writer, 1)

    assert (one.state, two.state) == ("closed", "open")
    assert not health.may_batch(writer.accounts, "openai", NOW + 60)
    assert health.read(writer.accounts, "openai") == Health()


def test_a_batch_that_works_after_the_cooldown_closes_the_breaker(writer: IndexWriter) -> None:
    fail_batches(writer, 2)
    later = NOW + BATCH_RULES.open_s

    with transaction(writer.connection):
        first = health.may_batch(writer.accounts, "openai", later, tag="probe")
        open_batch(writer.accounts, "probe")
        second = health.may_batch(writer.accounts, "openai", later, tag="other")
        end_batch(writer.accounts, "probe", "worked", later)

    assert (first, second) == (True, False)
    assert health.may_batch(writer.accounts, "openai", later)
    assert health.read(writer.accounts, "openai", BATCH) == Health()


def test_a_provider_without_batches_gets_no_second_batch(writer: IndexWriter) -> None:
    with transaction(writer.connection):
        batch_failed(writer.accounts, "404", NOW, for_good=True)

    assert not health.may_batch(writer.accounts, "openai", NOW)


def test_the_limit_of_batches_is_a_setting() -> None:
    assert breaker.batch_rules(Batch(failure_limit=5)).limit == 5
    assert Rules(limit=2, open_s=1_800.0, max_open_s=6 * 3_600.0) == BATCH_RULES


def test_the_state_outlives_the_process_and_is_shared(writer: IndexWriter, path: Path) -> None:
    state = fail_batches(writer, 2)

    with closing(IndexWriter(path)) as other:
        assert health.read(other.accounts, "openai", BATCH) == state


def test_another_model_of_the_same_provider_begins_anew(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    fail(writer, lease_all(writer)[0], "stop")
    fail_batches(writer, 2)

    writer.retarget(MODEL_A)
    same = health.read(writer.accounts, "openai").paused
    writer.retarget(MODEL_B)

    assert same
    assert health.read_all(writer.accounts) == {
        ("openai", "requests"): Health(),
        ("openai", "batch"): Health(),
    }


def test_a_probe_needs_nothing_that_is_wanted(writer: IndexWriter, clock: ManualClock) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples", "pears"))
    answer(writer, lease_all(writer))
    writer.store_file(file_row("b.md", "plums"))
    (request,) = lease_all(writer)
    fail(writer, request, "stop")
    writer.store_file(file_row("b.md", "apples", at=2))
    clock.advance(breaker.REQUEST_RULES.open_s)

    (probe,) = lease_all(writer)
    answer(writer, [probe])

    assert [text.text for text in probe.texts] == ["apples"]
    assert not health.read(writer.accounts, "openai").paused
    assert lease_all(writer) == []


def test_retry_after_keeps_every_process_from_calling_until_then(
    wanting: IndexWriter, clock: ManualClock
) -> None:
    (request,) = lease_all(wanting)
    fail(wanting, request, "later", retry_after_s=60)

    clock.advance(59)
    early = lease_all(wanting)
    clock.advance(2)
    due = lease_all(wanting)

    assert early == []
    assert len(due) == 1


def test_failures_in_a_row_pause_the_provider_and_success_clears_them(
    wanting: IndexWriter, clock: ManualClock
) -> None:
    for _ in range(breaker.REQUEST_RULES.limit):
        (request,) = lease_all(wanting)
        fail(wanting, request, "later")
        clock.advance(120)

    paused = health.read(wanting.accounts, "openai")
    assert paused.paused and "it was later" in paused.reason
    assert lease_all(wanting) == []

    wanting.retry_all()
    answer(wanting, lease_all(wanting))
    assert health.read(wanting.accounts, "openai") == breaker.Health()


def test_requests_that_fail_together_count_as_one_failure(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(8))))
    requests = writer.lease(
        RequestCaps(max_rows=1, max_tokens=1000, max_text_tokens=100), credits=8, only_full=False
    )

    for request in requests:
        fail(writer, request, "later")

    assert health.read(writer.accounts, "openai").failures == 1


def test_stop_pauses_the_provider_with_what_to_do(wanting: IndexWriter, clock: ManualClock) -> None:
    (request,) = lease_all(wanting)

    fail(wanting, request, "stop")

    state = health.read(wanting.accounts, "openai")
    assert (state.paused, state.reason, state.action) == (True, "it was stop", "do something")
    assert lease_all(wanting) == []
    assert backlog(wanting) == Backlog(wanted=2)

    clock.advance(breaker.REQUEST_RULES.open_s + 1)
    assert len(lease_all(wanting)) == 1


def test_retry_after_zero_does_not_make_the_dispatcher_ask_for_ever(
    writer: IndexWriter, clock: ManualClock
) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))

    calls = 0
    for _ in range(100):
        for request in lease_all(writer):
            calls += 1
            fail(writer, request, "later", retry_after_s=0.0)
        clock.advance(2)

    assert calls == breaker.REQUEST_RULES.limit
    assert health.read(writer.accounts, "openai").paused


def test_after_a_limit_of_texts_one_request_goes_ahead(writer: IndexWriter, clock: ManualClock) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(12))))
    request, *_ = writer.lease(SMALL, credits=1, only_full=False)
    failure = Failure(kind="later", error="429", retry_after_s=30.0)
    hashes = [text.hash for text in request.texts]
    writer.record_failure(MODEL_A, request.lease, hashes, failure, LearnedCaps(limited_rows=2))
    clock.advance(31)

    ahead = writer.lease(SMALL, credits=8, only_full=False)
    answer(writer, ahead)

    assert len(ahead) == 1
    assert len(writer.lease(SMALL, credits=8, only_full=False)) == 5


def test_shrunk_requests_bind_the_next_until_an_operator_resumes(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(12))))
    (request,) = lease_all(writer)
    failure = Failure(kind="split", error="no answer within 60 s")
    hashes = [text.hash for text in request.texts]
    writer.record_failure(MODEL_A, request.lease, hashes, failure, LearnedCaps(slow_rows=5))

    small = lease_all(writer)
    state = health.read(writer.accounts, "openai")
    health.forget_limits(writer.accounts, "openai", NOW)

    assert [len(request.texts) for request in small] == [5, 5, 2]
    assert (state.failures, state.retry_at, state.state) == (0, 0, CLOSED)
    assert health.read(writer.accounts, "openai") == Health()
    assert backlog(writer).failed == 0


def test_an_operator_ends_a_wait_that_a_clock_ahead_has_left(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    hours = Health(reason="rate limit", retry_at=10 * NOW)
    health.update(writer.accounts, "openai", health.REQUESTS, NOW, lambda _: hours)
    before = lease_all(writer)

    health.forget_limits(writer.accounts, "openai", NOW)

    assert before == [] and len(lease_all(writer)) == 1


def test_caps_that_one_model_taught_do_not_bind_another(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples", "pears", "plums"))
    (request,) = lease_all(writer)
    rows = []
    writer.store_vectors(MODEL_A, request.lease, rows, LearnedCaps(max_rows=1))

    writer.retarget(MODEL_B)

    assert health.read(writer.accounts, "openai").max_rows == 0
