"""A batch is brought to its provider: each step is on record before the next, whatever is cut off."""

import pytest
from msgspec.structs import replace

from memline.shared.batches.open_batches import claimed
from memline.shared.errors import ProviderError, ProviderLater, ProviderStop
from memline.shared.index.batches import SWITCHED_OFF, Batch
from memline.shared.scheduling import health
from tests.support.batch_desk import TEXTS, Desk


def lost(message: str = "no answer") -> ProviderError:
    """An error of a call that may have had its effect."""
    error = ProviderLater(message)
    error.maybe_done = True
    return error


def test_a_batch_is_uploaded_created_looked_at_stored_and_cleaned_up(desk: Desk, batch: Batch) -> None:
    submitted = desk.step(batch.token)
    desk.clock.advance(10)
    running = desk.step(batch.token)
    desk.api.finish()
    desk.clock.advance(15)
    closed = desk.step(batch.token)

    assert (submitted.state, submitted.job_id, submitted.file_id) == ("submitted", "job-1", "file-1")
    assert (running.state, running.provider_state) == ("submitted", "is running")
    assert (closed.state, closed.outcome, closed.stored, closed.error) == ("closed", "done", TEXTS, "")
    assert desk.states() == {"ready": TEXTS}
    assert desk.api.files == {}
    assert "find" not in desk.api.calls, "without trouble no list is read"


def test_a_create_whose_answer_was_lost_is_found_by_its_tag_and_not_made_again(
    desk: Desk, batch: Batch
) -> None:
    desk.api.lost["create"].append(lost())

    desk.step(batch.token)
    assert desk.batch(batch.token).state == "uploaded"
    after = desk.run(batch.token, steps=3)

    assert after.state == "submitted"
    assert desk.api.calls["create"] == desk.api.calls["find"] == 1
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


def test_a_bad_key_pauses_the_provider_and_keeps_the_texts_for_a_batch(desk: Desk, batch: Batch) -> None:
    desk.api.errors["upload"].append(ProviderStop("bad key", hint="fix it", status=401))

    desk.run(batch.token, steps=2)

    state = health.read(desk.writer.accounts, "openai")
    assert (state.paused, state.reason, state.action) == (True, "bad key", "fix it")
    assert desk.batch_health.state == "closed"
    assert desk.states() == {"wanted": TEXTS}


@pytest.mark.parametrize(("call", "status"), [("upload", 403), ("upload", 404), ("create", 404)])
def test_where_there_is_no_batch_api_the_breaker_opens_at_once(
    desk: Desk, batch: Batch, call: str, status: int
) -> None:
    desk.api.errors[call].append(ProviderStop("no such thing", hint="switch it off", status=status))

    desk.run(batch.token, steps=3)

    assert desk.batch_health.state == "open"
    assert desk.batch_health.action == "switch it off"
    assert not health.read(desk.writer.accounts, "openai").paused
    assert desk.plan().held == (), "the texts go out in requests"
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
    assert desk.batch_health.failures == 1
    assert desk.states() == {"wanted": TEXTS}


def test_a_wait_that_was_told_is_kept_and_is_no_failure(desk: Desk, batch: Batch) -> None:
    desk.api.errors["create"].append(ProviderLater("429", status=429, retry_after_s=90))

    after = desk.step(batch.token)

    assert after.due == desk.clock.now() + 90
    assert after.attempts == 0


def test_a_search_that_fails_leaves_the_doubt_about_the_create(desk: Desk, batch: Batch) -> None:
    desk.api.lost["create"].append(lost())
    desk.api.errors["find"] = [ProviderLater("503"), ProviderStop("no", status=403), ProviderLater("503")]

    after = desk.run(batch.token, steps=6)

    assert after.state == "submitted"
    assert desk.api.calls["create"] == 1
    assert len(desk.api.jobs) == 1


def test_a_lost_create_and_a_list_that_is_down_for_an_hour_make_no_second_paid_job(
    desk: Desk, batch: Batch
) -> None:
    desk.api.lost["create"].append(lost())
    desk.api.errors["find"] = [ProviderLater("503") for _ in range(40)]

    during = desk.run(batch.token, steps=30)
    desk.api.finish()
    after = desk.run(batch.token, steps=30)

    assert (during.state, desk.states()) == ("uploaded", {"ready": TEXTS})
    assert (after.state, after.outcome) == ("closed", "done")
    assert len(desk.api.jobs) == desk.api.calls["create"] == 1


def test_a_batch_that_waited_long_before_its_create_still_asks_for_a_lost_job(
    desk: Desk, batch: Batch
) -> None:
    desk.clock.advance(desk.timeout_s + 1)
    desk.api.lost["create"].append(lost())

    after = desk.run(batch.token, steps=3)

    assert after.state == "submitted"
    assert len(desk.api.jobs) == 1


def test_a_create_that_never_works_is_looked_for_before_it_is_given_up(desk: Desk, batch: Batch) -> None:
    desk.api.errors["create"] = [lost("500") for _ in range(99)]

    after = desk.run(batch.token, steps=20)

    assert (after.state, after.outcome, after.error) == ("closed", "failed", "500")
    assert desk.api.calls["create"] == desk.api.calls["find"] == 5
    assert desk.batch_health.failures == 1
    assert desk.states() == {"wanted": TEXTS}


def test_a_batch_that_has_not_begun_ends_when_batches_are_switched_off(desk: Desk, batch: Batch) -> None:
    desk.settings = replace(desk.settings, enabled=False)

    after = desk.run(batch.token)

    assert (after.state, after.outcome, after.error) == ("closed", "cancelled", SWITCHED_OFF)
    assert desk.api.calls["upload"] == 0
    assert desk.states() == {"wanted": TEXTS}


def test_an_error_of_our_own_ends_a_batch_after_some_times(desk: Desk, batch: Batch) -> None:
    for _ in range(5):
        with claimed(desk.writer.connection, batch.token, desk.clock) as claim:
            assert claim is not None
            desk.lifecycle(claim).record_failure("KeyError: 'x'")

    after = desk.run(batch.token)

    assert (after.state, after.outcome, after.error) == ("closed", "failed", "KeyError: 'x'")
    assert desk.states() == {"wanted": TEXTS}
