from pathlib import Path

import pytest

from memline.producers.watching import loop_errors
from memline.producers.watching.loop_errors import FILES, REMIND_S, LoopErrors
from memline.shared.clock import ManualClock
from memline.shared.errors import IndexCorrupt, IndexUnwritable, QueueError
from tests.support.workspace import Place

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n"})


def fail(errors: LoopErrors, place: Place, error: Exception, part: str = FILES) -> None:
    with errors.guard(place.agent, part):
        raise error


def shown(place: Place) -> dict[str, str]:
    """What `memline status` shows: part -> error."""
    found = (each for each in place.report()["findings"] if each["code"] == "following_fails")
    return {each["subject"]: each["what"].rpartition(f"{each['subject']}: ")[2] for each in found}


def test_an_error_is_shown_by_status_until_the_part_works_again(place: Place) -> None:
    place.index()
    errors = LoopErrors()

    fail(errors, place, QueueError("it broke", hint="memline doctor"))
    assert shown(place) == {"files": "it broke"}

    errors.clear(place.agent, FILES)
    assert shown(place) == {}


def test_the_first_success_of_a_new_process_clears_what_an_earlier_one_recorded(place: Place) -> None:
    place.index()
    fail(LoopErrors(), place, QueueError("it broke"))

    LoopErrors().clear(place.agent, FILES)

    assert shown(place) == {}


def test_a_fault_of_the_code_is_named_by_its_place_and_never_by_the_text_it_failed_on(place: Place) -> None:
    place.index()

    fail(LoopErrors(), place, ValueError("invalid literal: 'my secret'"))

    assert shown(place)["files"].startswith("ValueError in test_loop_errors.py, line ")


def test_the_same_error_is_logged_once_in_a_while(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    errors = LoopErrors(clock=clock)

    for _ in range(20):
        fail(errors, place, QueueError("it broke"))
        clock.advance(REMIND_S / 10)

    assert [record.message for record in caplog.records].count("loop.failed") == 2


def test_without_an_index_an_error_is_only_logged(place: Place) -> None:
    fail(LoopErrors(), place, QueueError("it broke"))

    assert not place.index_path.exists()


def test_an_error_from_before_there_was_an_index_is_shown_when_it_is_logged_again(place: Place) -> None:
    clock = ManualClock()
    errors = LoopErrors(clock=clock)
    fail(errors, place, QueueError("it broke"))
    place.index()

    clock.advance(REMIND_S)
    fail(errors, place, QueueError("it broke"))

    assert shown(place) == {"files": "it broke"}


def test_an_error_that_could_not_be_cleared_is_cleared_at_the_next_success(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.index()
    errors = LoopErrors()
    fail(errors, place, QueueError("it broke"))

    def refuse(path: Path) -> None:
        raise IndexUnwritable(f"{path} is locked")

    with monkeypatch.context() as patch:
        patch.setattr(loop_errors, "open_writer", refuse)
        errors.clear(place.agent, FILES)
    errors.clear(place.agent, FILES)

    assert shown(place) == {}


def test_a_damaged_index_is_kept_for_the_process_that_builds_it_again(place: Place) -> None:
    errors = LoopErrors()
    damaged = IndexCorrupt("the index is damaged")

    fail(errors, place, damaged)

    assert errors.corrupt is damaged
