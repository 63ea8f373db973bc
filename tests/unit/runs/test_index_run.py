import os
import time
from contextlib import closing

import pytest

from memline.producers.runs import index_run
from memline.producers.runs.index_run import IndexRun
from memline.shared.errors import IndexFault
from memline.shared.index.hold import hold
from tests.support.embedding_server import EmbeddingServer
from tests.support.workspace import Place, remote

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n\nThe queue is Redis.\n"})


def test_a_run_reports_files_chunks_and_that_only_words_are_searched(place):
    place.write("memory/binary.md", b"\0\1\2")

    report = place.index()

    assert report.files == {"seen": 2, "added": 1, "changed": 0, "removed": 0, "unchanged": 0, "failed": 1}
    assert (report.provider, report.chunks) == ("none", 1)
    assert report.failures[0]["path"] == "memory/binary.md"
    assert report.failed


def test_a_run_that_finds_nothing_to_do_starts_no_workers(place, monkeypatch):
    place.index()
    monkeypatch.setattr(IndexRun, "work", lambda *_, **__: pytest.fail("workers were started"))

    report = place.index()

    assert (report.failed, report.files["unchanged"]) == (False, 1)


def test_an_index_that_is_deleted_while_the_workers_run_ends_the_run(place, monkeypatch):
    work = IndexRun.work

    def delete_first(run, *args, **options):
        place.index_path.unlink()
        work(run, *args, **options)

    monkeypatch.setattr(IndexRun, "work", delete_first)

    with pytest.raises(IndexFault, match="was deleted or replaced during the run"):
        place.index()


def test_a_run_whose_files_nobody_reads_ends_and_names_who_has_the_index(place, clock, monkeypatch):
    monkeypatch.setattr(index_run, "POLL_S", 20.0)

    with (
        closing(hold(place.index_path, "up", now=clock.now())),
        pytest.raises(IndexFault, match=rf"process {os.getpid()} \(memline up\) has it"),
    ):
        place.index(clock=clock)


@pytest.mark.parametrize(("cache", "kept"), [({"enabled": False}, 0), ({"maxEntries": 1}, 1), ({}, 3)])
def test_one_run_keeps_the_cache_within_its_limit(tmp_path, cache, kept):
    place = Place(folder=tmp_path / "user")
    with EmbeddingServer() as server:
        place.configure(**remote(server.url), cache=cache)
        for name in "abc":
            place.write(f"memory/{name}.md", f"# {name}\n\nA note about {name}.\n")
        place.index()
        for name in "abc":
            (place.workspace / f"memory/{name}.md").unlink()

        place.index()

    assert place.status()["cache"]["cached"] == kept


def test_a_run_says_that_it_waits_for_a_provider_which_is_not_there(place, clock):
    place.configure(**remote("http://127.0.0.1:9"))
    said = dict[str, None]()

    place.index(clock=clock, on_progress=lambda run: said.update({run.waiting.partition(",")[0]: None}))

    assert "the circuit breaker of openai is open" in said


@pytest.mark.parametrize(("started", "codes"), [(0, ["old_settings"]), (60, [])])
def test_a_run_in_which_nothing_moves_ends_and_says_when_the_process_that_sends_is_older_than_its_settings(
    tmp_path, clock, started, codes
):
    place = Place(folder=tmp_path / "user")
    with EmbeddingServer() as server:
        place.furnish(notes=1, is_indexed=True, **remote(server.url))
        place.configure(**remote(server.url, model="another"))

        with closing(hold(place.index_path, "up", now=started and time.time() + started)):
            report = place.index(clock=clock)

        assert report.failed and report.vectors["pending"]
        assert [each.code for each in report.findings if each.code == "old_settings"] == codes
        assert place.index().vectors["pending"] == 0
