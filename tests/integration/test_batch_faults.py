"""Batches that fail, at every call of their life: what is kept, what goes out again, what the user sees."""

import signal
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from memline.producers.backends import IndexReport
from memline.shared.batches import batch_lifecycle, planning
from memline.shared.embedders import provider_client
from memline.shared.index import vectors
from memline.shared.index.batches import latest
from memline.shared.index.driver import reading
from tests.support.embedding_server import EmbeddingServer
from tests.support.workspace import Place, note

#: Texts in all: eight notes of three.
TEXTS = 24

pytestmark = pytest.mark.place(
    server={"batch": {"enabled": True, "minTexts": 10, "pollIntervalMs": 50}}, notes=TEXTS // 3
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is put off or waited for takes hundredths of a second."""
    monkeypatch.setattr(planning, "LINGER_S", 0.1)
    monkeypatch.setattr(vectors, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(provider_client, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(provider_client, "JITTER_S", 0.01)
    monkeypatch.setattr(batch_lifecycle, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(batch_lifecycle, "LONGEST_WAIT_S", 0.05)
    monkeypatch.setattr(batch_lifecycle, "LISTED_AFTER_S", 0.05)


def told(report: IndexReport) -> str:
    """What the report of a run says, notes as well."""
    return "; ".join(each.what for each in report.findings)


def jobs(server: EmbeddingServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.log()["batch"]["jobs"]
    return found


def batches(place: Place) -> list[tuple[str, str]]:
    """(state, outcome) of all batches, the oldest first."""
    with reading(place.index_path) as reader:
        return [(batch.state, batch.outcome) for batch in reversed(latest(reader, 10))]


def accounts(place: Place, table: str) -> list[sqlite3.Row]:
    """The rows of a table that all agents of the home share."""
    with closing(sqlite3.connect(place.home / "accounts.sqlite")) as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute(f"SELECT * FROM {table}").fetchall()


def is_complete(report: IndexReport, place: Place) -> bool:
    return not report.failed and place.vector_states() == {"ready": TEXTS}


@pytest.mark.parametrize(
    ("call", "faults"),
    [
        ("upload", ["500", "429:0", "reset"]),
        ("create", ["500", "429:0", "reset-after"]),
        ("create", ["reset", "html"]),
        ("create", ["500-after"]),
        ("look", ["500", "429:0", "html", "reset"]),
        ("look", ["404"]),
        ("look", ["404", "404", "500", "404"]),
        ("output", ["500", "429:0", "html", "reset"]),
        ("output", ["half", "half"]),
        ("delete", ["500", "429:0", "html", "reset"]),
    ],
)
def test_a_call_that_fails_some_times_costs_nothing_but_time(
    place: Place, server: EmbeddingServer, call: str, faults: list[str]
) -> None:
    server.control({"batch": {"faults": {call: faults}}})

    report = place.index()
    # Files that did not go are left to the next run.
    place.index()

    assert is_complete(report, place)
    assert len(jobs(server)) == 1
    assert server.repeated() == {}
    assert server.requests == []
    assert batches(place) == [("closed", "done")]
    assert server.log()["batch"]["files"] == 0


@pytest.mark.parametrize(("call", "fault"), [("upload", "500"), ("create", "500"), ("output", "404")])
def test_a_call_that_never_works_ends_in_requests_and_is_said(
    place: Place, server: EmbeddingServer, call: str, fault: str
) -> None:
    server.control({"batch": {"faults": {call: fault}}})

    report = place.index()

    assert is_complete(report, place)
    assert "were sent in requests: openai batch" in told(report)
    assert place.index().warning == "", "what is over is said once"
    assert len(server.requests) == 1
    assert {outcome for _, outcome in batches(place)} == {"lost" if call == "output" else "failed"}
    assert server.log()["batch"]["files"] == 0


def test_the_rows_of_a_job_are_asked_for_until_they_come(place: Place, server: EmbeddingServer) -> None:
    # Each is asked for three times within a call; a step is given up after six where nothing is paid for.
    server.control({"batch": {"faults": {"output": ["500"] * 30}}})
    told: list[str] = []

    report = place.index(on_progress=lambda progress: told.append(progress.waiting))

    assert is_complete(report, place)
    assert any("is tried again: openai batch file content failed: 500" in words for words in told)
    assert len(jobs(server)) == 1
    assert server.repeated() == {}
    assert server.requests == []


def test_a_lost_create_and_a_list_that_is_down_make_one_job(place: Place, server: EmbeddingServer) -> None:
    server.control({"batch": {"faults": {"create": ["reset-after"], "list": ["500"] * 20}}})

    report = place.index()

    assert is_complete(report, place)
    assert len(jobs(server)) == 1
    assert server.repeated() == {}
    assert server.requests == []


def test_the_texts_of_a_failed_job_that_a_second_one_brings_are_said_to_have_come_by_batch(
    place: Place, server: EmbeddingServer
) -> None:
    server.control({"batch": {"end": ["failed", "completed"]}})

    report = place.index()

    assert is_complete(report, place)
    assert len(jobs(server)) == 2
    assert "were sent in another batch" in told(report)


@pytest.mark.parametrize("end", ["failed", "expired", "cancelled"])
@pytest.mark.parametrize("done", [0, 9])
def test_what_a_job_finished_before_it_ended_is_kept_and_the_rest_goes_out_again(
    place: Place, server: EmbeddingServer, end: str, done: int
) -> None:
    server.control({"batch": {"end": end, "done": done}})

    report = place.index()

    assert is_complete(report, place)
    assert sum(server.texts.values()) == TEXTS, "no text was paid for twice"
    assert batches(place)[0] == ("closed", end)
    assert len(jobs(server)) == (2 if end == "failed" else 1)
    assert server.log()["batch"]["files"] == 0


@pytest.mark.parametrize(
    ("rows", "again"),
    [
        ("permuted,duplicate,foreign,not-json,no-object,nul,blank,huge:1", 0),
        ("missing:word1x,nan:word2x,zero:word3x,empty:word4x", 12),
        ("wrong-dims:word1x,no-key:word2x,429:word3x,500:word4x", 12),
        # The first row of the file, so that it is the first of its identity.
        ("wrong-dims:word0x0x", 1),
        ("half", 1),
    ],
)
def test_odd_rows_harm_no_other_and_their_texts_go_out_in_a_request(
    place: Place, server: EmbeddingServer, rows: str, again: int
) -> None:
    server.control({"batch": {"rows": rows}})

    report = place.index()

    assert is_complete(report, place)
    assert len(jobs(server)) == 1
    assert sum(request.rows for request in server.requests) == again


def test_a_row_that_is_refused_fails_with_its_reason_and_all_others_are_stored(
    place: Place, server: EmbeddingServer
) -> None:
    server.control({"batch": {"rows": "refused:word1x1x7"}})

    report = place.index()

    assert report.vectors == {"embedded": TEXTS - 1, "cached": 0, "pending": 0, "failed": 1}
    (failure,) = report.failures
    assert failure["path"] == "memory/note-1.md"
    assert server.requests == []


def test_a_provider_without_a_batch_api_is_asked_once_and_gets_requests(
    place: Place, server: EmbeddingServer
) -> None:
    server.control({"batch": {"enabled": False}})

    report = place.index()

    assert is_complete(report, place)
    assert sum(server.texts.values()) == TEXTS
    assert batches(place) == [("closed", "failed")]
    with reading(place.index_path) as reader:
        (batch,) = latest(reader, 1)
    assert "remote.batch.enabled" in batch.action


def test_a_batch_endpoint_that_breaks_and_is_mended(place: Place, server: EmbeddingServer) -> None:
    server.control({"batch": {"end": "failed"}})

    broken = place.index()
    server.control({"batch": {"end": "completed"}})
    for number in range(8):
        place.write(f"memory/more-{number}.md", note(100 + number))
    meanwhile = place.index()

    assert not broken.failed
    assert len(jobs(server)) == 2, "after two failures batches stop"
    assert not meanwhile.failed
    assert place.vector_states() == {"ready": 2 * TEXTS}
    assert server.repeated() == {}


@pytest.mark.parametrize(
    ("fault", "action"), [("401", "check the openai key"), ("404", "set back the key that made the job")]
)
def test_a_key_that_is_revoked_or_another_while_a_job_runs_is_said_and_the_job_is_collected_later(
    place: Place, server: EmbeddingServer, fault: str, action: str
) -> None:
    server.control({"batch": {"looks": 3, "faults": {"look": fault}}})

    revoked = place.index()
    server.control({"batch": {"faults": {}}})
    again = place.index()

    assert revoked.failed
    assert "cannot be collected" in revoked.warning
    assert revoked.action.startswith(action)
    assert server.requests == []
    assert is_complete(again, place)
    assert len(jobs(server)) == 1
    assert server.repeated() == {}


#: Kills a process as it gives back what a batch did not cost.
KILLED = """
import os, signal
from memline.shared.scheduling.budget import Budget
Budget.settle = lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_batch_did_not_cost_is_given_back_by_the_next_process_when_the_first_one_is_killed(
    place: Place, server: EmbeddingServer
) -> None:
    server.control({"batch": {"end": "expired", "done": 0}})

    killed = place.run("index", before=KILLED)
    with reading(place.index_path) as reader:
        (batch,) = latest(reader, 1)
    report = place.index()
    place.index()

    assert (killed.status, batch.state, batch.outcome) == (-signal.SIGKILL, "cleaning", "expired")
    assert is_complete(report, place)
    counts = {row["mode"]: (row["requests"], row["tokens"]) for row in accounts(place, "spending")}
    assert counts["batch"] == (0, 0)
    assert counts["requests"][1] > 0
    assert accounts(place, "reservations") == []
