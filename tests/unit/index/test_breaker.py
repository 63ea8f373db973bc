from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from sqlite3 import Connection

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.clock import ManualClock
from shared.embedders.protocol import RequestCaps
from shared.index import breaker, health
from shared.index.breaker import CLOSED, HALF_OPEN, OPEN, Health, Rules
from shared.index.dispatch import LEASE_S, Request
from shared.index.driver import transaction
from shared.index.writer import IndexWriter
from tests.support.index_rows import MODEL_A, answer, fail, file_row, lease_all

SMALL = RequestCaps(max_rows=2, max_tokens=1000, max_text_tokens=100)
RULES = Rules(limit=3, cool_down_s=100, max_cool_down_s=250, first_hold_s=1)
NOW = 1_000_000.0


def opened(was: Health | None = None, now: float = NOW) -> Health:
    return breaker.stopped(was or Health(), RULES, "no", "pay", now)


def half_open(now: float = NOW) -> Health:
    after = breaker.began_probe(opened(now=now - 100), "probe", now)
    assert after is not None
    return after


def test_failures_in_a_row_open_it_and_holds_grow_between_them() -> None:
    one = breaker.failed(Health(), RULES, "away", "wait", NOW)
    two = breaker.failed(one, RULES, "away", "wait", NOW + 1)
    three = breaker.failed(two, RULES, "away", "wait", NOW + 3)

    assert (one.state, one.hold_until, two.hold_until) == (CLOSED, NOW + 1, NOW + 3)
    assert (three.state, three.failures, three.hold_until) == (OPEN, 3, 0)
    assert (three.reason, three.action, three.since, three.probe_at) == ("away", "wait", NOW + 3, NOW + 103)


def test_a_success_between_failures_counts_them_anew() -> None:
    two = Health(failures=2, reason="away")

    after = breaker.worked(two)

    assert after == Health()


def test_what_fails_together_counts_once() -> None:
    one = breaker.failed(Health(), RULES, "away", "", NOW)

    assert breaker.failed(one, RULES, "away", "", NOW + 0.5) == one


def test_a_definite_no_opens_it_at_once_with_what_to_do() -> None:
    after = opened()

    assert (after.state, after.reason, after.action) == (OPEN, "no", "pay")
    assert after.is_stuck(NOW + 99)
    assert not after.is_stuck(NOW + 100)


def test_to_wait_as_long_as_told_is_no_failure() -> None:
    after = breaker.told_to_wait(Health(), RULES, "busy", 60, NOW)

    assert (after.state, after.failures, after.hold_until) == (CLOSED, 0, NOW + 60)


def test_only_one_probe_goes_and_only_when_the_cool_down_is_over() -> None:
    was = opened()

    early = breaker.began_probe(was, "a", NOW + 99)
    first = breaker.began_probe(was, "a", NOW + 100)
    assert first is not None
    second = breaker.began_probe(first, "b", NOW + 10_000)

    assert early is None
    assert (first.state, first.probe) == (HALF_OPEN, "a")
    assert second is None


def test_a_probe_that_works_closes_it() -> None:
    assert breaker.worked(half_open(), probe="probe") == Health()


def test_each_probe_that_fails_doubles_the_cool_down_up_to_the_longest() -> None:
    cool_downs = []
    state, now = opened(), NOW
    for _ in range(4):
        now = state.probe_at
        probing = breaker.began_probe(state, "probe", now)
        assert probing is not None
        state = breaker.failed(probing, RULES, "still", "", now, probe="probe")
        cool_downs.append(state.probe_at - now)

    assert cool_downs == [200, 250, 250, 250]
    assert state.since == NOW
    assert state.reason == "still"


def test_a_provider_that_is_dead_for_years_does_not_overflow() -> None:
    was = Health(state=HALF_OPEN, opens=100_000, probe="p")

    assert breaker.failed(was, RULES, "", "", NOW, probe="p").probe_at == NOW + 250


def test_a_probe_that_is_told_to_wait_is_followed_by_one_at_that_time() -> None:
    after = breaker.told_to_wait(half_open(), RULES, "busy", 60, NOW, probe="probe")

    assert (after.state, after.probe_at, after.opens) == (OPEN, NOW + 60, 1)


def test_a_lost_probe_is_followed_by_another_at_once() -> None:
    after = breaker.lost_probe(half_open(), "probe", NOW)

    assert (after.state, after.probe_at) == (OPEN, NOW)


def test_a_probe_whose_text_is_refused_has_found_the_provider_well() -> None:
    assert breaker.answered(half_open(), probe="probe") == Health()
    assert breaker.answered(Health(failures=1)) == Health(failures=1)


@pytest.mark.parametrize("was", [opened(), half_open()], ids=[OPEN, HALF_OPEN])
def test_what_comes_late_from_before_it_opened_changes_nothing(was: Health) -> None:
    later = NOW + 1

    assert breaker.worked(was, probe="old") == was
    assert breaker.failed(was, RULES, "x", "", later, probe="old") == was
    assert breaker.stopped(was, RULES, "x", "", later, probe="old") == was
    assert breaker.told_to_wait(was, RULES, "x", 5, later, probe="old") == was
    assert breaker.lost_probe(was, "old", later) == was


def test_what_a_person_paused_gets_no_probe_until_the_same_person_says_so(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    with transaction(writer.connection):
        health.set_by_hand(writer.connection, "openai", True, NOW, health.REQUESTS)
    paused = lease_all(writer)
    with transaction(writer.connection):
        health.set_by_hand(writer.connection, "openai", False, NOW, health.REQUESTS)

    assert paused == []
    assert len(lease_all(writer)) == 1


def test_on_trial_one_more_failure_opens_it_and_a_success_forgives() -> None:
    trial = breaker.on_trial(opened(), RULES)

    assert (trial.state, trial.reason, trial.paused) == (CLOSED, "", False)
    assert breaker.failed(trial, RULES, "again", "", NOW).state == OPEN
    assert breaker.worked(trial) == Health()


def test_caps_and_what_a_person_said_outlive_every_change() -> None:
    was = Health(max_rows=5, max_tokens=7, by_hand=True)

    after = breaker.on_trial(breaker.worked(opened(was)), RULES)

    assert (after.max_rows, after.max_tokens, after.by_hand) == (5, 7, True)
    assert breaker.began_probe(opened(was), "p", NOW + 10_000) is None


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
@settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_no_sequence_of_events_lets_two_probes_out(
    events: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Shorter than a lease: what was sent before the breaker opened may still be out when a probe is due.
    monkeypatch.setattr(health, "REQUEST_RULES", replace(health.REQUEST_RULES, cool_down_s=25.0))
    clock = ManualClock()
    path = tmp_path / f"{uuid.uuid4()}.sqlite"
    with Processes(path, clock) as writers:
        writers[0].retarget(MODEL_A)
        writers[0].store_file(file_row("a.md", *(f"text {n}" for n in range(300))))
        #: Requests that are out, with the time their lease ends.
        out: list[tuple[Request, float]] = []
        for what, which in events:
            writer = writers[which % 2]
            was = health.read(writer.connection, "openai")
            if what == "send":
                sent = writer.lease(SMALL, credits=3, only_full=False)
                if was.state != CLOSED and sent:
                    assert len(sent) == 1
                    assert not out, "a probe beside something else that is out"
                    assert was.state == HALF_OPEN or was.probe_at <= clock.now()
                out += [(request, clock.now() + LEASE_S) for request in sent]
            elif what in ("ok", "later", "stop", "broken", "refused", "told to wait", "lost"):
                if out:
                    request, _ = out.pop(which % len(out))
                    hear(writer, request, what)
            elif what in WAITS:
                clock.advance(WAITS[what])
                out = [(request, until) for request, until in out if until > clock.now()]
            elif what == "sweep":
                writer.sweep()
            elif what == "restart":
                writers.restart(which % 2)
            else:
                writer.start_over()
            _makes_sense(health.read(writers[0].connection, "openai"))


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
@settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_no_sequence_of_batches_lets_two_probes_out(events: list[tuple[str, int]], tmp_path: Path) -> None:
    now = NOW
    with Processes(tmp_path / f"{uuid.uuid4()}.sqlite", ManualClock()) as writers:
        connection = writers[0].connection
        out: list[str] = []
        probes: set[str] = set()
        for number, (what, which) in enumerate(events):
            if what == "make":
                with transaction(connection):
                    was = health.read(connection, "openai", health.BATCH)
                    may = health.may_batch(connection, "openai", now, tag=f"batch {number}")
                if may and was.state != CLOSED:
                    assert not probes, "two probes are out"
                    probes.add(f"batch {number}")
                out += [f"batch {number}"] * may
            elif what.endswith("min"):
                now += 60 * int(what.split()[0])
            elif out:
                tag = out.pop(which % len(out))
                probes.discard(tag)
                with transaction(connection):
                    end_batch(connection, tag, what, now)


def end_batch(connection: Connection, tag: str, what: str, now: float) -> None:
    if what == "worked":
        health.batch_worked(connection, "openai", now, tag=tag)
    elif what == "lost":
        health.batch_lost(connection, "openai", now, tag=tag)
    else:
        health.batch_failed(connection, "openai", "it failed", "", now, tag=tag, for_good=what == "for good")
