from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

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
from memline.shared.scheduling import breaker, health
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

SMALL = RequestCaps(max_rows=2, max_tokens=1000)
RULES = Rules(max_failures=3, open_s=100, max_open_s=250, first_cooldown_s=1)
NOW = 1_750_000_000.0


WELL = Health()
FAILED = Health(failures=1, reason="away", action="wait", retry_at=NOW + 1)
#: Opened so long ago that a probe is due.
STOPPED = Health(state=OPEN, reason="no", action="pay", failures=1, since=NOW - 100, probe_at=NOW, opens=1)
PROBED = replace(STOPPED, state=HALF_OPEN, probe="probe")
SHRUNK = Health(shrunk_rows=32)
LIMITED = Health(reason="429", limited_rows=50, retry_at=NOW + 30)
#: What a failure leaves that is no more than one, and one that opens the breaker.
AWAY: dict[str, Any] = {"reason": "away", "action": "wait", "retry_at": NOW + 1}
OPENED: dict[str, Any] = {
    "state": OPEN,
    "retry_at": 0.0,
    "since": NOW + 2,
    "probe_at": NOW + 302,
    "opens": 1,
}
#: What outlives every change.
KEPT = {"max_rows": 5, "max_tokens": 7, "manual": True}

Event = Callable[[Health], Health | None]


def failure(at: float = 0, *, probe: str = "") -> Event:
    return lambda was: breaker.after_failure(was, RULES, "away", "wait", NOW + at, probe=probe)


def stop(at: float = 0, *, probe: str = "") -> Event:
    return lambda was: breaker.after_stop(was, RULES, "no", "pay", NOW + at, probe=probe)


def wait(at: float = 0, *, probe: str = "") -> Event:
    return lambda was: breaker.after_trouble(was, "busy", "", 60, NOW + at, probe=probe)


def failed_texts(rows: int, at: float = 0, *, probe: str = "") -> Event:
    return lambda was: breaker.after_failed_texts(was, rows, "away", "wait", None, NOW + at, probe)


def lost(at: float = 0, *, probe: str = "probe") -> Event:
    return lambda was: breaker.after_lost_probe(was, probe, NOW + at)


def send(at: float = 0, *, probe: str = "probe") -> Event:
    return lambda was: breaker.begin_probe(was, probe, NOW + at)


def sizes(**learned: int) -> Event:
    return lambda was: breaker.after_sizes(was, LearnedCaps(**learned))


def limited(rows: int, at: float = 31) -> Event:
    return lambda was: breaker.after_text_limit(was, rows, "429", "", 30.0, NOW + at, "")


worked = partial(breaker.after_success, probe="probe")
refused = partial(breaker.after_refused_text, probe="probe")
trial = partial(breaker.on_trial, rules=RULES)

#: What comes late, from before the breaker opened, or before the probe that is in flight.
LATE: dict[str, Event] = {
    "success": partial(breaker.after_success, probe="old"),
    "failure": failure(1, probe="old"),
    "stop": stop(1, probe="old"),
    "wait": wait(1, probe="old"),
    "lost": lost(1, probe="old"),
}

#: What happens: the health before it, the event, and the health after it or the fields that it changes. None:
#: no probe may be sent.
STEPS: dict[str, tuple[Health, Event, Health | dict[str, Any] | None]] = {
    "a failure begins a cooldown": (WELL, failure(), FAILED),
    "the next doubles it": (FAILED, failure(1), {"failures": 2, "retry_at": NOW + 3}),
    "what fails together counts once": (FAILED, failure(0.5), FAILED),
    "the third in a row opens it": (
        replace(FAILED, failures=2),
        failure(3),
        {"state": OPEN, "failures": 3, "retry_at": 0, "since": NOW + 3, "probe_at": NOW + 103, "opens": 1},
    ),
    "a success between counts them anew": (Health(failures=2, reason="away"), worked, WELL),
    "a definite no opens it at once": (WELL, stop(-100), STOPPED),
    "to be told to wait is no failure": (WELL, wait(), Health(reason="busy", retry_at=NOW + 60)),
    "its own words stay while a worker waits for it": (
        Health(reason="429: slow down", retry_at=NOW + 90),
        lambda was: breaker.after_trouble(was, f"openai {breaker.AT_LIMIT}", "", 60, NOW),
        {"reason": "429: slow down"},
    ),
    "its own words stay when a worker still waits after their time": (
        Health(reason="429: slow down", failures=1),
        lambda was: breaker.after_trouble(was, f"openai {breaker.ASKED_TO_WAIT}", "", 60, NOW),
        {"reason": "429: slow down", "retry_at": NOW + 60},
    ),
    "a limit of the configuration is a reason of its own after their time": (
        Health(reason="429: slow down", failures=1),
        lambda was: breaker.after_trouble(was, f"openai {breaker.AT_LIMIT}", "", 60, NOW),
        {"reason": f"openai {breaker.AT_LIMIT}", "retry_at": NOW + 60},
    ),
    "who ends the wait has one request tried": (
        Health(reason="429: slow down", retry_at=NOW + 90),
        lambda was: breaker.tried_now(was, NOW),
        {"failures": 1, "retry_at": 0},
    ),
    "its own words come before those of a worker": (
        Health(reason=f"openai {breaker.AT_LIMIT}", retry_at=NOW + 9),
        wait(),
        {"reason": "busy", "retry_at": NOW + 60},
    ),
    "no probe before its time": (STOPPED, send(-1), None),
    "one probe when it is": (STOPPED, send(), PROBED),
    "no second probe": (PROBED, send(10_000, probe="b"), None),
    "no probe while an operator pauses it": (replace(STOPPED, manual=True), send(10_000), None),
    "a probe that works closes it": (PROBED, worked, WELL),
    "a provider that judges a probe is well": (PROBED, refused, WELL),
    "a refused text is no success": (Health(failures=1), refused, Health(failures=1)),
    "a probe that is told to wait": (PROBED, wait(probe="probe"), replace(STOPPED, probe_at=NOW + 60)),
    "a lost probe is followed by another": (PROBED, lost(5), replace(STOPPED, probe_at=NOW + 5)),
    **{
        # The last: a provider that is dead for years does not overflow.
        f"a probe that fails at cooldown {opens}": (
            replace(PROBED, opens=opens, reason="away", action="wait"),
            failure(probe="probe"),
            {"state": OPEN, "failures": 2, "probe_at": NOW + wait_s, "opens": opens + 1, "probe": ""},
        )
        for opens, wait_s in ((1, 200), (2, 250), (3, 250), (100_000, 250))
    },
    **{
        f"a late {name}, {was.state}": (was, event, was)
        for was in (STOPPED, PROBED)
        for name, event in LATE.items()
    },
    "on trial it is closed": (STOPPED, trial, Health(failures=2)),
    "on trial one failure opens it": (
        Health(failures=2, reason="away", action="wait"),
        failure(),
        {"state": OPEN, "failures": 3, "since": NOW, "probe_at": NOW + 100, "opens": 1},
    ),
    "a stop keeps caps and a manual pause": (Health(**KEPT), stop(-100), replace(STOPPED, **KEPT)),
    "a success keeps them": (Health(failures=2, **KEPT), worked, Health(**KEPT)),
    "a trial keeps them": (replace(STOPPED, **KEPT), trial, Health(failures=2, **KEPT)),
    "a slow request binds the next": (WELL, sizes(slow_rows=64), {"shrunk_rows": 64}),
    "a larger one that is slow enlarges nothing": (SHRUNK, sizes(slow_rows=128), SHRUNK),
    "a smaller one that is slow shrinks further": (SHRUNK, sizes(slow_rows=16), {"shrunk_rows": 16}),
    "a quick answer to a full request is counted": (SHRUNK, sizes(quick_rows=32), {"quick_answers": 1}),
    "the third too": (replace(SHRUNK, quick_answers=2), sizes(quick_rows=32), {"quick_answers": 3}),
    "the fourth lets them grow": (
        replace(SHRUNK, quick_answers=3),
        sizes(quick_rows=32),
        {"shrunk_rows": 64, "quick_answers": 0},
    ),
    "a quick answer to a small request": (SHRUNK, sizes(quick_rows=31), SHRUNK),
    "an answer neither quick nor slow": (SHRUNK, sizes(), SHRUNK),
    "a slow one counts anew": (replace(SHRUNK, quick_answers=3), sizes(slow_rows=32), SHRUNK),
    "no provider takes so many": (Health(shrunk_rows=2_048, quick_answers=3), sizes(quick_rows=2_048), WELL),
    "a limit of texts is waited for": (WELL, limited(50, 0), LIMITED),
    "a limit that was met together": (LIMITED, limited(50, 1), {"retry_at": NOW + 31}),
    "a limit of fewer texts": (LIMITED, limited(20), {"limited_rows": 20, "retry_at": NOW + 61}),
    "a limit again for the same size halves the requests": (
        LIMITED,
        limited(50),
        {"shrunk_rows": 25, "limited_rows": 0, "retry_at": NOW + 61},
    ),
    "the first failure of many texts may be chance": (WELL, failed_texts(64), {**AWAY, "failures": 1}),
    "the second halves the requests": (
        Health(failures=1, **AWAY),
        failed_texts(64, 2),
        {"failures": 2, "retry_at": NOW + 4, "shrunk_rows": 32, "quick_answers": -96},
    ),
    "also when it opens the breaker": (
        Health(failures=5, shrunk_rows=32, **AWAY),
        failed_texts(32, 2),
        {**OPENED, "failures": 6, "shrunk_rows": 16, "quick_answers": -96},
    ),
    "a single text that fails is not too many": (
        Health(failures=1, **AWAY),
        failed_texts(1, 2),
        {"failures": 2, "retry_at": NOW + 4},
    ),
    "one that failed together with it": (FAILED, failed_texts(64), FAILED),
    "a probe that fails": (
        replace(PROBED, reason="away", action="wait"),
        failed_texts(64, probe="probe"),
        {**OPENED, "failures": 2, "since": NOW - 100, "probe_at": NOW + 600, "opens": 2, "probe": ""},
    ),
    "vectors in between forgive a limit": (LIMITED, worked, Health(retry_at=NOW + 30)),
}


@pytest.mark.parametrize(("was", "event", "after"), STEPS.values(), ids=STEPS)
def test_what_happens_changes_the_health(was: Health, event: Event, after: Any) -> None:
    assert event(was) == (replace(was, **after) if isinstance(after, dict) else after)


def test_a_breaker_is_stuck_until_a_probe_is_due() -> None:
    assert STOPPED.is_stuck(NOW - 1) and not STOPPED.is_stuck(NOW)
    assert Health(manual=True).is_stuck(NOW)


def test_a_single_text_that_meets_the_limit_for_ever_opens_the_breaker() -> None:
    state: Health | None = WELL
    waits = 0
    while state and not state.paused:
        state, waits = limited(1, 31 * waits)(state), waits + 1

    assert waits == 1 + breaker.REQUEST_RULES.max_failures
    assert state and state.reason == "429"


def test_a_manual_pause_allows_no_probe_until_it_is_ended(wanting: IndexWriter) -> None:
    with transaction(wanting.connection):
        health.set_paused(wanting.accounts, "openai", True, health.REQUESTS)
    paused = lease_all(wanting)
    with transaction(wanting.connection):
        health.set_paused(wanting.accounts, "openai", False, health.REQUESTS)

    assert (paused, len(lease_all(wanting))) == ([], 1)


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
        writer.free_leases([request.lease])
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


def want(writer: IndexWriter, count: int) -> None:
    """Let so many texts wait for their vectors."""
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(count))))


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
    assert breaker.batch_rules(Batch(failure_limit=5)).max_failures == 5
    assert Rules(max_failures=2, open_s=1_800.0, max_open_s=6 * 3_600.0) == BATCH_RULES


def test_the_state_outlives_the_process_and_is_shared(writer: IndexWriter, path: Path) -> None:
    state = fail_batches(writer, 2)

    with closing(IndexWriter(path)) as other:
        assert health.read(other.accounts, "openai", BATCH) == state


def test_another_model_of_the_same_provider_begins_anew(writer: IndexWriter) -> None:
    want(writer, 1)
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
    for _ in range(breaker.REQUEST_RULES.max_failures):
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
    want(writer, 8)
    requests = writer.lease(RequestCaps(max_rows=1, max_tokens=1000), credits=8, only_full=False)

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
    want(writer, 1)

    calls = 0
    for _ in range(100):
        for request in lease_all(writer):
            calls += 1
            fail(writer, request, "later", retry_after_s=0.0)
        clock.advance(2)

    assert calls == breaker.REQUEST_RULES.max_failures
    assert health.read(writer.accounts, "openai").paused


def test_after_a_limit_of_texts_one_request_goes_ahead(writer: IndexWriter, clock: ManualClock) -> None:
    want(writer, 12)
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
    want(writer, 12)
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
    want(writer, 1)
    hours = Health(reason="rate limit", retry_at=10 * NOW)
    health.update(writer.accounts, "openai", health.REQUESTS, NOW, lambda _: hours)
    before = lease_all(writer)

    health.forget_limits(writer.accounts, "openai", NOW)

    assert before == [] and len(lease_all(writer)) == 1


def test_caps_that_one_model_taught_do_not_bind_another(writer: IndexWriter) -> None:
    want(writer, 3)
    (request,) = lease_all(writer)
    rows = []
    writer.store_vectors(MODEL_A, request.lease, rows, LearnedCaps(max_rows=1))

    writer.retarget(MODEL_B)

    assert health.read(writer.accounts, "openai").max_rows == 0
