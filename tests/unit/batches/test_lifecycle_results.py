"""The results of a job are stored: good rows are kept, all other texts are sent again."""

import pytest

from memline.shared.batches import batch_end, batch_lifecycle
from memline.shared.batches.job_rows import BatchResult
from memline.shared.batches.open_batches import claimed
from memline.shared.errors import ProviderBrokenAnswer, ProviderError, ProviderLater, ProviderRefused
from memline.shared.index.batches import Batch
from memline.shared.index.rows import LearnedCaps, VectorRow
from memline.shared.scheduling import embed_results
from tests.support.batch_desk import TEXTS, Desk
from tests.support.index_rows import CAPS, MODEL_A, file_row, vector, vector_of


def _broken() -> ProviderError:
    return ProviderBrokenAnswer("a line that is no JSON")


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("outcome", ["failed", "expired"])
def test_the_good_rows_of_a_job_that_ended_badly_are_kept(desk: Desk, batch: Batch, outcome: str) -> None:
    desk.step(batch.token)
    rows = desk.api.job.rows[:7]
    kept = [BatchResult(key=row.key, vector=vector_of(row.text)) for row in rows]
    desk.api.finish(outcome, kept, reason="the provider had no time")  # type: ignore[arg-type]

    after = desk.run(batch.token)

    assert (after.outcome, after.stored, after.error) == (outcome, 7, "the provider had no time")
    assert desk.states() == {"ready": 7, "wanted": TEXTS - 7}
    assert desk.batch_health.failures == 1


def test_rows_that_are_missing_repeated_permuted_or_foreign_harm_no_other(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    good = desk.api.answers(desk.api.job)
    odd = [BatchResult(key="ff" * 32, vector=vector_of("x")), BatchResult(key="", error=_broken())]
    desk.api.finish("done", [*reversed(good[1:]), *good[3:5], *odd])

    after = desk.run(batch.token)

    assert (after.outcome, after.stored) == ("partial", TEXTS - 1)
    assert desk.states() == {"ready": TEXTS - 1, "wanted": 1}
    assert desk.batch_health.failures == 0
    assert desk.plan().made == 0, "the missing text is sent in a request"


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
    assert desk.batch_health.failures == 1


def test_a_job_without_one_good_row_is_a_failure_also_after_a_crash(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    rows = desk.api.job.rows
    desk.api.finish("done", [BatchResult(key=row.key, error=ProviderLater("overloaded")) for row in rows])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_lifecycle.model_change, "switch_when_complete", _killed)
        with pytest.raises(KeyboardInterrupt):
            desk.run(batch.token, steps=1)
    assert desk.batch(batch.token).failed == TEXTS
    after = desk.run(batch.token)

    assert after.outcome == "failed"
    assert desk.batch_health.failures == 1


def test_rows_that_say_that_their_job_ended_before_their_turn_are_no_failures(
    desk: Desk, batch: Batch
) -> None:
    desk.step(batch.token)
    rows = desk.api.job.rows
    unread = [BatchResult(key=row.key, error=ProviderLater("batch_expired")) for row in rows[3:]]
    desk.api.finish("expired", [*desk.api.answers(desk.api.job)[:3], *unread])

    after = desk.run(batch.token)

    assert (after.stored, after.failed) == (3, 0)
    attempts = desk.writer.connection.execute("SELECT max(attempts), max(due) FROM vectors").fetchone()
    assert attempts == (0, 0.0)


def test_what_was_stored_before_a_crash_is_skipped_and_counted(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.finish()
    good = desk.api.answers(desk.api.job)
    pieces: list[int] = []

    def killed(*_: object) -> int:
        pieces.append(1)
        if len(pieces) == 3:
            raise KeyboardInterrupt
        return stored(*_)

    stored = embed_results.store_vectors
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_end, "STORE_ROWS", 5)
        patch.setattr(embed_results, "store_vectors", killed)
        with pytest.raises(KeyboardInterrupt):
            desk.run(batch.token, steps=1)
    assert desk.states() == {"ready": 10, "leased": TEXTS - 10}

    after = desk.run(batch.token)

    assert (after.outcome, after.stored) == ("done", len(good))
    assert desk.states() == {"ready": TEXTS}


def test_the_rows_of_a_job_confirm_the_dimensions_for_each_other(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.run(batch.token)
    desk.writer.store_file(file_row("b.md", "one more"))
    (request,) = desk.writer.lease(CAPS, credits=1, only_full=False)

    odd = VectorRow(hash=request.texts[0].hash, vector=vector(1.0, 0.0))
    desk.writer.store_vectors(MODEL_A, request.lease, [odd], LearnedCaps())

    assert desk.states() == {"ready": TEXTS, "wanted": 1}, "the vectors of the batch stay"


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


def test_results_that_we_cannot_store_are_not_bought_a_second_time_by_batch(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.api.lost["results"].append(ProviderLater("cut"))
    desk.run(batch.token, steps=1)

    for _ in range(batch_lifecycle.STEP_ATTEMPTS):
        with claimed(desk.writer.connection, batch.token, desk.clock) as claim:
            assert claim is not None
            desk.lifecycle(claim).record_failure("KeyError: 'x'")
    after = desk.run(batch.token)

    assert (after.outcome, after.error) == ("lost", "KeyError: 'x'")
    assert desk.batch_health.failures == 1
    assert desk.plan().made == 0, "the texts are sent in requests"


def test_a_job_that_seems_to_run_again_keeps_the_rows_it_made(desk: Desk, batch: Batch) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.api.lost["results"].append(ProviderLater("cut"))
    desk.run(batch.token, steps=1)
    desk.api.job.state = "running"

    during = desk.run(batch.token, steps=3)
    desk.api.job.state = "done"
    after = desk.run(batch.token)

    assert (during.state, during.outcome) == ("collecting", "")
    assert (after.outcome, after.stored, desk.states()) == ("done", TEXTS, {"ready": TEXTS})


def test_files_that_the_provider_does_not_let_go_are_left_in_the_end_and_said(
    desk: Desk, batch: Batch
) -> None:
    desk.step(batch.token)
    desk.api.finish()
    desk.api.errors["clean_up"] = [ProviderLater("500 at deletion") for _ in range(20)]

    after = desk.run(batch.token, steps=12)

    assert after.state == "closed"
    assert "left at the provider: 500 at deletion" in after.error
    assert desk.api.calls["clean_up"] == 5
