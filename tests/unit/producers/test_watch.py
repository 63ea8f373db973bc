"""Changes on a real disk are noticed, each within seconds, and trouble turns into polling."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from producers.watch import POLLING, WATCHING, Watcher
from producers.watched_folders import WatchedNotes
from shared.config.schema import ExtraPath

#: Seconds a change may take to arrive before the test fails; it usually takes the debounce.
PATIENCE_S = 20.0


class Heard:
    """What a watcher reported, and waiting for it."""

    def __init__(self) -> None:
        self.calls: list[set[str]] = []
        self.rescans = 0
        self.failures_left = 0
        self._changed = threading.Condition()

    def paths(self, paths: set[str]) -> None:
        with self._changed:
            if self.failures_left:
                self.failures_left -= 1
                raise ConnectionError("no queue")
            self.calls.append(paths)
            self._changed.notify_all()

    def rescan(self) -> None:
        with self._changed:
            self.rescans += 1
            self._changed.notify_all()

    @property
    def all(self) -> set[str]:
        return set().union(*self.calls)

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_S), (self.calls, self.rescans)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / "memory").mkdir(parents=True)
    return folder


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def watching(
    workspace: Path,
    heard: Heard,
    *extra: str,
    debounce_s: float = 0.05,
    poll_s: float = 0.01,
    health_s: float = 5.0,
    new_observer: Callable[[], BaseObserver] = Observer,
) -> Watcher:
    return Watcher(
        WatchedNotes(workspace, [ExtraPath(path=path) for path in extra]),
        debounce_s=debounce_s,
        on_paths=heard.paths,
        on_rescan=heard.rescan,
        poll_s=poll_s,
        health_s=health_s,
        new_observer=new_observer,
    )


def test_creating_changing_and_deleting_a_note_are_noticed(workspace: Path, heard: Heard) -> None:
    note = workspace / "memory/a.md"
    with watching(workspace, heard) as watcher:
        assert (watcher.mode, watcher.reason) == (WATCHING, "")
        for change in (lambda: note.write_text("one"), lambda: note.write_text("two"), note.unlink):
            heard.calls.clear()
            change()
            heard.wait(lambda: "memory/a.md" in heard.all)


def test_the_files_of_the_workspace_itself_are_noticed_and_no_others(workspace: Path, heard: Heard) -> None:
    with watching(workspace, heard):
        (workspace / "README.md").write_text("no memory")
        (workspace / "memory/data.json").write_text("{}")
        (workspace / "MEMORY.md").write_text("memory")
        heard.wait(lambda: "MEMORY.md" in heard.all)

    assert heard.all == {"MEMORY.md"}
    assert heard.rescans == 0


def test_an_atomic_save_by_renaming_is_noticed(workspace: Path, heard: Heard) -> None:
    with watching(workspace, heard):
        (workspace / "memory/.a.tmp").write_text("new")
        (workspace / "memory/.a.tmp").replace(workspace / "memory/a.md")
        heard.wait(lambda: "memory/a.md" in heard.all)


def test_both_ends_of_a_move_are_noticed(workspace: Path, heard: Heard) -> None:
    (workspace / "memory/old.md").write_text("x")
    with watching(workspace, heard):
        (workspace / "memory/old.md").rename(workspace / "memory/new.md")
        heard.wait(lambda: {"memory/old.md", "memory/new.md"} <= heard.all)


def test_a_note_moved_away_from_the_memory_is_noticed(workspace: Path, heard: Heard) -> None:
    (workspace / "memory/old.md").write_text("x")
    with watching(workspace, heard):
        (workspace / "memory/old.md").rename(workspace.parent / "old.md")
        heard.wait(lambda: "memory/old.md" in heard.all)


def test_a_hundred_saves_are_reported_at_most_twice(workspace: Path, heard: Heard) -> None:
    with watching(workspace, heard, debounce_s=0.3):
        for number in range(100):
            (workspace / "memory/a.md").write_text(f"version {number}")
        heard.wait(lambda: bool(heard.calls))
        (workspace / "memory/end.md").write_text("x")
        heard.wait(lambda: "memory/end.md" in heard.all)

    assert sum("memory/a.md" in call for call in heard.calls) <= 2


def test_memory_made_after_the_start_is_picked_up(tmp_path: Path, heard: Heard) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    with watching(workspace, heard):
        (workspace / "memory").mkdir()
        heard.wait(lambda: heard.rescans == 1)
        (workspace / "memory/a.md").write_text("x")
        heard.wait(lambda: "memory/a.md" in heard.all)


def test_a_workspace_made_after_the_start_is_picked_up(tmp_path: Path, heard: Heard) -> None:
    workspace = tmp_path / "deep/ws"
    with watching(workspace, heard):
        (workspace / "memory").mkdir(parents=True)
        heard.wait(lambda: heard.rescans >= 1)
        (workspace / "memory/a.md").write_text("x")
        heard.wait(lambda: "memory/a.md" in heard.all or heard.rescans >= 2)


def test_a_moved_folder_asks_for_a_look_and_is_then_known_by_its_new_name(
    workspace: Path, heard: Heard
) -> None:
    (workspace / "memory/old").mkdir()
    (workspace / "memory/old/a.md").write_text("x")
    with watching(workspace, heard):
        (workspace / "memory/old").rename(workspace / "memory/new")
        heard.wait(lambda: heard.rescans >= 1)
        heard.calls.clear()
        (workspace / "memory/new/a.md").write_text("changed")
        heard.wait(lambda: "memory/new/a.md" in heard.all)

        assert not any(path.startswith("memory/old") for path in heard.all)


def test_memory_that_is_replaced_as_a_whole_is_watched_again(workspace: Path, heard: Heard) -> None:
    with watching(workspace, heard):
        (workspace / "memory").rename(workspace / "backup")
        (workspace / "memory").mkdir()
        heard.wait(lambda: heard.rescans >= 1)
        (workspace / "memory/a.md").write_text("x")
        heard.wait(lambda: "memory/a.md" in heard.all)


def test_extra_paths_outside_the_workspace_have_absolute_names(workspace: Path, heard: Heard) -> None:
    notes = workspace.parent / "notes"
    notes.mkdir()
    with watching(workspace, heard, "../notes"):
        (notes / "a.md").write_text("x")
        heard.wait(lambda: str(notes / "a.md") in heard.all)


def test_ignored_folders_are_not_noticed(workspace: Path, heard: Heard) -> None:
    (workspace / "memory/.git").mkdir()
    with watching(workspace, heard):
        (workspace / "memory/.git/a.md").write_text("x")
        (workspace / "memory/b.md").write_text("x")
        heard.wait(lambda: bool(heard.calls))

    assert heard.all == {"memory/b.md"}
    assert heard.rescans == 0


@pytest.mark.skipif(os.name == "nt", reason="names are Unicode there")
def test_a_name_that_no_message_can_carry_asks_for_a_look(workspace: Path, heard: Heard) -> None:
    with watching(workspace, heard):
        Path(os.fsdecode(os.fsencode(workspace / "memory") + b"/\xff.md")).write_text("x")
        heard.wait(lambda: heard.rescans == 1)

    assert heard.calls == []


def test_a_report_that_fails_is_made_again(workspace: Path, heard: Heard) -> None:
    heard.failures_left = 1
    with watching(workspace, heard):
        (workspace / "memory/a.md").write_text("x")
        heard.wait(lambda: "memory/a.md" in heard.all)

    assert heard.failures_left == 0


@pytest.mark.parametrize(
    ("number", "word"),
    [(errno.ENOSPC, "max_user_watches"), (errno.EMFILE, "max_user_instances"), (errno.EIO, "EIO")],
)
def test_when_watches_run_out_files_are_polled_and_the_reason_is_told(
    workspace: Path, heard: Heard, number: int, word: str
) -> None:
    def no_observer() -> BaseObserver:
        raise OSError(number, "none left")

    with watching(workspace, heard, new_observer=no_observer) as watcher:
        heard.wait(lambda: heard.rescans >= 3)

        assert watcher.mode == POLLING
        assert word in watcher.reason


def test_watches_that_run_out_inside_a_tree_are_found_out(workspace: Path, heard: Heard) -> None:
    made = []

    def one_observer() -> BaseObserver:
        # The library swallows the error for a folder inside a tree; the next watch of our own fails openly.
        if made:
            raise OSError(errno.ENOSPC, "inotify watch limit reached")
        made.append(True)
        return Observer()

    with watching(workspace, heard, new_observer=one_observer) as watcher:
        assert watcher.mode == POLLING
        heard.wait(lambda: heard.rescans >= 1)


def test_watches_that_run_out_with_a_new_folder_are_found_out(workspace: Path, heard: Heard) -> None:
    is_full = threading.Event()

    def observer() -> BaseObserver:
        if is_full.is_set():
            raise OSError(errno.ENOSPC, "inotify watch limit reached")
        return Observer()

    with watching(workspace, heard, new_observer=observer) as watcher:
        assert watcher.mode == WATCHING
        is_full.set()
        (workspace / "memory/new").mkdir()
        heard.wait(lambda: watcher.mode == POLLING and heard.rescans >= 1)


def test_watching_is_tried_again_while_polling(workspace: Path, heard: Heard) -> None:
    tries = []

    def second_observer() -> BaseObserver:
        tries.append(True)
        if len(tries) == 1:
            raise OSError(errno.ENOSPC, "none left")
        return Observer()

    with watching(workspace, heard, new_observer=second_observer) as watcher:
        heard.wait(lambda: watcher.mode == WATCHING and heard.rescans >= 6)

        assert watcher.reason == ""


def test_an_observer_that_died_is_replaced(workspace: Path, heard: Heard) -> None:
    observers: list[BaseObserver] = []

    def kept() -> BaseObserver:
        observers.append(Observer())
        return observers[-1]

    with watching(workspace, heard, health_s=0.01, new_observer=kept):
        observers[0].stop()
        heard.wait(lambda: heard.rescans >= 1)
        (workspace / "memory/a.md").write_text("x")
        heard.wait(lambda: "memory/a.md" in heard.all)
