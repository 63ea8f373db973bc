"""The steps of a batch: each on record before the next, so that whatever is cut off is found again."""

from __future__ import annotations

import pytest

from shared.clock import ManualClock
from shared.embedders.batch import BatchResult
from shared.errors import (
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderRefused,
    ProviderStop,
    ProviderTooBig,
)
from shared.index import batches, dispatch, health
from shared.index.batch_claims import ClaimLost, claimed, free_dead, hand_out
from shared.index.batches import Batch
from shared.index.driver import transaction
from shared.index.writer import IndexWriter
from tests.support.batch_desk import Desk
from tests.support.index_rows import CAPS, MODEL_B, file_row, vector_of

TEXTS = 20


@pytest.fixture
def desk(writer: IndexWriter, clock: ManualClock) -> Desk:
    desk = Desk(writer, clock)
    writer.store_file(file_row("a.md", *(f"text {n}" for n in range(TEXTS))))
    return desk


@pytest.fixture
def batch(desk: Desk) -> Batch:
    return desk.make()


def lost(message: str = "no answer") -> ProviderError:
    """An error of a call that may have had its effect."""
    error = ProviderLater(message)
    error.maybe_done = True
    return error


def handed(desk: Desk) -> list[str]:
    """The batches that are handed out now."""
    given, _ = hand_out(desk.writer.connection, desk.clock.now())
    return [batch.token for batch in given]


def batch_health(desk: Desk) -> health.Health:
    return health.read(desk.writer.connection, "openai", health.BATCH)


def test_a_batch_is_uploaded_created_looked_at_stored_and_cleaned_up(desk: Desk, batch: Batch) -> None:
    submitted = desk.step(batch.token)
    desk.clock.advance(10)
    running = desk.step(batch.token)
    desk.api.finish()
    desk.clock.advance(15)
    stored = desk.step(batch.token)
    closed = desk.step(batch.token)

    assert (submitted.state, submitted.job_id, submitted.file_id) == ("submitted", "job-1", "file-1")
    assert (running.state, running.said) == ("submitted", "is running")
    assert (stored.state, stored.stored) == ("cleaning", TEXTS)
    assert (closed.state, closed.outcome, closed.error) == ("closed", "done", "")
    assert desk.states() == {"ready": TEXTS}
    assert desk.api.files == {}
    assert "find" not in desk.api.calls, "without trouble no list is read"


@pytest.mark.parametrize(("call", "found_by"), [("upload", "find_upload"), ("create", "find")])
def test_a_call_whose_answer_was_lost_is_found_by_its_tag_and_not_made_again(
    desk: Desk, batch: Batch, call: str, found_by: str
) -> None:
    desk.api.lost[call].append(lost())

    desk.step(batch.token)
    assert desk.batch(batch.token).state in ("intent", "uploaded")
    after = desk.run(batch.token, steps=3)

    assert after.state == "submitted"
    assert desk.api.calls[call] == desk.api.calls[found_by] == 1
    assert (len(desk.api.jobs), len(desk.api.files)) == (1, 1)


def test_a_create_that_was_cut_off_is_looked_for_only_when_it_must_have_shown(
    desk: Desk, batch: Batch
) -> None:
    desk.api.lost["create"].append(lost())

    desk.step(batch.token)
    desk.clock.advance(3)
    waiting = desk.step(batch.token)

    assert desk.api.calls["find"] == 0
    assert waiting.due == pytest.approx(desk.clock.now() + 7)


def test_a_create_that_never_arrived_is_made_once_more(desk: Desk, batch: Batch) -> None:
    desk.api.errors["create"].append(lost())

    after = desk.run(batch.token, steps=3)

    assert after.state == "submitted"
    assert len(desk.api.jobs) == 1


def test_a_batch_that_is_too_big_is_made_again_as_halves(desk: Desk, batch: Batch) -> None:
    desk.api.errors["upload"].append(ProviderTooBig("too many rows"))

    desk.run(batch.token, steps=2)
    desk.gather()

    assert desk.batch(batch.token).state == "closed"
    assert [batch.rows for batch in desk.open()] == [TEXTS // 2, TEXTS // 2]
    assert batch_health(desk).failures == 0


def test_a_bad_key_pauses_the_provider_and_keeps_the_texts_for_a_batch(desk: Desk, batch: Batch) -> None:
    desk.api.errors["upload"].append(ProviderStop("bad key", hint="fix it", status=401))

    desk.run(batch.token, steps=2)

    state = health.read(desk.writer.connection, "openai")
    assert (state.paused, state.reason, state.action) == (True, "bad key", "fix it")
    assert batch_health(desk).state == "closed"
    assert desk.states() == {"wanted": TEXTS}


@pytest.mark.parametrize(("call", "status"), [("upload", 403), ("upload", 404), ("create", 404)])
def test_where_there_is_no_batch_api_the_breaker_opens_at_once(
    desk: Desk, batch: Batch, call: str, status: int
) -> None:
    desk.api.errors[call].append(ProviderStop("no such thing", hint="switch it off", status=status))

    desk.run(batch.token, steps=3)

    assert batch_health(desk).state == "open"
    assert batch_health(desk).action == "switch it off"
    assert not health.read(desk.writer.connection, "openai").paused
    assert desk.gather().above < 0, "the texts go out in requests"
    assert desk.api.files == {}


def test_a_provider_in_trouble_is_tried_again_with_growing_waits_and_given_up(
    desk: Desk, batch: Batch
) -> None:
    desk.api.errors["upload"] = [ProviderLater("503") for _ in range(9)]

    waits = []
    while desk.batch(batch.token).state == "intent":
        before = desk.step(batch.token)
        waits.append(before.due - desk.clock.now())
        desk.clock.advance(max(0.0, waits[-1]))

    assert [round(wait) for wait in waits[:5]] == [2, 4, 8, 16, 32]
    assert desk.api.calls["upload"] == 6
    assert batch_health(desk).failures == 1
    assert desk.states() == {"wanted": TEXTS}


def test_a_wait_that_was_told_is_kept_and_is_no_failure(desk: Desk, batch: Batch) -> None:
    desk.api.errors["create"].append(ProviderLater("429", status=429, retry_after_s=90))

    after = desk.step(batch.token)

    assert after.due == desk.clock.now() + 90
    assert after.attempts == 0


def test_looks_become_rarer_up_to_a_minute(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)

    waits = []
    for _ in range(8):
        due = desk.batch(batch.token).due
        waits.append(due - desk.clock.now())
        desk.clock.advance(waits[-1])
        desk.step(batch.token)

    assert [round(wait, 1) for wait in waits] == [10, 10, 15, 22.5, 33.8, 50.6, 60, 60]


def test_a_look_that_fails_says_nothing_of_the_batch(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.errors["look"] = [ProviderLater("500"), ProviderStop("bad key", hint="fix it", status=401)]

    desk.run(batch.token, steps=1)
    assert (desk.batch(batch.token).error, desk.batch(batch.token).action) == ("500", "")
    desk.run(batch.token, steps=1)
    assert (desk.batch(batch.token).error, desk.batch(batch.token).action) == ("bad key", "fix it")
    desk.api.finish()
    desk.run(batch.token)

    assert desk.states() == {"ready": TEXTS}


def test_a_job_the_provider_does_not_know_any_more_is_lost(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.errors["look"] = [ProviderStop("no such batch", status=404) for _ in range(2)]

    after = desk.run(batch.token)

    assert (after.state, after.outcome) == ("closed", "lost")
    assert batch_health(desk).failures == 1
    assert desk.states() == {"wanted": TEXTS}
    assert desk.gather().made == 0
    assert len(desk.writer.lease(CAPS, credits=8, only_full=False, above=2**62)) == 1


def test_what_takes_too_long_is_ended_and_what_was_finished_is_kept(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    rows = desk.api.job.rows[:5]
    desk.api.job.results = [BatchResult(key=row.key, vector=vector_of(row.text)) for row in rows]
    desk.clock.advance(desk.timing.timeout_s)

    after = desk.run(batch.token, steps=4)

    assert desk.api.calls["cancel"] == 1
    assert (after.state, after.outcome, after.stored) == ("closed", "timed out", 5)
    assert batch_health(desk).failures == 1
    assert desk.states() == {"ready": 5, "wanted": TEXTS - 5}
    assert desk.gather().made == 0, "the rest goes out in requests"


def test_a_job_that_cannot_be_ended_is_given_up_after_a_while(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.errors["cancel"] = [ProviderLater("500") for _ in range(99)]
    desk.clock.advance(desk.timing.timeout_s)

    after = desk.run(batch.token, steps=40)

    assert after.outcome == "timed out"
    assert desk.states() == {"wanted": TEXTS}


@pytest.mark.parametrize("outcome", ["failed", "expired"])
def test_the_good_rows_of_a_job_that_ended_badly_are_kept(desk: Desk, batch: Batch, outcome: str) -> None:
    desk.step(batch.token)
    rows = desk.api.job.rows[:7]
    kept = [BatchResult(key=row.key, vector=vector_of(row.text)) for row in rows]
    desk.api.finish(outcome, kept, reason="the provider had no time")  # type: ignore[arg-type]

    after = desk.run(batch.token)

    assert (after.outcome, after.stored, after.error) == (outcome, 7, "the provider had no time")
    assert desk.states() == {"ready": 7, "wanted": TEXTS - 7}
    assert batch_health(desk).failures == 1


def test_rows_that_are_missing_repeated_permuted_or_foreign_harm_no_other(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    good = desk.api.answers(desk.api.job)
    odd = [BatchResult(key="ff" * 32, vector=vector_of("x")), BatchResult(key="", error=_broken())]
    desk.api.finish("done", [*reversed(good[1:]), *good[3:5], *odd])

    after = desk.run(batch.token)

    assert (after.outcome, after.stored) == ("partial", TEXTS - 1)
    assert desk.states() == {"ready": TEXTS - 1, "wanted": 1}
    assert batch_health(desk).failures == 0
    assert desk.gather().made == 0, "the missing text goes out in a request"


def test_rows_with_errors_fail_or_go_out_again_by_their_kind(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    good = desk.api.answers(desk.api.job)
    bad: list[ProviderError] = [ProviderRefused("not this one"), ProviderLater("429"), _broken()]
    failed = [BatchResult(key=row.key, error=error) for row, error in zip(good, bad, strict=False)]
    desk.api.finish("done", [*good[3:], *failed])

    after = desk.run(batch.token)

    assert (after.outcome, after.stored, after.failed) == ("partial", TEXTS - 3, 3)
    assert desk.states() == {"ready": TEXTS - 3, "failed": 1, "wanted": 2}


def test_a_job_without_one_good_row_is_a_failure(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    rows = desk.api.job.rows
    desk.api.finish("done", [BatchResult(key=row.key, error=ProviderLater("overloaded")) for row in rows])

    after = desk.run(batch.token)

    assert (after.outcome, after.error) == ("failed", "overloaded")
    assert batch_health(desk).failures == 1


def test_what_was_lost_on_the_way_to_the_index_is_read_again(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.clock.advance(10)

    after = desk.step(batch.token, drop=True)
    assert (after.state, desk.states()) == ("collecting", {"leased": TEXTS})
    desk.run(batch.token)

    assert desk.states() == {"ready": TEXTS}
    assert desk.batch(batch.token).outcome == "done"


def test_what_is_lost_every_time_goes_out_again_in_the_end(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.finish()
    for _ in range(5):
        desk.clock.advance(60)
        desk.step(batch.token, drop=True)

    assert desk.batch(batch.token).state == "closed"
    assert desk.states() == {"wanted": TEXTS}


def test_an_answer_that_breaks_off_is_read_again_and_nothing_is_stored_twice(
    desk: Desk, batch: Batch
) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.api.lost["results"].append(ProviderLater("cut"))

    desk.run(batch.token)

    assert desk.states() == {"ready": TEXTS}
    assert desk.batch(batch.token).stored == TEXTS
    assert desk.api.calls["results"] == 2


@pytest.mark.parametrize("steps", [0, 1])
def test_a_batch_that_somebody_ends_gives_its_texts_back_to_requests(
    desk: Desk, batch: Batch, steps: int
) -> None:
    desk.run(batch.token, steps=steps)

    assert batches.ask_cancel(desk.writer.connection, batch.token, reason="by hand", now=desk.clock.now())
    after = desk.run(batch.token)

    assert (after.state, after.outcome, after.error) == ("closed", "cancelled", "by hand")
    assert batch_health(desk).failures == 0
    assert desk.api.files == {}
    assert desk.gather().made == 0
    assert len(desk.writer.lease(CAPS, credits=8, only_full=False, above=2**62)) == 1


def test_files_that_the_provider_does_not_let_go_are_left_in_the_end_and_said(
    desk: Desk, batch: Batch
) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.api.errors["clean_up"] = [ProviderLater("500 at deletion") for _ in range(20)]

    after = desk.run(batch.token, steps=12)

    assert after.state == "closed"
    assert "left at the provider: 500 at deletion" in after.error
    assert desk.api.calls["clean_up"] == 8


def test_two_workers_do_not_work_on_one_batch(desk: Desk, batch: Batch) -> None:
    desk.api.during["upload"] = lambda: desk.step(batch.token)

    desk.step(batch.token)

    assert desk.api.calls["upload"] == 1
    assert desk.batch(batch.token).state == "submitted"


def test_a_worker_whose_batch_was_taken_over_records_nothing_more(desk: Desk, batch: Batch) -> None:
    connection = desk.writer.connection
    with pytest.raises(ClaimLost), claimed(connection, batch.token, ("intent",), desk.clock) as claim:
        assert claim is not None
        with transaction(connection):
            connection.execute("UPDATE batches SET owner = 'another'")
        claim.record(state="submitted")

    assert desk.batch(batch.token).state == "intent"


def test_what_a_dead_process_held_is_due_at_once(desk: Desk, batch: Batch) -> None:
    with transaction(desk.writer.connection):
        desk.writer.connection.execute(
            "UPDATE batches SET owner = ?, owner_until = ?, due = ?",
            (f"{dispatch.this_owner()}9/x", desk.clock.now() + 300, desk.clock.now() + 300),
        )
    assert handed(desk) == []

    assert free_dead(desk.writer.connection, desk.clock.now()) == 1

    assert handed(desk) == [batch.token]


def test_a_batch_is_handed_out_once_until_its_message_must_be_lost(desk: Desk, batch: Batch) -> None:
    assert handed(desk) == [batch.token]
    assert handed(desk) == []
    desk.clock.advance(31)
    assert handed(desk) == [batch.token]


def test_a_model_that_nobody_wants_any_more_gets_its_batch_ended(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.writer.retarget(MODEL_B)

    desk.writer.batches.sweep()

    assert desk.batch(batch.token).cancel_reason == "the model was changed"


def test_paying_for_everything_again_ends_the_batch_before(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)

    desk.writer.forget_vectors()
    desk.run(batch.token)

    assert desk.api.job.state == "cancelled"
    assert desk.batch(batch.token).state == "closed"
    assert desk.states() == {"wanted": TEXTS}


def _broken() -> ProviderError:
    return ProviderBrokenAnswer("a line that is no JSON")
