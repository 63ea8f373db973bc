import pytest

from memline.shared.config.installation import Ceilings
from memline.shared.index.rows import VectorRow
from memline.shared.queue.messages import StoreFiles, StoreVectors, Sweep
from memline.shared.scheduling.budget import spent
from memline.shared.scheduling.health import Failure
from memline.shared.scheduling.leases import LEASE_S, Usage
from memline.workers import store
from tests.support.index_rows import backlog, file_row, vector_of
from tests.unit.workers.conftest import work

FILES = StoreFiles(agent="main", files=(file_row("a.md", "apples", "pears"),))


@pytest.fixture
def request_sent(context, sent):
    """The one request for the texts of `FILES`."""
    work(store.store_files, FILES)
    (request,) = sent
    sent.clear()
    return request.request


def test_texts_that_were_sent_are_not_sent_again_by_a_sweep(context, sent, request_sent):
    work(store.sweep, Sweep(agent="main", deep=True))

    assert sorted(text.text for text in request_sent.texts) == ["apples", "pears"]
    assert sent == []
    assert backlog(context.writer("main")).leased == 2


def test_texts_of_an_expired_lease_are_sent_again_and_the_log_says_so(
    context,
    clock,
    sent,
    request_sent,
    caplog,
):
    clock.advance(LEASE_S + 1)

    work(store.sweep, Sweep(agent="main", deep=True))

    (message,) = sent
    again = message.request
    assert (again.texts, again.lease == request_sent.lease) == (
        request_sent.texts,
        False,
    )
    assert "leases.over" in caplog.messages


def test_an_answer_that_is_stored_twice_counts_once(context, clock, sent, request_sent):
    rows = tuple(VectorRow(hash=text.hash, vector=vector_of(text.text)) for text in request_sent.texts)
    message = StoreVectors(
        agent="main",
        identity=request_sent.identity,
        lease=request_sent.lease,
        vectors=rows,
        usage=Usage(tokens=5, paid_calls=3),
    )

    for _ in range(2):
        work(store.store_vectors, message)

    writer = context.writer("main")
    assert backlog(writer).ready == 2
    today = spent(writer.accounts.file, Ceilings(), clock.now())["today"]
    assert today["requests"] == 3


def test_texts_of_a_failed_request_are_wanted_again(context, sent, request_sent):
    hashes = tuple(text.hash for text in request_sent.texts)
    failure = Failure(hashes=hashes, kind="later", error="busy", retry_after_s=60.0)
    message = StoreVectors(
        agent="main",
        identity=request_sent.identity,
        lease=request_sent.lease,
        failed=(failure,),
    )
    work(store.store_vectors, message)

    work(store.sweep, Sweep(agent="main"))

    assert sent == []
    assert backlog(context.writer("main")).wanted == 2
