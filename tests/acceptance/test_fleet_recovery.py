"""kill -9 of anything at any moment, Redis too: nothing is lost, nothing half done, nothing paid twice."""

import signal
import time
from contextlib import closing, contextmanager

import pytest

from tests.acceptance.conftest import LEASE_S, ROWS, write_notes
from tests.support.fleet import LINES, Fleet
from tests.support.undisturbed import assert_as_undisturbed, assert_paid_once

#: Requests a worker process has in the air at most, one a thread: what its end may cost.
IN_THE_AIR = 4

#: Requests that are out at a time at most, for one embed process of four threads.
OUT = 2 * IN_THE_AIR

#: Seconds after the restart of a process within which all work is done.
DONE_S = 150.0

NOTES = 60

#: Milliseconds of a request: a backfill of these takes some seconds.
LATENCY_MS = 300


@pytest.fixture
def backfill(fleet, notes, provider):
    """A fleet in the middle of a backfill of so many texts."""
    texts = write_notes(notes, 0, NOTES)
    provider.control({"latency_ms": LATENCY_MS})
    fleet.up()
    fleet.until(lambda: len(provider.requests) > 4, "the backfill")
    return texts


def is_done(fleet, texts):
    return fleet.vectors() == {"ready": texts} and all(
        one.waiting == one.in_flight == 0 for one in map(fleet.queue, ("chunk", "embed", "store"))
    )


def until_done(fleet, texts, *, within_s=DONE_S):
    fleet.until(lambda: is_done(fleet, texts), "the end of all work", within_s=within_s)


@pytest.mark.parametrize("name", LINES)
def test_any_process_may_be_killed_in_the_middle_and_all_is_done_soon_after_its_restart(
    fleet, notes, provider, backfill, tmp_path, name
):
    fleet.restart(name)

    until_done(fleet, backfill)
    assert_as_undisturbed(notes, tmp_path)
    assert_paid_once(provider, at_most=IN_THE_AIR * ROWS if name == "embed" else 0)
    assert fleet.dead() == []


def test_a_flushed_redis_costs_one_lease_and_no_vector(
    fleet,
    notes,
    provider,
    redis_server,
    backfill,
    tmp_path,
):
    redis_server.ask("FLUSHALL")

    until_done(fleet, backfill)
    assert_as_undisturbed(notes, tmp_path)
    # Only the answers that lay in Redis at that moment are gone.
    assert_paid_once(provider, at_most=OUT * ROWS)
    assert fleet.dead() == []


def test_a_worker_that_was_stopped_for_longer_than_its_lease_changes_nothing_and_pays_for_nothing(
    notes, provider, redis_server, tmp_path
):
    texts = write_notes(notes, 0, NOTES)
    provider.control({"latency_ms": LATENCY_MS})
    # Long enough for an answer on a loaded machine: a lease that ends early is sent again.
    with Fleet(notes, redis_server.url, lease_s=LEASE_S) as fleet:
        fleet.up_together("embed", "embed-2")
        fleet.until(lambda: len(provider.requests) > 8, "the backfill")

        fleet.signal("embed", signal.SIGSTOP)
        fleet.until(lambda: fleet.vectors() == {"ready": texts}, "the work of the others")
        asked = len(provider.requests)
        fleet.signal("embed", signal.SIGCONT)

        until_done(fleet, texts)
        assert_as_undisturbed(notes, tmp_path)
        # Only what a thread was just sending when the process was stopped: nothing that waited in it.
        assert len(provider.requests) <= asked + IN_THE_AIR
        assert_paid_once(provider, at_most=IN_THE_AIR * ROWS)
        assert fleet.dead() == []


@pytest.mark.parametrize("name", ["chunk", "store"])
def test_a_worker_that_was_stopped_cannot_overwrite_what_is_newer(fleet, notes, provider, tmp_path, name):
    texts = write_notes(notes, 0, 30)
    fleet.up_together(name)
    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "all vectors")

    fleet.signal(name, signal.SIGSTOP)
    notes.write("memory/note-3.md", "# Old\n\nplugh\n")
    fleet.until(lambda: fleet.queue(name).waiting > 0, "the old words on the queue")
    notes.write("memory/note-3.md", "# New\n\nxyzzy\n")
    if name == "chunk":
        fleet.start("chunk-2")
    fleet.signal(name, signal.SIGCONT)

    until_done(fleet, texts - 2)
    assert [hit.path for hit in notes.search("xyzzy", min_score=1).hits] == ["memory/note-3.md"]
    assert_as_undisturbed(notes, tmp_path)


def test_sigterm_ends_every_process_within_seconds_also_while_redis_is_away(notes, provider, lasting_redis):
    write_notes(notes, 0, NOTES)
    provider.control({"latency_ms": LATENCY_MS})
    with Fleet(notes, lasting_redis.url) as fleet:
        fleet.up()
        fleet.until(lambda: len(provider.requests) > 4, "the backfill")
        lasting_redis.kill()
        fleet.terminate(*LINES)
        for label in LINES:
            fleet.ended(label)

        # What a process leaves behind is taken up like that of one that was killed.
        assert "Traceback" not in "".join(fleet.logs())


@contextmanager
def away(server):
    server.kill()
    yield
    server.start()


@contextmanager
def other_password(server):
    with closing(server.client()) as admin:
        admin.config_set("requirepass", "other")
        # Connections that are there need no password again.
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        yield
        admin.config_set("requirepass", "")


@contextmanager
def replica(server):
    server.ask("REPLICAOF", "127.0.0.1", "1")
    yield
    server.ask("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize("trouble", [away, other_password, replica])
def test_what_was_paid_for_while_redis_took_nothing_is_delivered_when_it_does(
    notes,
    provider,
    lasting_redis,
    trouble,
):
    write_notes(notes, 0, 30)
    provider.control({"latency_ms": 1000})
    with Fleet(notes, lasting_redis.url) as fleet:
        fleet.up_together("embed")
        fleet.until(lambda: len(provider.requests) >= 4, "requests in the air")
        with trouble(lasting_redis):
            paid = sum(request.rows for request in provider.requests)
            _sleep_until(lambda: provider.control({"latency_ms": 1000}), 2.0)

        fleet.until(lambda: fleet.vectors().get("ready", 0) >= paid, "what was paid for")
        assert_paid_once(provider)
        assert fleet.dead() == []


def _sleep_until(check, seconds):
    """Redis stays away for longer than a request takes."""
    time.sleep(seconds)
    check()
