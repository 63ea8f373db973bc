"""Two processes on one index at once: both end right, and no text is paid for twice."""

import pytest

from tests.support.process import end, running_memline, wait
from tests.support.undisturbed import assert_as_undisturbed
from tests.support.workspace import note, paths, remote, until

NOTES = 24


@pytest.fixture
def place(place, server, monkeypatch):
    """Notes of many requests, and a provider that takes its time."""
    monkeypatch.setattr("memline.producers.store_changes.CATCH_UP_BUSY_MS", 60_000)
    server.control({"latency_ms": 30})
    syncing = {"watchDebounceMs": 20, "onSearch": False}
    place.furnish(notes=NOTES, **remote(server.url, maxRows=4), sync=syncing)
    return place


@pytest.mark.parametrize("command", ["up", "index"])
def test_a_note_saved_during_the_first_import_gets_its_vector_first(place, server, command):
    # Half a minute for all texts.
    server.control({"latency_ms": 1_500})
    place.configure(**remote(server.url, maxRows=1))

    with running_memline(*place.arguments(command)) as running:
        until(lambda: len(server.requests) > 1, "the first requests")
        until(lambda: place.rows("SELECT count(*) FROM chunks") == [(3 * NOTES,)], "the notes")
        place.write("memory/saved.md", "# Saved\n\nxyzzy\n")
        if command == "index":
            # It follows no files: the search brings the note in.
            place.configure(sync={"onSearch": True})
            place.search("xyzzy")
        until(lambda: any("xyzzy" in text for text in received(server)), "the saved note")
        behind = place.vector_states()["wanted"]
        server.control({"latency_ms": 0})
        if command == "up":
            end(running)
        else:
            wait(running)

    assert behind > NOTES


def received(server):
    """All texts that the provider was sent, in their order."""
    return [text for request in list(server.requests) for text in request.body["input"]]


def test_two_first_runs_at_once_make_one_index_and_pay_once(place, server, tmp_path):
    with (
        running_memline(*place.arguments("index")) as one,
        running_memline(*place.arguments("index")) as other,
    ):
        said = wait(one) + wait(other)

    assert (one.returncode, other.returncode) == (0, 0), said
    assert not server.repeated()
    assert_as_undisturbed(place, tmp_path)


def test_searches_beside_a_run_always_answer(place, server):
    place.index()
    for number in range(NOTES, 2 * NOTES):
        place.write(f"memory/note-{number}.md", note(number))

    with running_memline(*place.arguments("index", "--force")) as process:
        answers = []
        while process.poll() is None:
            answers.append(place.search("word3x1x7"))

    assert process.returncode == 0
    assert answers
    assert {paths(answer)[0] for answer in answers} == {"memory/note-3.md"}
    assert {answer.mode for answer in answers} == {"hybrid"}


def test_a_search_that_brings_a_file_in_and_a_run_do_not_disturb_each_other(place, server, tmp_path):
    place.configure(sync={"watchDebounceMs": 20, "onSearch": True})

    with running_memline(*place.arguments("index")) as process:
        until(place.index_path.exists, "the index")
        place.write("memory/saved.md", "# Saved\n\nxyzzy\n")
        assert paths(place.search("xyzzy", min_score=1)) == ["memory/saved.md"]
        wait(process)
    report = place.index()

    assert process.returncode == 0
    assert not report.failed
    assert_as_undisturbed(place, tmp_path)


def test_a_run_whose_index_is_deleted_ends_with_words_and_status_1(place, server):
    with running_memline(*place.arguments("index")) as process:
        until(lambda: len(server.requests) > 1, "the first requests")
        place.index_path.unlink()
        stderr = wait(process)

    assert process.returncode == 1
    assert "was deleted or replaced during the run" in stderr
    assert stderr.splitlines()[-1].startswith("Try: ")
    assert "Traceback" not in stderr
