"""Changes on a real disk are reported within seconds; when files cannot be watched they are polled."""

import errno
import os
import threading
from pathlib import Path

import pytest
from watchdog.observers import Observer

from memline.producers.watching import watcher as watcher_module
from memline.producers.watching.watcher import POLLING, WATCHING, Watcher
from memline.shared.config.schema import ExtraPath
from memline.shared.sessions.transcripts import Transcripts
from memline.shared.sources.paths import MemoryPaths
from tests.support.openclaw_rows import SessionDatabase
from tests.support.transcripts import openclaw_store, said
from tests.support.workspace import until

#: Seconds a change may take to arrive before the test fails; it usually takes the debounce.
TIMEOUT_S = 120.0


class Reports:
    """What a watcher reported, and waiting for it."""

    def __init__(self):
        self.calls = []
        self.rescans = 0
        self.watcher = None

    @property
    def all(self):
        return set().union(*self.calls)

    def wait(self, condition):
        def is_met():
            paths, is_scan_due = self.watcher.tick()
            self.calls += [paths] * bool(paths)
            self.rescans += is_scan_due
            return condition()

        until(is_met, "what is reported")


@pytest.fixture(autouse=True)
def polls_at_once(monkeypatch):
    monkeypatch.setattr(watcher_module, "POLL_S", 0.01)


@pytest.fixture
def reports():
    return Reports()


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "ws"
    (folder / "memory").mkdir(parents=True)
    return folder


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def watching(
    workspace,
    reports,
    *extra,
    quiet_s=0.05,
    most_s=TIMEOUT_S,
    new_observer=Observer,
):
    reports.watcher = Watcher(
        MemoryPaths(workspace, [ExtraPath(path=path) for path in extra]),
        quiet_s=quiet_s,
        most_s=most_s,
        new_observer=new_observer,
    )
    return reports.watcher


def test_creating_changing_and_deleting_a_note_are_reported(workspace, reports):
    note = workspace / "memory/a.md"
    with watching(workspace, reports) as watcher:
        assert (watcher.mode, watcher.reason) == (WATCHING, "")
        for change in (lambda: note.write_text("one"), lambda: note.write_text("two"), note.unlink):
            reports.calls.clear()
            change()
            reports.wait(lambda: "memory/a.md" in reports.all)


def test_a_file_that_is_saved_without_a_pause_is_reported_all_the_same(workspace, reports):
    with watching(workspace, reports, quiet_s=TIMEOUT_S, most_s=0.05):
        (workspace / "memory/a.md").write_text("one")
        reports.wait(lambda: "memory/a.md" in reports.all)


def test_memory_files_of_the_workspace_are_reported_and_no_others(workspace, reports):
    with watching(workspace, reports):
        (workspace / "README.md").write_text("no memory")
        (workspace / "memory/data.json").write_text("{}")
        (workspace / "memory/README.MD").write_text("in any case")
        (workspace / "MEMORY.md").write_text("memory")
        # Each folder has a watch of its own, and one may be ahead of the other.
        reports.wait(lambda: {"MEMORY.md", "memory/README.MD"} <= reports.all)

    assert reports.all == {"MEMORY.md", "memory/README.MD"}
    assert reports.rescans == 0


def test_memory_made_after_the_start_is_picked_up(tmp_path, reports):
    workspace = tmp_path / "ws"
    workspace.mkdir()
    with watching(workspace, reports):
        (workspace / "memory").mkdir()
        reports.wait(lambda: reports.rescans == 1)
        (workspace / "memory/a.md").write_text("x")
        reports.wait(lambda: "memory/a.md" in reports.all)


def test_a_moved_folder_requests_a_scan_and_is_reported_by_its_new_name(workspace, reports):
    (workspace / "memory/old").mkdir()
    (workspace / "memory/old/a.md").write_text("x")
    with watching(workspace, reports):
        (workspace / "memory/old").rename(workspace / "memory/new")
        reports.wait(lambda: reports.rescans >= 1)
        reports.calls.clear()
        (workspace / "memory/new/a.md").write_text("changed")
        reports.wait(lambda: "memory/new/a.md" in reports.all)

        assert not any(path.startswith("memory/old") for path in reports.all)


def test_memory_that_is_replaced_as_a_whole_is_watched_again(workspace, reports):
    with watching(workspace, reports):
        (workspace / "memory").rename(workspace / "backup")
        (workspace / "memory").mkdir()
        reports.wait(lambda: reports.rescans >= 1)
        (workspace / "memory/a.md").write_text("x")
        reports.wait(lambda: "memory/a.md" in reports.all)


def test_extra_paths_outside_the_workspace_have_absolute_names(workspace, reports):
    notes = workspace.parent / "notes"
    notes.mkdir()
    with watching(workspace, reports, "../notes"):
        (notes / "a.md").write_text("x")
        reports.wait(lambda: str(notes / "a.md") in reports.all)


def test_ignored_folders_are_not_reported(workspace, reports):
    (workspace / "memory/.git").mkdir()
    with watching(workspace, reports):
        (workspace / "memory/.git/a.md").write_text("x")
        (workspace / "memory/b.md").write_text("x")
        reports.wait(lambda: bool(reports.calls))

    assert reports.all == {"memory/b.md"}
    assert reports.rescans == 0


@pytest.mark.skipif(os.name == "nt", reason="names are Unicode there")
def test_a_name_that_is_not_unicode_requests_a_scan(workspace, reports):
    with watching(workspace, reports):
        Path(os.fsdecode(os.fsencode(workspace / "memory") + b"/\xff.md")).write_text("x")
        reports.wait(lambda: reports.rescans == 1)

    assert reports.calls == []


def test_a_change_of_a_database_with_sessions_requests_a_scan(tmp_path, reports):
    database = SessionDatabase(tmp_path)
    transcripts = Transcripts([openclaw_store(tmp_path)])
    with Watcher(transcripts, quiet_s=0.05, most_s=0.05) as reports.watcher:
        database.say("a", said("user", "hello"))
        reports.wait(lambda: reports.rescans >= 1)

    assert reports.calls == []


@pytest.mark.parametrize(
    ("number", "word"),
    [(errno.ENOSPC, "max_user_watches"), (errno.EMFILE, "max_user_instances"), (errno.EIO, "EIO")],
)
def test_when_watches_run_out_files_are_polled_for_a_stated_reason(workspace, reports, number, word):
    def no_observer():
        raise OSError(number, "none left")

    with watching(workspace, reports, new_observer=no_observer) as watcher:
        (workspace / "memory/a.md").write_text("x")
        reports.wait(lambda: "memory/a.md" in reports.all)

        assert watcher.mode == POLLING
        assert word in watcher.reason


def test_files_of_a_network_file_system_are_polled(workspace, reports, monkeypatch):
    monkeypatch.setattr(watcher_module, "are_local", lambda _: False)

    with watching(workspace, reports) as watcher:
        (workspace / "memory/a.md").write_text("x")
        reports.wait(lambda: "memory/a.md" in reports.all)

        assert (watcher.mode, watcher.reason) == (POLLING, "")


def test_an_observer_that_died_is_replaced(workspace, reports, monkeypatch):
    monkeypatch.setattr(watcher_module, "HEALTH_S", 0.01)
    observers = []

    def kept():
        observers.append(Observer())
        return observers[-1]

    with watching(workspace, reports, new_observer=kept):
        observers[0].stop()
        reports.wait(lambda: reports.rescans >= 1)
        (workspace / "memory/a.md").write_text("x")
        reports.wait(lambda: "memory/a.md" in reports.all)


def test_rules_and_roots_that_change_are_followed(tmp_path, reports):
    folder = tmp_path / "vault"
    (folder / "pages").mkdir(parents=True)
    with watching(folder, reports):
        (folder / "pages/a.md").write_text("one")
        reports.wait(lambda: "pages/a.md" in reports.all)
        before = reports.rescans
        (folder / ".gitignore").write_text("pages/\n")
        reports.wait(lambda: reports.rescans > before)
        reports.calls.clear()
        (folder / "pages/a.md").write_text("two")
        (folder / "b.md").write_text("seen")
        reports.wait(lambda: "b.md" in reports.all)
        assert "pages/a.md" not in reports.all
        before = reports.rescans
        (folder / "memory").mkdir()
        reports.wait(lambda: reports.rescans > before)
        (folder / "memory/c.md").write_text("new")
        reports.wait(lambda: "memory/c.md" in reports.all)
