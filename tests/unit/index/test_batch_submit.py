"""Bringing a batch to its provider: each step on record before the next, whatever is cut off."""

from __future__ import annotations

import pytest

from shared.clock import ManualClock
from shared.errors import (
    ProviderError,
    ProviderLater,
    ProviderStop,
    ProviderTooBig,
)
from shared.index import health
from shared.index.batches import Batch
from shared.index.writer import IndexWriter
from tests.support.batch_desk import Desk
from tests.support.index_rows import CAPS, MODEL_A, MODEL_B, answer, file_row

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

    assert [round(wait) for wait in waits[:4]] == [2, 4, 8, 16]
    assert desk.api.calls["upload"] == 5
    assert batch_health(desk).failures == 1
    assert desk.states() == {"wanted": TEXTS}


def test_a_wait_that_was_told_is_kept_and_is_no_failure(desk: Desk, batch: Batch) -> None:
    desk.api.errors["create"].append(ProviderLater("429", status=429, retry_after_s=90))

    after = desk.step(batch.token)

    assert after.due == desk.clock.now() + 90
    assert after.attempts == 0


def test_a_batch_goes_on_when_its_model_comes_back_before_the_provider_was_told(
    desk: Desk, batch: Batch
) -> None:
    desk.step(batch.token)
    desk.writer.retarget(MODEL_B)
    answer(desk.writer, desk.writer.lease(CAPS, credits=1, only_full=False))
    desk.writer.batches.sweep(MODEL_B)

    desk.writer.retarget(MODEL_A)
    desk.writer.batches.sweep(MODEL_A)
    desk.api.finish()
    desk.run(batch.token)

    assert desk.api.calls["cancel"] == 0
    assert desk.batch(batch.token).outcome == "done"
    assert desk.states() == {"ready": TEXTS}
