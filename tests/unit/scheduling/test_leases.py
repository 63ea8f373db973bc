"""Requests are packed, bounded and given back when their worker is gone."""

import pytest

from memline.shared.index.rows import VectorRow
from memline.shared.index.vectors import Backlog
from memline.shared.scheduling import health, leases
from memline.shared.scheduling.leases import Answer
from tests.support.index_rows import (
    CAPS,
    MODEL_A,
    answer,
    backlog,
    fail,
    file_row,
    lease_all,
)


def test_a_request_that_is_not_full_waits_while_another_is_in_flight(wanting):
    first = wanting.lease(CAPS, credits=4, only_full=True)
    wanting.store_file(file_row("b.md", "plums"))

    assert len(first) == 1
    assert wanting.lease(CAPS, credits=4, only_full=True) == []
    assert len(wanting.lease(CAPS, credits=4, only_full=False)) == 1


@pytest.mark.parametrize("kind", ["refused", "stop"])
def test_a_failure_of_an_old_lease_does_not_touch_the_new_one(wanting, clock, kind):
    (old,) = lease_all(wanting)
    clock.advance(leases.LEASE_S + 1)
    wanting.sweep()
    (new,) = lease_all(wanting)

    fail(wanting, old, kind)

    assert backlog(wanting).leased == 2
    assert not health.read(wanting.accounts, MODEL_A.provider).is_stopped
    answer(wanting, [new])
    assert backlog(wanting) == Backlog(ready=2)


def test_one_vector_of_other_dimensions_than_its_neighbours_fails_alone(wanting):
    wanting.store_file(file_row("b.md", "plums"))
    (request,) = lease_all(wanting)
    *others, odd = (text.hash for text in request.texts)
    rows = [*(VectorRow(hash=one, vector=bytes(12)) for one in others), VectorRow(hash=odd, vector=bytes(8))]

    wanting.store_vectors(Answer(identity=request.identity, lease=request.lease, vectors=tuple(rows)))

    assert backlog(wanting) == Backlog(ready=2, wanted=1)
    assert health.read(wanting.accounts, MODEL_A.provider) == health.Health()
