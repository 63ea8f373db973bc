"""A save is known to whoever reads the kernel's queue, from the moment it ended."""

import os
from functools import partial
from pathlib import Path

import pytest

from memline.shared.sources.paths import MemoryPaths
from memline.shared.sync.plan import are_stored
from memline.shared.sync.saves import Saves
from tests.support.workspace import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(folder=tmp_path / "user")
    place.write("memory/a.md", "one\n")
    return place


@pytest.fixture
def saves(place: Place) -> Saves:
    saves = Saves(MemoryPaths.of(place.agent))
    assert saves.has_news()
    saves.watch()
    return saves


def test_nothing_is_new_until_a_note_is_saved_renamed_or_deleted(place: Place, saves: Saves) -> None:
    note = place.workspace / "memory" / "a.md"
    assert not saves.has_news()

    note.write_text("two\n")
    assert saves.has_news() and not saves.has_news()
    (place.workspace / "memory" / "a.tmp").write_text("three\n")
    assert not saves.has_news()
    os.replace(place.workspace / "memory" / "a.tmp", note)
    assert saves.has_news()
    note.unlink()
    assert saves.has_news()
    (place.workspace / "memory" / "README.MD").write_text("four\n")
    assert saves.has_news()


def test_a_new_folder_is_watched_from_the_next_look_on(place: Place, saves: Saves) -> None:
    (place.workspace / "memory" / "deep").mkdir()
    assert saves.has_news()

    saves.watch()

    assert not saves.has_news()
    (place.workspace / "memory" / "deep" / "b.md").write_text("x\n")
    assert saves.has_news()


def test_a_disk_that_does_not_tell_is_known_as_one(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memline.shared.sync.saves.are_local", lambda folders: False)
    saves = Saves(MemoryPaths.of(place.agent))

    saves.watch()

    assert saves.has_news() is None


def test_a_note_that_is_stored_by_now_is_no_news_where_nothing_was_behind(place: Place) -> None:
    note = place.workspace / "memory" / "a.md"
    saves = Saves(MemoryPaths.of(place.agent), partial(are_stored, place.agent))
    saves.watch()
    place.index()

    def news() -> bool | None:
        return saves.has_news(is_settled=True)

    note.write_text("two words\n")
    assert news()
    note.write_text("three more words\n")
    place.index()
    assert not news()
    note.write_text("three more words.\n")
    place.index()
    assert saves.has_news()
    place.write("memory/new.md", "four\n")
    assert news()
    (place.workspace / "memory" / "new.md").unlink()
    assert not news()
    note.unlink()
    assert news()
    place.index()
    note.mkdir()
    assert news()
