"""Requests are packed, bounded and given back when their worker is gone."""

import time
from contextlib import closing

from memline.shared.config.schema import AgentSettings, MemorySearch, Remote
from memline.shared.index.vectors import Backlog
from memline.shared.index_writer import IndexWriter
from memline.shared.providers import RequestCaps
from memline.shared.scheduling import health, leases
from tests.support.index_rows import CAPS, MODEL_A, answer, backlog, fail, file_row, lease_all, retarget


def test_requests_are_packed_up_to_rows_and_tokens(writer):
    retarget(writer, MODEL_A)
    writer.store_file(file_row("a.md", *(f"{'word ' * 8}{n}" for n in range(10))))
    caps = RequestCaps(max_rows=4, max_tokens=33)

    requests = writer.lease(caps, credits=10, only_full=False)

    assert [len(request.texts) for request in requests] == [3, 3, 3, 1]


def test_a_request_that_is_not_full_waits_while_another_is_in_flight(wanting):
    first = wanting.lease(CAPS, credits=4, only_full=True)
    wanting.store_file(file_row("b.md", "plums"))

    assert len(first) == 1
    assert wanting.lease(CAPS, credits=4, only_full=True) == []
    assert len(wanting.lease(CAPS, credits=4, only_full=False)) == 1


def test_no_more_requests_are_in_flight_than_there_are_credits(writer):
    retarget(writer, MODEL_A)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(10))))
    one_row = RequestCaps(max_rows=1, max_tokens=1000)

    first = writer.lease(one_row, credits=3, only_full=False)
    second = writer.lease(one_row, credits=3, only_full=False)
    answer(writer, first[:1])
    third = writer.lease(one_row, credits=3, only_full=False)

    assert (len(first), len(second), len(third)) == (3, 0, 1)


def test_a_lease_outlives_the_slowest_request_that_the_settings_allow(tmp_path):
    memory = MemorySearch(remote=Remote(timeout_seconds=3600))
    settings = AgentSettings(
        agent="main",
        workspace=tmp_path,
        index_path=tmp_path / "index.sqlite",
        state_dir=tmp_path,
        memory=memory,
    )

    with closing(IndexWriter.of(settings)) as patient:
        retarget(patient, MODEL_A)
        patient.store_file(file_row("a.md", "apples"))
        (request,) = patient.lease(CAPS, credits=1, only_full=False)

    # One request waits for another in its worker; each lasts twice the limit of a call at most.
    assert request.until > time.time() + 2 * 2 * 3600


def test_a_deadline_that_is_too_far_ahead_is_over(wanting, clock):
    lease_all(wanting)

    clock.set_back(7_200)
    wanting.sweep()

    assert backlog(wanting) == Backlog(wanted=2)


def test_the_texts_of_an_expired_lease_are_sent_again(wanting, clock):
    first = lease_all(wanting)
    clock.advance(leases.LEASE_S + 1)

    wanting.sweep()
    second = lease_all(wanting)

    assert [r.texts for r in second] == [r.texts for r in first]
    assert [r.lease for r in second] != [r.lease for r in first]


def test_a_failure_of_an_old_lease_does_not_touch_the_new_one(wanting, clock):
    (old,) = lease_all(wanting)
    clock.advance(leases.LEASE_S + 1)
    wanting.sweep()
    (new,) = lease_all(wanting)

    fail(wanting, old, "refused")

    assert backlog(wanting).leased == 2
    answer(wanting, [new])
    assert backlog(wanting) == Backlog(ready=2)


def test_what_failed_while_the_index_was_locked_is_not_sent_again_at_once(wanting, monkeypatch):
    """The texts of a failed batch come back in the transaction that stops the provider."""
    (request,) = lease_all(wanting)
    read, calls = health.read, []

    def read_then_fail(*arguments):
        state = read(*arguments)
        if not calls:
            calls.append(True)
            fail(wanting, request, "stop")
        return state

    monkeypatch.setattr(health, "read", read_then_fail)

    assert lease_all(wanting) == []
