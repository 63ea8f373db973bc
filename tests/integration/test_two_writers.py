"""Two processes on one index at once: both end right, and no text is paid for twice."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from producers import local_follow
from producers.follow import Follow
from shared.errors import IndexFault
from tests.support.embedding_server import EmbeddingServer
from tests.support.process import end, running_memline, wait
from tests.support.undisturbed import assert_as_undisturbed
from tests.support.workspace import Place, note, paths, remote, until

NOTES = 24


@pytest.fixture
def place(place: Place, server: EmbeddingServer) -> Place:
    """Notes of many requests, and a provider that takes its time."""
    server.control({"latency_ms": 30})
    place.configure(**remote(server.url, maxRows=4), sync={"watchDebounceMs": 20, "onSearch": False})
    for number in range(NOTES):
        place.write(f"memory/note-{number}.md", note(number))
    return place


def test_index_beside_a_running_up_waits_for_both_and_pays_once(
    place: Place, server: EmbeddingServer, tmp_path: Path
) -> None:
    with running_memline(*place.arguments("up")) as up:
        until(lambda: len(server.requests) > 1, "the first requests")
        first = place.run("index", "--json")
        place.write("memory/note-0.md", note(100))
        place.write("memory/late.md", note(101))
        second = place.run("index", "--json")
        stderr = end(up)

    assert first.status == 0, first.stderr
    assert first.json[0]["vectors"]["pending"] == 0
    assert second.status == 0, second.stderr
    assert second.json[0]["chunks"] == 3 * (NOTES + 1)
    assert up.returncode == 0
    assert "Traceback" not in stderr
    assert not server.repeated()
    assert_as_undisturbed(place, tmp_path)


def test_two_first_runs_at_once_make_one_index_and_pay_once(
    place: Place, server: EmbeddingServer, tmp_path: Path
) -> None:
    with (
        running_memline(*place.arguments("index")) as one,
        running_memline(*place.arguments("index")) as other,
    ):
        said = wait(one) + wait(other)

    assert (one.returncode, other.returncode) == (0, 0), said
    assert not server.repeated()
    assert_as_undisturbed(place, tmp_path)


def test_searches_beside_a_run_always_answer(place: Place, server: EmbeddingServer) -> None:
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


def test_a_search_that_brings_a_file_in_and_a_run_do_not_disturb_each_other(
    place: Place, server: EmbeddingServer, tmp_path: Path
) -> None:
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


def test_an_index_that_cannot_be_read_for_a_moment_does_not_end_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    ticks: list[Follow] = []

    def tick(follow: Follow) -> None:
        ticks.append(follow)
        if len(ticks) == 3:
            stop.set()
        elif len(ticks) == 2:
            raise IndexFault("the index is locked")

    monkeypatch.setattr(Follow, "tick", tick)
    local_follow.run(place.settings, [place.agent], stop=stop, on_note=lambda _: None)

    assert len(ticks) == 3
