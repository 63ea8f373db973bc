import pytest

from memline.shared.config.installation import Ceilings
from memline.shared.index.accounts import AccountFile
from memline.shared.index.rows import VectorRow
from memline.shared.queue.messages import StoreFiles, StoreVectors, Sweep
from memline.shared.scheduling.budget import spent
from memline.shared.scheduling.health import Failure
from memline.shared.scheduling.leases import LEASE_S, Answer
from memline.shared.scheduling.minutes import MINUTES, last_day
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


def answer_of(request):
    """The message with the vectors of a request."""
    answer = Answer(
        identity=request.identity,
        lease=request.lease,
        vectors=tuple(VectorRow(hash=text.hash, vector=vector_of(text.text)) for text in request.texts),
        used_tokens=5,
        paid_calls=3,
    )
    return StoreVectors(agent="main", answer=answer)


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


def test_texts_that_no_vector_came_of_wait_a_moment(context, sent, request_sent):
    hashes = tuple(text.hash for text in request_sent.texts)
    failure = Failure(hashes=hashes, kind="unsent", error="it was not sent")
    answer = Answer(identity=request_sent.identity, lease=request_sent.lease, failures=(failure,))

    work(store.store_vectors, StoreVectors(agent="main", answer=answer))

    assert sent == []
    work(store.sweep, Sweep(agent="main"))
    assert len(sent) == 1


def test_an_answer_that_is_stored_twice_counts_once(context, clock, sent, request_sent):
    for _ in range(2):
        work(store.store_vectors, answer_of(request_sent))

    writer = context.writer("main")
    assert backlog(writer).ready == 2
    today = spent(writer.accounts.file, Ceilings(), clock.now())["today"]
    assert today["requests"] == 3


def test_what_was_embedded_and_what_is_pending_is_kept_by_the_minute_for_a_day(context, clock, request_sent):
    settings = context.settings
    log = settings.account_path.with_name(f"{settings.account_path.name}-wal")

    def chart(at):
        return last_day(AccountFile(settings.account_path), [str(settings.agents["main"].index_path)], at)

    def sweep_after(seconds):
        clock.advance(seconds)
        work(store.sweep, Sweep(agent="main", deep=True))
        return log.read_bytes()

    work(store.store_vectors, answer_of(request_sent))
    written, began = sweep_after(60), clock.now()

    assert [counts[-3:] for counts in chart(began)] == [[0, 0, 2], [2, 2, 0]]
    # Nothing changes, nothing is written.
    assert sweep_after(60) == written
    assert [counts[-3:] for counts in chart(clock.now())] == [[0, 2, 0], [2, 0, 0]]

    work(store.store_files, StoreFiles(agent="main", files=(file_row("b.md", "plums"),)))
    sweep_after(MINUTES * 60)
    assert [sum(counts) for counts in chart(clock.now())] == [0, 1]
    assert [sum(counts) for counts in chart(began)] == [0, 0]
