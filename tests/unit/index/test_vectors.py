from __future__ import annotations

from pathlib import Path

import pytest

from shared.clock import ManualClock
from shared.embedders.protocol import RequestCaps
from shared.index import dispatch, health, identity, vectors
from shared.index.rows import LearnedCaps, VectorRow
from shared.index.vectors import Backlog
from shared.index.writer import IndexWriter
from tests.support.index_rows import (
    CAPS,
    MODEL_A,
    MODEL_B,
    answer,
    fail,
    file_row,
    lease_all,
    vector,
    vector_of,
)


@pytest.fixture
def wanting(writer: IndexWriter) -> IndexWriter:
    """An index with one model and two texts that wait for their vectors."""
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples", "pears"))
    return writer


def backlog(writer: IndexWriter) -> Backlog:
    target = identity.target(writer.connection)
    assert target is not None
    return vectors.backlog(writer.connection, target.id)


def nearest(writer: IndexWriter, text: str) -> list[str]:
    active = identity.active(writer.connection)
    assert active is not None
    rows = writer.connection.execute(
        f"SELECT chunks.text FROM vec_{active.id} AS vec JOIN vectors ON vectors.id = vec.rowid"
        " JOIN chunks ON chunks.text_hash = vectors.text_hash WHERE vec.embedding MATCH ? AND k = 10"
        " ORDER BY vec.distance",
        (vector_of(text),),
    )
    return [row[0] for row in rows]


def test_texts_of_a_stored_file_are_leased_answered_and_searchable(wanting: IndexWriter) -> None:
    requests = lease_all(wanting)

    assert [text.text for request in requests for text in request.texts] == ["apples", "pears"]
    assert backlog(wanting).leased == 2

    answer(wanting, requests)

    assert backlog(wanting) == Backlog(ready=2)
    assert nearest(wanting, "pears")[0] == "pears"


def test_the_same_text_in_ten_files_is_leased_once(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    for number in range(10):
        writer.store_file(file_row(f"{number}.md", "the same text"))

    assert [len(request.texts) for request in lease_all(writer)] == [1]


def test_a_vector_that_is_there_is_never_asked_for_again(wanting: IndexWriter) -> None:
    answer(wanting, lease_all(wanting))
    wanting.store_file(file_row("a.md", at=2, outcome="removed"))

    stored = wanting.store_file(file_row("b.md", "pears", "plums", at=3))

    assert stored.cached == 1
    assert [text.text for request in lease_all(wanting) for text in request.texts] == ["plums"]
    assert nearest(wanting, "pears") == ["pears"]


def test_a_vector_whose_chunk_is_gone_meanwhile_rests_in_the_cache(wanting: IndexWriter) -> None:
    requests = lease_all(wanting)
    wanting.store_file(file_row("a.md", at=2, outcome="removed"))

    answer(wanting, requests)

    assert vectors.resting(wanting.connection) == 2
    assert wanting.store_file(file_row("a.md", "apples", at=3)).cached == 1


def test_the_cache_keeps_only_the_most_recently_used(path: Path, clock: ManualClock) -> None:
    writer = IndexWriter(path, cache_entries=1, clock=clock)
    writer.retarget(MODEL_A)
    for number, text in enumerate(("one", "two", "three")):
        writer.store_file(file_row(f"{text}.md", text, at=1))
        answer(writer, lease_all(writer))
        clock.advance(1)
        writer.store_file(file_row(f"{text}.md", at=2 + number, outcome="removed"))

    writer.sweep()

    assert vectors.resting(writer.connection) == 1
    assert writer.store_file(file_row("three.md", "three", at=9)).cached == 1
    writer.close()


def test_requests_are_packed_up_to_rows_and_tokens(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", *(f"{'word ' * 8}{n}" for n in range(10))))
    caps = RequestCaps(max_rows=4, max_tokens=33, max_text_tokens=100)

    requests = writer.lease(caps, credits=10, only_full=False)

    assert [len(request.texts) for request in requests] == [3, 3, 3, 1]


def test_a_request_that_is_not_full_waits_while_another_is_out(wanting: IndexWriter) -> None:
    first = wanting.lease(CAPS, credits=4, only_full=True)
    wanting.store_file(file_row("b.md", "plums"))

    assert len(first) == 1
    assert wanting.lease(CAPS, credits=4, only_full=True) == []
    assert len(wanting.lease(CAPS, credits=4, only_full=False)) == 1


def test_no_more_requests_are_out_than_there_are_credits(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(10))))
    one_row = RequestCaps(max_rows=1, max_tokens=1000, max_text_tokens=100)

    first = writer.lease(one_row, credits=3, only_full=False)
    second = writer.lease(one_row, credits=3, only_full=False)
    answer(writer, first[:1])
    third = writer.lease(one_row, credits=3, only_full=False)

    assert (len(first), len(second), len(third)) == (3, 0, 1)


def test_a_live_edit_goes_before_the_backfill(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("old.md", "backfill"), backfill=True)
    writer.store_file(file_row("new.md", "edited now"))

    texts = [text.text for request in lease_all(writer) for text in request.texts]

    assert texts == ["edited now", "backfill"]


def test_a_lease_that_runs_out_is_sent_again(wanting: IndexWriter, clock: ManualClock) -> None:
    first = lease_all(wanting)
    clock.advance(dispatch.LEASE_S + 1)

    wanting.sweep()
    second = lease_all(wanting)

    assert [r.texts for r in second] == [r.texts for r in first]
    assert [r.lease for r in second] != [r.lease for r in first]


def test_a_failure_of_an_old_lease_does_not_touch_the_new_one(
    wanting: IndexWriter, clock: ManualClock
) -> None:
    (old,) = lease_all(wanting)
    clock.advance(dispatch.LEASE_S + 1)
    wanting.sweep()
    (new,) = lease_all(wanting)

    fail(wanting, old, "refused")

    assert backlog(wanting).leased == 2
    answer(wanting, [new])
    assert backlog(wanting) == Backlog(ready=2)


def test_leases_of_a_dead_process_are_free_at_the_next_start(wanting: IndexWriter) -> None:
    lease_all(wanting)
    host = dispatch.this_owner().split(":")[0]
    wanting.connection.execute("UPDATE leases SET owner = ?", (f"{host}:{2**22 - 1}:1",))

    wanting.recover()

    assert backlog(wanting) == Backlog(wanted=2)


def test_leases_of_a_living_process_stay_at_the_next_start(wanting: IndexWriter) -> None:
    lease_all(wanting)

    wanting.recover()

    assert backlog(wanting).leased == 2


def test_retry_after_keeps_everybody_from_calling_until_then(
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
    for _ in range(health.REQUEST_RULES.limit):
        (request,) = lease_all(wanting)
        fail(wanting, request, "later")
        clock.advance(120)

    paused = health.read(wanting.connection, "openai")
    assert paused.paused and "it was later" in paused.reason
    assert lease_all(wanting) == []

    wanting.start_over()
    answer(wanting, lease_all(wanting))
    assert health.read(wanting.connection, "openai") == health.Health()


def test_requests_that_fail_together_count_as_one_failure(writer: IndexWriter) -> None:
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(8))))
    requests = writer.lease(
        RequestCaps(max_rows=1, max_tokens=1000, max_text_tokens=100), credits=8, only_full=False
    )

    for request in requests:
        fail(writer, request, "later")

    assert health.read(writer.connection, "openai").failures == 1


def test_stop_pauses_the_provider_with_what_to_do(wanting: IndexWriter, clock: ManualClock) -> None:
    (request,) = lease_all(wanting)

    fail(wanting, request, "stop")

    state = health.read(wanting.connection, "openai")
    assert (state.paused, state.reason, state.action) == (True, "it was stop", "do something")
    assert lease_all(wanting) == []
    assert backlog(wanting) == Backlog(wanted=2)

    clock.advance(health.REQUEST_RULES.cool_down_s + 1)
    assert len(lease_all(wanting)) == 1


def test_a_refused_text_fails_alone_with_its_reason(wanting: IndexWriter, clock: ManualClock) -> None:
    (request,) = lease_all(wanting)
    wanting.embed_failed(
        request.identity,
        request.lease,
        [request.texts[0].hash],
        kind="refused",
        error="not this one",
        action="",
        retry_after_s=None,
        learned=LearnedCaps(),
    )
    wanting.store_vectors(
        request.identity,
        request.lease,
        [VectorRow(hash=request.texts[1].hash, vector=vector_of("pears"))],
        LearnedCaps(),
    )

    assert backlog(wanting) == Backlog(ready=1, failed=1)
    target = identity.target(wanting.connection)
    assert target is not None
    assert [row[1:] for row in vectors.failures(wanting.connection, target.id, 10)] == [
        ("not this one", "a.md")
    ]
    assert wanting.connection.execute("SELECT count(*) FROM leases").fetchone()[0] == 0


def test_broken_answers_are_tried_again_and_then_counted_as_failed(
    wanting: IndexWriter, clock: ManualClock
) -> None:
    for _ in range(vectors.MAX_ATTEMPTS):
        assert backlog(wanting).failed == 0
        (request,) = lease_all(wanting)
        fail(wanting, request, "broken")
        clock.advance(60)

    assert backlog(wanting) == Backlog(failed=2)


def test_vectors_of_other_dimensions_are_never_stored(wanting: IndexWriter) -> None:
    (request,) = lease_all(wanting)
    rows = [
        VectorRow(hash=request.texts[0].hash, vector=vector(1, 0, 0, 0)),
        VectorRow(hash=request.texts[1].hash, vector=vector(1, 0)),
    ]

    wanting.store_vectors(request.identity, request.lease, rows, LearnedCaps())

    assert backlog(wanting) == Backlog(ready=1, wanted=1)


def test_caps_that_an_answer_taught_bound_the_next_requests(wanting: IndexWriter) -> None:
    wanting.store_file(file_row("b.md", "one", "two", "three"))
    first = wanting.lease(
        RequestCaps(max_rows=1, max_tokens=1000, max_text_tokens=100), credits=1, only_full=False
    )
    rows = [VectorRow(hash=text.hash, vector=vector_of(text.text)) for text in first[0].texts]
    wanting.store_vectors(MODEL_A, first[0].lease, rows, LearnedCaps(max_rows=3))

    assert [len(request.texts) for request in lease_all(wanting)] == [3, 1]


class TestChangingTheModel:
    def test_search_keeps_the_old_vectors_until_the_new_ones_are_complete(self, wanting: IndexWriter) -> None:
        answer(wanting, lease_all(wanting))

        wanting.retarget(MODEL_B)

        assert self.active_model(wanting) == "a"
        (request,) = lease_all(wanting)
        assert request.identity == MODEL_B
        half, rest = request.texts[:1], request.texts[1:]
        for texts in (half, rest):
            assert self.active_model(wanting) == "a"
            rows = [VectorRow(hash=text.hash, vector=vector_of(text.text)) for text in texts]
            wanting.store_vectors(MODEL_B, request.lease, rows, LearnedCaps())
        assert self.active_model(wanting) == "b"
        assert nearest(wanting, "pears")[0] == "pears"

    def test_going_back_takes_the_vectors_from_the_cache(self, wanting: IndexWriter) -> None:
        answer(wanting, lease_all(wanting))
        wanting.retarget(MODEL_B)
        answer(wanting, lease_all(wanting))
        wanting.sweep()
        assert vectors.resting(wanting.connection) == 2

        wanting.retarget(MODEL_A)

        assert self.active_model(wanting) == "a"
        assert lease_all(wanting) == []
        assert nearest(wanting, "apples")[0] == "apples"

    def test_a_model_that_fails_for_all_texts_does_not_take_over(self, wanting: IndexWriter) -> None:
        answer(wanting, lease_all(wanting))
        wanting.retarget(MODEL_B)

        fail(wanting, lease_all(wanting)[0], "refused")

        assert self.active_model(wanting) == "a"

    def test_without_a_provider_nothing_is_wanted_and_nothing_lost(self, wanting: IndexWriter) -> None:
        answer(wanting, lease_all(wanting))

        wanting.retarget(None)
        wanting.store_file(file_row("b.md", "plums"))

        assert self.active_model(wanting) == "a"
        assert lease_all(wanting) == []
        wanting.retarget(MODEL_A)
        assert [text.text for request in lease_all(wanting) for text in request.texts] == ["plums"]

    @staticmethod
    def active_model(writer: IndexWriter) -> str:
        active = identity.active(writer.connection)
        assert active is not None
        return active.identity.model


class TestVecTables:
    def test_a_writer_without_sqlite_vec_leaves_them_to_be_rebuilt(
        self, path: Path, clock: ManualClock
    ) -> None:
        without = IndexWriter(path, vector_enabled=False, clock=clock)
        without.retarget(MODEL_A)
        without.store_file(file_row("a.md", "apples", "pears"))
        answer(without, lease_all(without))
        without.close()

        again = IndexWriter(path, clock=clock)
        again.recover()

        assert nearest(again, "pears")[0] == "pears"
        again.close()

    def test_a_table_that_is_mostly_holes_is_rebuilt(self, writer: IndexWriter) -> None:
        writer.retarget(MODEL_A)
        texts = [f"text {n}" for n in range(3_000)]
        writer.store_file(file_row("a.md", *texts, at=1))
        answer(writer, lease_all(writer, credits=100))
        # One text stays in each of the table's pages, so none of them is freed by itself.
        writer.store_file(file_row("a.md", *texts[::256], at=2))
        pages_before = writer.connection.execute("SELECT count(*) FROM vec_1_chunks").fetchone()[0]

        writer.recover()

        pages_after = writer.connection.execute("SELECT count(*) FROM vec_1_chunks").fetchone()[0]
        assert (pages_before, pages_after) == (12, 1)
        assert nearest(writer, "text 256")[0] == "text 256"
