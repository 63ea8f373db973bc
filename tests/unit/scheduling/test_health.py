"""A breaker opens, lets one request through, and closes; requests become smaller and grow again."""

from contextlib import closing

import msgspec
import pytest

from memline.shared.index_writer import IndexWriter
from memline.shared.providers import RequestCaps
from memline.shared.scheduling import health
from memline.shared.scheduling.health import GROW_AFTER, Failure, Health
from memline.shared.scheduling.leases import Answer
from tests.support.clock import ManualClock
from tests.support.index_rows import MODEL_A, answer, file_row, retarget

NOW = 1_000_000.0
FAILED = "the server failed"


def failed(was, now, *, rows=0, **options):
    """The health after a request of so many texts failed."""
    failure = Failure(hashes=(b"",) * rows, **{"kind": "later", "error": FAILED, **options})
    return health.after_failure(was, failure, now, counts_texts=True)


def asked(was, seconds, now, *, error="429", **options):
    return failed(was, now, error=error, retry_after_s=seconds, **options)


def after_failures(count):
    """A health after so many failures in a row, each of the next request that may be sent, and the time."""
    was, now = Health(), NOW
    for _ in range(count):
        now = max(now, was.retry_at)
        was = failed(was, now, is_probe=was.paused)
    return was, now


def test_pauses_grow_until_the_breaker_opens_and_rests_double_up_to_five_minutes():
    waits = [state.wait_s(now) for state, now in map(after_failures, range(1, 9))]

    assert waits == [1, 2, 30, 60, 120, 240, 300, 300]
    assert [after_failures(count)[0].paused for count in (2, 3)] == [False, True]
    assert [after_failures(count)[0].has_given_up for count in (3, 4)] == [False, True]


def test_requests_that_were_in_flight_together_fail_once():
    once = failed(Health(), NOW)
    opened, now = after_failures(3)

    assert failed(once, NOW + 0.5) == once
    assert failed(opened, now + 1) == opened


def test_a_time_to_wait_is_no_failure_and_the_longest_counts():
    state = asked(Health(), 60, NOW)
    later = asked(state, 10, NOW + 1, error="429 again")
    of_worker = asked(later, 5, NOW + 1, kind="unsent", error="has a cooldown")

    assert (of_worker.failures, of_worker.wait_s(NOW + 1), of_worker.reason) == (0, 59, "429 again")


def test_a_probe_that_was_not_sent_or_is_told_to_wait_is_followed_by_another():
    opened = msgspec.structs.replace(after_failures(3)[0], retry_at=NOW + 300)

    assert failed(opened, NOW, kind="unsent", is_probe=True).wait_s(NOW) == 0
    assert asked(opened, 7, NOW, is_probe=True).wait_s(NOW) == 7
    assert failed(opened, NOW, kind="unsent") == asked(opened, 7, NOW) == opened


def test_a_size_that_fails_twice_in_a_row_is_halved_and_one_that_a_limit_of_texts_refuses_at_once():
    once = failed(Health(), NOW, rows=8)
    again = failed(once, NOW + 2, rows=8)

    assert (once.max_rows, again.max_rows) == (0, 4)
    assert failed(health.worked(once), NOW + 2, rows=8).max_rows == 0
    assert [asked(Health(), 60, NOW, rows=rows).max_rows for rows in (8, 1)] == [4, 0]


@pytest.mark.parametrize("failure", [{"kind": "broken", "no_results": True}, {"is_unreachable": True}])
def test_other_dimensions_and_a_server_that_is_not_there_say_nothing_about_the_size(failure):
    once = failed(Health(), NOW, rows=8, **failure)

    assert failed(once, NOW + 2, rows=8, **failure).max_rows == 0


def test_a_learned_size_doubles_after_full_requests_and_is_forgotten_when_it_is_large():
    state = health.learned(Health(), 64)
    assert state.max_rows == 64

    for _ in range(GROW_AFTER):
        state = health.worked(state, 64)
    assert state.max_rows == 128
    assert health.worked(state, 64) == state

    for _ in range(4 * GROW_AFTER):
        state = health.worked(state, 2_000)
    assert state.max_rows == 0


# With rows.


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def pair(tmp_path, clock):
    """Two processes of one index with ten texts."""
    path = tmp_path / "main.sqlite"
    with closing(IndexWriter(path, clock=clock)) as one, closing(IndexWriter(path, clock=clock)) as two:
        retarget(one, MODEL_A)
        one.store_file(file_row("a.md", *(f"text {n}" for n in range(10))))
        yield [one, two]


def lease(writer):
    return writer.lease(RequestCaps(max_rows=2, max_tokens=100), credits=3, only_full=False)


def fail(writer, request, kind):
    hashes = tuple(text.hash for text in request.texts)
    failure = Failure(hashes=hashes, kind=kind, error=FAILED, is_probe=request.is_probe)
    writer.store_vectors(Answer(identity=request.identity, lease=request.lease, failures=(failure,)))


def test_after_a_failure_one_request_goes_ahead_of_the_others(pair, clock):
    first, *others = lease(pair[0])
    fail(pair[0], first, "later")
    answer(pair[0], others)
    # What was in flight with it has worked: after the pause all go on.
    clock.advance(1)
    fail(pair[0], lease(pair[0])[0], "later")
    pair[0].end_leases()

    assert lease(pair[1]) == []
    clock.advance(2)
    (single,) = lease(pair[1])
    assert single.is_probe and lease(pair[0]) == []


def test_a_probe_that_is_never_answered_is_followed_by_another_after_its_lease(pair, clock):
    fail(pair[0], lease(pair[0])[0], "stop")
    pair[0].end_leases()
    clock.advance(60)
    assert len(lease(pair[0])) == 1

    clock.advance(301)
    pair[1].sweep()

    assert [request.is_probe for request in lease(pair[1])] == [True]


def test_after_a_stop_that_was_ended_one_more_failure_opens_the_breaker_again(pair):
    fail(pair[0], lease(pair[0])[0], "stop")
    pair[0].end_leases()
    health.resume(pair[0].accounts, "openai")

    fail(pair[0], lease(pair[0])[0], "later")

    assert health.read(pair[0].accounts, "openai").paused


def test_a_pause_by_a_person_is_kept_in_the_index_until_it_is_ended(pair):
    for is_paused in (True, False):
        with pair[0].transaction():
            health.set_paused(pair[0].accounts, "openai", is_paused)
        states = [health.read(pair[1].accounts, "openai", mode) for mode in health.MODES]
        assert [each.manual for each in states] == [is_paused] * 2
        assert bool(lease(pair[1])) is not is_paused
        pair[0].end_leases()
