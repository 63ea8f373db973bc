"""Requests are packed, bounded and given back when their worker is gone."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memline.shared.clock import ManualClock
from memline.shared.config.installation import Ceilings
from memline.shared.config.schema import AgentSettings, MemorySearch, Remote
from memline.shared.index.vectors import Backlog
from memline.shared.index_writer import IndexWriter
from memline.shared.providers import RequestCaps
from memline.shared.scheduling import budget, leases
from tests.support.index_rows import CAPS, MODEL_A, answer, backlog, fail, file_row, lease_all


def test_requests_are_packed_up_to_rows_and_tokens(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", *(f"{'word ' * 8}{n}" for n in range(10))))
    caps = RequestCaps(max_rows=4, max_tokens=33)

    requests = writer.lease(caps, credits=10, only_full=False)

    assert [len(request.texts) for request in requests] == [3, 3, 3, 1]


def test_a_request_that_is_not_full_waits_while_another_is_in_flight(wanting: IndexWriter) -> None:
    first = wanting.lease(CAPS, credits=4, only_full=True)
    wanting.store_file(file_row("b.md", "plums"))

    assert len(first) == 1
    assert wanting.lease(CAPS, credits=4, only_full=True) == []
    assert len(wanting.lease(CAPS, credits=4, only_full=False)) == 1


def test_no_more_requests_are_in_flight_than_there_are_credits(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(10))))
    one_row = RequestCaps(max_rows=1, max_tokens=1000)

    first = writer.lease(one_row, credits=3, only_full=False)
    second = writer.lease(one_row, credits=3, only_full=False)
    answer(writer, first[:1])
    third = writer.lease(one_row, credits=3, only_full=False)

    assert (len(first), len(second), len(third)) == (3, 0, 1)


def test_a_lease_outlives_the_slowest_request_that_the_settings_allow(tmp_path: Path) -> None:
    memory = MemorySearch(remote=Remote(timeout_seconds=3600))
    settings = AgentSettings(
        agent="main",
        workspace=tmp_path,
        index_path=tmp_path / "index.sqlite",
        state_dir=tmp_path,
        memory=memory,
    )

    with closing(IndexWriter.of(settings)) as patient:
        lease_s = patient.holder.lease_s

    assert leases.lease_s(60) == leases.LEASE_S
    # One request waits for another in its worker; each lasts twice the limit of a call at most.
    assert lease_s > 2 * 2 * 3600


def test_the_texts_of_an_expired_lease_are_sent_again(wanting: IndexWriter, clock: ManualClock) -> None:
    first = lease_all(wanting)
    clock.advance(leases.LEASE_S + 1)

    wanting.sweep()
    second = lease_all(wanting)

    assert [r.texts for r in second] == [r.texts for r in first]
    assert [r.lease for r in second] != [r.lease for r in first]


def test_a_failure_of_an_old_lease_does_not_touch_the_new_one(
    wanting: IndexWriter, clock: ManualClock
) -> None:
    (old,) = lease_all(wanting)
    clock.advance(leases.LEASE_S + 1)
    wanting.sweep()
    (new,) = lease_all(wanting)

    fail(wanting, old, "refused")

    assert backlog(wanting).leased == 2
    answer(wanting, [new])
    assert backlog(wanting) == Backlog(ready=2)


def test_leases_of_a_dead_process_are_free_at_the_next_start(wanting: IndexWriter) -> None:
    lease_all(wanting)
    host = leases.current_owner().split(":")[0]
    wanting.connection.execute("UPDATE leases SET owner = ?", (f"{host}:{2**22 - 1}:1",))

    wanting.recover()

    assert backlog(wanting) == Backlog(wanted=2)


def test_leases_of_a_living_process_stay_at_the_next_start(wanting: IndexWriter) -> None:
    lease_all(wanting)

    wanting.recover()

    assert backlog(wanting).leased == 2


def started_process() -> subprocess.Popen[bytes]:
    """A process that waits for the end of its input."""
    return subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def owner_of(process: subprocess.Popen[bytes]) -> str:
    host = leases.current_owner().split(":")[0]
    return f"{host}:{process.pid}:{leases._start_time(process.pid)}"


def test_an_owner_is_alive_until_its_process_has_ended() -> None:
    with started_process() as child:
        owner = owner_of(child)
        while_it_runs = leases.is_owner_alive(owner)
        child.kill()
        child.wait()

    assert leases.is_owner_alive(leases.current_owner())
    assert (while_it_runs, leases.is_owner_alive(owner)) == (True, False)


def test_an_owner_that_was_killed_and_not_reaped_is_not_alive() -> None:
    with started_process() as child:
        owner = owner_of(child)
        child.kill()
        # Waits for its end and leaves it a zombie.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

        assert not leases.is_owner_alive(owner)


def test_an_owner_whose_pid_another_process_has_now_is_not_alive() -> None:
    host, pid, started = leases.current_owner().rsplit(":", 2)

    assert not leases.is_owner_alive(f"{host}:{pid}:{int(started) - 1}")


def test_a_process_of_another_host_counts_as_alive() -> None:
    assert leases.is_owner_alive("elsewhere:4194303:1")


@pytest.mark.parametrize("owner", ["fleet", "elsewhere:no pid:1", ""])
def test_an_owner_that_names_no_process_is_gone(owner: str) -> None:
    assert not leases.is_owner_alive(owner)


def test_a_lease_of_another_host_is_over_at_its_time(wanting: IndexWriter, clock: ManualClock) -> None:
    lease_all(wanting)
    wanting.connection.execute("UPDATE leases SET owner = 'elsewhere:4194303:1'")
    wanting.recover()
    held = backlog(wanting).leased

    clock.advance(leases.LEASE_S + 1)
    wanting.recover()

    assert (held, backlog(wanting)) == (2, Backlog(wanted=2))


def test_a_lease_of_another_host_is_over_when_a_clock_that_was_ahead_is_set_right(
    wanting: IndexWriter, clock: ManualClock
) -> None:
    lease_all(wanting)
    wanting.connection.execute("UPDATE leases SET owner = 'elsewhere:4194303:1'")

    clock.set_back(7_200)
    wanting.recover()

    assert backlog(wanting) == Backlog(wanted=2)


def test_a_clock_that_is_set_ends_no_lease(wanting: IndexWriter, clock: ManualClock) -> None:
    lease_all(wanting)

    clock.set_back(-7_200)
    ahead = wanting.sweep()
    clock.set_back(14_400)
    behind = wanting.sweep()

    assert (ahead, behind, backlog(wanting).leased) == ([], [], 2)


def test_an_answer_is_waited_for_as_long_as_ever_when_the_clock_is_set_back(
    wanting: IndexWriter, clock: ManualClock
) -> None:
    lease_all(wanting)

    clock.set_back(7_200)
    clock.advance(leases.LEASE_S + 1)
    wanting.sweep()

    assert backlog(wanting) == Backlog(wanted=2)


def spent(writer: IndexWriter) -> int:
    return int(budget.spent(writer.accounts.file, Ceilings(), writer._clock.now())["today"]["tokens"])


def test_what_was_leased_and_not_sent_is_not_spent(wanting: IndexWriter) -> None:
    (request,) = lease_all(wanting)
    while_it_waits = spent(wanting)
    wanting.budget.may_send(request.lease)

    assert (while_it_waits, spent(wanting)) == (0, wanting.budget.reserved(request.lease))
    assert spent(wanting) > 0


def test_at_a_polite_end_what_was_not_sent_is_free_and_may_be_sent_by_nobody(wanting: IndexWriter) -> None:
    (request,) = lease_all(wanting)

    wanting.free_unsent([request.lease])

    assert backlog(wanting) == Backlog(wanted=2)
    assert not wanting.budget.may_send(request.lease)
    assert spent(wanting) == 0


def test_a_worker_that_comes_while_unsent_texts_are_freed_sends_nothing(
    wanting: IndexWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    (request,) = lease_all(wanting)
    may_send = []
    free = leases.free

    def free_meanwhile(*args: Any, **options: Any) -> list[str]:
        may_send.append(wanting.budget.may_send(request.lease))
        return free(*args, **options)

    monkeypatch.setattr(leases, "free", free_meanwhile)
    wanting.free_unsent([request.lease])

    assert (may_send, backlog(wanting)) == ([False], Backlog(wanted=2))


def test_what_was_revoked_by_a_process_that_was_killed_then_is_freed_by_the_next(
    wanting: IndexWriter,
) -> None:
    (request,) = lease_all(wanting)
    wanting.budget.revoke([request.lease])

    assert wanting.free_unsent([request.lease]) == [request.lease]
    assert backlog(wanting) == Backlog(wanted=2)


def test_what_was_sent_and_killed_is_wanted_again_and_counts_as_spent(wanting: IndexWriter) -> None:
    (request,) = lease_all(wanting)
    wanting.budget.may_send(request.lease)
    tokens = spent(wanting)

    wanting.free_unsent([request.lease])
    before_it_ends = backlog(wanting).leased
    host = leases.current_owner().split(":")[0]
    wanting.connection.execute("UPDATE leases SET owner = ?", (f"{host}:{2**22 - 1}:1",))
    wanting.recover()

    assert (before_it_ends, backlog(wanting)) == (2, Backlog(wanted=2))
    assert spent(wanting) == tokens > 0


def test_a_late_answer_to_what_was_taken_for_not_sent_counts(wanting: IndexWriter) -> None:
    (request,) = lease_all(wanting)
    tokens = wanting.budget.reserved(request.lease)
    wanting.free_leases([request.lease])

    wanting.settle(request.lease, tokens)

    assert spent(wanting) == tokens
    assert budget.spent(wanting.accounts.file, Ceilings(), wanting._clock.now())["today"]["requests"] == 1


def test_the_tokens_of_leases_name_the_requests_in_flight(wanting: IndexWriter) -> None:
    assert leases.tokens(wanting.connection) == []

    requests = lease_all(wanting)

    assert leases.tokens(wanting.connection) == [request.lease for request in requests]
