import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from memline.producers import cli
from memline.producers.cli.jobs import batch
from memline.shared.clock import SystemClock
from memline.shared.index import batches
from memline.shared.index_writer import IndexWriter
from tests.support.index_rows import add_batch
from tests.support.workspace import Place

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(place: Place, capsys: pytest.CaptureFixture[str]) -> Run:
    """`memline batch …` in this process: exit status, output, errors."""

    def run(*args: str) -> tuple[int, str, str]:
        status = cli.run(place.arguments("batch", *args))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def add(place: Place, token: str, *, texts: int = 2, **columns: Any) -> None:
    """A batch in the index of the place, with `texts` leased to it."""
    with closing(IndexWriter.of(place.agent)) as writer:
        add_batch(writer, token, texts=texts, **columns)


def test_without_an_index_there_are_no_batches(run: Run) -> None:
    assert run("ls") == (0, "No batches.\n", "")
    assert json.loads(run("ls", "--json")[1]) == []


def test_the_list_has_both_vocabularies_and_the_newest_first(place: Place, run: Run) -> None:
    now = SystemClock().now()
    add(place, "aaaa1111", job_id="batch_7", provider_state="in_progress", due=now + 45, stored=0)
    add(place, "bbbb2222", state="closed", outcome="expired", created_at=now - 7200, stored=1)

    status, text, _ = run("ls")
    found = json.loads(run("ls", "--json")[1])
    still_open = json.loads(run("ls", "--open", "--json")[1])

    assert status == 0
    for word in ("aaaa1111", "batch_7", "at the provider", "in_progress", "expired", "2 min", "2.0 h"):
        assert word in text
    assert [one["id"] for one in found] == ["aaaa1111", "bbbb2222"]
    assert (found[0]["state"], found[0]["providerState"], found[0]["outcome"]) == (
        "submitted",
        "in_progress",
        None,
    )
    assert [one["progress"] for one in found] == ["at the provider", "expired"]
    assert [one["id"] for one in still_open] == ["aaaa1111"]


def test_a_batch_is_shown_by_the_beginning_of_its_id_or_by_its_job(place: Place, run: Run) -> None:
    add(place, "aaaa1111", job_id="batch_7", file_id="file_3", error="busy", action="wait")

    text = run("show", "aa")[1]
    found = json.loads(run("show", "batch_7", "--json")[1])

    for word in ("aaaa1111", "batch_7", "file_3", "openai a", "2: 0 stored, 2 to come", "busy"):
        assert word in text
    assert (found["fileId"], found["textsLeft"], found["error"]) == ("file_3", 2, "busy")


@pytest.mark.parametrize(("name", "words"), [("aaaa1112", "mean aaaa1111"), ("zzz", "no batch 'zzz'")])
def test_an_unknown_batch_is_told_with_the_nearest_and_the_list(
    place: Place, run: Run, name: str, words: str
) -> None:
    add(place, "aaaa1111")

    status, _, error = run("show", name)

    assert status == 1
    assert words in error
    assert f"Try: {place.typed('batch ls')}" in error


def test_a_beginning_of_two_batches_names_them(place: Place, run: Run) -> None:
    add(place, "aaaa1111")
    add(place, "aaaa2222")

    status, _, error = run("cancel", "aaaa")

    assert status == 1
    assert "aaaa1111" in error
    assert "aaaa2222" in error


def test_cancelling_is_put_on_record_and_says_what_becomes_of_the_texts(place: Place, run: Run) -> None:
    add(place, "aaaa1111", stored=1)

    status, text, _ = run("cancel", "aaaa1111")
    again = json.loads(run("cancel", "aaaa1111", "--json")[1])

    with closing(IndexWriter.of(place.agent)) as writer:
        (found,) = batches.open_batches(writer.connection)
    assert status == 0
    assert "1 vector is kept" in text
    assert "are sent in requests" in text
    assert "memline index" in text
    assert found.cancel_requested_at
    assert "at the provider, to be cancelled" in run("ls")[1]
    assert found.cancel_reason == "cancelled by the operator"
    assert again == {"agentId": "main", "id": "aaaa1111", "cancelAsked": True}


def test_what_is_over_cannot_be_cancelled(place: Place, run: Run) -> None:
    add(place, "aaaa1111", state="closed", outcome="done")

    status, text, _ = run("cancel", "aaaa1111")

    assert (status, text) == (1, "aaaa1111 is not cancelled: it has ended (done).\n")


def test_there_is_a_command_for_each_of_them() -> None:
    assert set(batch.commands) == {"ls", "show", "cancel", "collect"}


@pytest.mark.parametrize("args", [("ls",), ("show", "aaaa1111")])
def test_words_of_a_provider_command_no_terminal(place: Place, run: Run, args: tuple[str, ...]) -> None:
    add(place, "aaaa1111", job_id="batch\x1b[95m_7", provider_state="[bold]in\x9b31m")

    text = run(*args)[1]

    assert "batch\\x1b[95m_7" in text
    assert "[bold]in\\x9b31m" in text


def test_a_batch_is_asked_about_before_its_time(place: Place, run: Run) -> None:
    add(place, "aaaa", due=9e12, attempts=3)
    add(place, "bbbb", due=9e12, call_started_at=5.0)
    add(place, "cccc", state="closed", outcome="done", due=9e12)

    done = [json.loads(run("collect", name, "--json")[1])["due"] for name in ("aaaa", "bbbb", "cccc")]

    assert done == [True, False, False]
    assert run("collect", "aaaa")[0] == 0 and run("collect", "cccc")[0] == 1
    with closing(IndexWriter.of(place.agent)) as writer:
        due = {batch.token: batch.due for batch in batches.latest(writer.connection, 9)}
    assert due["aaaa"] < 9e11 and due["bbbb"] == due["cccc"] == 9e12
