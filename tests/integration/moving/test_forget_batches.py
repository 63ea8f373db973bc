"""A text that was forgotten is in no file at the provider, or the command says that it is and ends with 1."""

import pytest

from memline.producers.actions import forget_batches
from tests.support.embedding_server import EmbeddingServer
from tests.support.workspace import Place, note, remote, until

BATCH = {"enabled": True, "minTexts": 2, "pollIntervalMs": 50, "wait": False}


@pytest.fixture
def submitted(place: Place, server: EmbeddingServer) -> Place:
    """A place whose texts are in a batch that its provider goes on with; no process of ours runs."""
    place.configure(**remote(server.url, batch=BATCH))
    place.write("memory/doors.md", note(1))
    place.write("memory/other.md", note(2))
    server.control({"batch": {"looks": 1_000}})
    place.index()
    assert files_at(server) == 1
    return place


def files_at(server: EmbeddingServer) -> int:
    return int(server.log()["batch"]["files"])


def test_without_a_running_process_the_file_is_gone_before_it_says_forgotten(
    submitted: Place, server: EmbeddingServer
) -> None:
    done = submitted.call("forget", "memory/doors.md", "--yes")

    assert (done.status, done.stdout.startswith("Forgotten: ")) == (0, True), done.stderr
    assert files_at(server) == 0


@pytest.mark.parametrize("calls", [["delete"], ["cancel", "delete", "look"]])
def test_a_provider_that_does_not_let_it_go_is_named_with_the_command_that_ends_it(
    submitted: Place, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch, calls: list[str]
) -> None:
    monkeypatch.setattr(forget_batches, "WAIT_S", 1.0)
    server.control({"batch": {"faults": {call: ["503"] * 1_000 for call in calls}}})

    refused = submitted.call("forget", "memory/doors.md", "--yes")

    ((token, file),) = submitted.rows("SELECT token, file_id FROM batches")
    assert refused.status == 1
    assert "Forgotten:" not in refused.stdout
    assert f"the file {file} of batch {token[:8]}, which may hold it, is still at openai" in refused.stderr
    assert refused.stderr.splitlines()[-1].startswith("Try: memline ")
    assert refused.stderr.splitlines()[-1].endswith(" index")
    assert files_at(server) == 1
    server.control({"batch": {"faults": {}}})
    submitted.index()
    assert files_at(server) == 0


def test_files_that_an_earlier_batch_has_left_behind_are_removed(
    place: Place, server: EmbeddingServer
) -> None:
    place.configure(**remote(server.url, batch=BATCH | {"wait": True}))
    place.write("memory/doors.md", note(1))
    server.control({"batch": {"faults": {"delete": ["503"] * 1_000}}})
    place.index()
    place.execute(
        "UPDATE batches SET state = 'closed', error = 'files of this batch were left at the provider: 503'"
    )
    assert files_at(server) > 0
    server.control({"batch": {"faults": {}}})

    done = place.call("forget", "memory/doors.md", "--yes")

    assert done.status == 0, done.stderr
    assert files_at(server) == 0


def test_a_query_names_the_batches_that_may_hold_what_is_in_no_note_any_more(
    submitted: Place, server: EmbeddingServer
) -> None:
    submitted.write("memory/doors.md", "# Doors\n")
    submitted.index()

    refused = submitted.call("forget", "--query", "word1x1x7", "--yes")

    ((token, file),) = submitted.rows("SELECT token, file_id FROM batches")
    assert (refused.status, files_at(server)) == (1, 1)
    assert "hashes is left" not in refused.stderr
    assert f"Batch {token[:8]}: the file {file} at openai has texts" in refused.stderr
    assert f" batch cancel {token[:8]}, then: memline " in refused.stderr
    found = submitted.call("forget", "--query", "word2x1x7", "--yes")
    assert (found.status, files_at(server)) == (0, 0), found.stderr
    again = submitted.call("forget", "--query", "word1x1x7", "--yes")
    assert again.status == 1
    assert "in no note any more the index has hashes alone" in again.stderr
    assert "batch cancel" not in again.stderr


def test_the_command_that_a_query_names_ends_the_batch(submitted: Place, server: EmbeddingServer) -> None:
    submitted.write("memory/doors.md", "# Doors\n")
    submitted.index()
    refused = submitted.call("forget", "--query", "word1x1x7", "--yes")
    token = refused.stderr.partition("batch cancel ")[2][:8]

    assert submitted.call("batch", "cancel", token).status == 0

    server.control({"batch": {"looks": 0}})
    for job in server.batches.jobs.jobs.values():
        job.looks_left = 0
    until(lambda: submitted.index() and submitted.rows(ENDED, f"{token}%") == [("cancelled",)], "its end")
    assert "batch cancel" not in submitted.call("forget", "--query", "word1x1x7", "--yes").stderr


#: What became of a batch that is over.
ENDED = "SELECT outcome FROM batches WHERE token LIKE ? AND state = 'closed'"
