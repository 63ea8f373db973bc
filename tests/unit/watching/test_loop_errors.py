import pytest

from memline.producers.watching.loop_errors import FILES, LoopErrors
from memline.shared.errors import IndexCorrupt, QueueError

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n"})

BROKEN = QueueError("it broke", hint="memline doctor")


def fail(errors, place, error=BROKEN):
    with errors.guard(place.agent, FILES):
        raise error


def shown(place):
    """What `memline status` shows: part -> error."""
    found = (each for each in place.report()["findings"] if each["code"] == "following_fails")
    return {each["subject"]: each["what"].rpartition(f"{each['subject']}: ")[2] for each in found}


def test_an_error_is_shown_until_the_part_works_again_also_in_another_process(place):
    place.index()

    fail(LoopErrors(), place)
    assert shown(place) == {"files": "it broke"}

    LoopErrors().clear(place.agent, FILES)
    assert shown(place) == {}


def test_a_fault_of_the_code_is_named_by_its_place_and_never_by_the_text_it_failed_on(place):
    place.index()

    fail(LoopErrors(), place, ValueError("invalid literal: 'my secret'"))

    assert shown(place)["files"].startswith("ValueError in test_loop_errors.py, line ")


def test_an_error_is_logged_once_and_shown_once_there_is_an_index(place, caplog):
    errors = LoopErrors()
    for _ in range(5):
        fail(errors, place)
    assert not place.index_path.exists()
    place.index()

    fail(errors, place)

    assert [record.message for record in caplog.records].count("loop.failed") == 1
    assert shown(place) == {"files": "it broke"}


def test_a_damaged_index_is_kept_for_the_process_that_builds_it_again(place):
    errors, damaged = LoopErrors(), IndexCorrupt("the index is damaged")

    fail(errors, place, damaged)

    assert errors.corrupt is damaged
