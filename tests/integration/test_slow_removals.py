"""Files that go one by one are removed, unless their root turns out to vanish: then all of them are kept."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memline.shared.clock import ManualClock
from memline.shared.index import ledger
from memline.shared.index_writer import IndexWriter
from memline.shared.sync.read_file import FileReader
from memline.shared.sync.vanished import QUIET_S
from tests.support.embedding_server import EmbeddingServer
from tests.support.workspace import Place, paths

pytestmark = pytest.mark.place(server={}, notes=20, is_indexed=True, cache={"enabled": False})

#: Seconds between two files that go.
GAP_S = QUIET_S - 1


@pytest.fixture
def clock() -> ManualClock:
    # Later than any file was read.
    return ManualClock(4e9)


class Store:
    """The store worker of `up`: it stores what the watcher reports, and sweeps."""

    def __init__(self, place: Place, writer: IndexWriter, clock: ManualClock) -> None:
        self.place, self.writer, self.clock = place, writer, clock
        self._reader = FileReader(place.agent, clock=clock)

    def look_at(self, path: str) -> None:
        for row in self._reader.read(path, entry=ledger.entry(self.writer.connection, path)):
            self.writer.store_file(row)

    def remove(self, *numbers: int) -> None:
        """Let so many notes go, one after another, with sweeps in between."""
        for number in numbers:
            self.clock.advance(GAP_S / 2)
            self.writer.sweep()
            self.clock.advance(GAP_S / 2)
            self.writer.sweep()
            (self.place.workspace / f"memory/note-{number}.md").unlink()
            self.look_at(f"memory/note-{number}.md")

    @property
    def kept(self) -> int:
        return int(self.place.rows("SELECT count(*) FROM kept WHERE since > 0")[0][0])

    @property
    def aside(self) -> int:
        return int(self.place.rows("SELECT count(*) FROM set_aside")[0][0])

    def found(self, number: int) -> bool:
        query = "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH ?"
        return bool(self.place.rows(query, f"word{number}x1x7")[0][0])


@pytest.fixture
def store(place: Place, clock: ManualClock) -> Iterator[Store]:
    with closing(IndexWriter.of(place.agent, clock=clock)) as writer:
        yield Store(place, writer, clock)


def test_a_root_that_vanishes_file_by_file_is_kept_and_nothing_is_paid_again(
    place: Place, store: Store, server: EmbeddingServer
) -> None:
    before, calls = place.contents(), len(server.texts)
    shutil.copytree(place.workspace / "memory", place.folder / "attic")

    store.remove(*range(10))
    assert (store.kept, store.aside) == (0, 10)
    assert not any(map(store.found, range(10)))
    store.remove(10)
    assert (store.kept, store.aside) == (11, 0)
    assert all(map(store.found, range(20)))
    store.remove(*range(11, 20))

    assert store.kept == 20
    assert place.contents() == before
    shutil.copytree(place.folder / "attic", place.workspace / "memory", dirs_exist_ok=True)
    place.index()
    assert place.contents() == before
    assert (store.kept, len(server.texts)) == (0, calls)


def test_a_search_between_two_files_keeps_them_too(place: Place) -> None:
    for number in range(11):
        (place.workspace / f"memory/note-{number}.md").unlink()
        answer = place.search(f"word{number}x1x7")
        if number < 10:
            assert f"memory/note-{number}.md" not in paths(answer)

    assert answer.kept[0]["files"] == 11
    assert paths(place.search("word3x1x7"))[0] == "memory/note-3.md"
    assert paths(place.search("word10x1x7"))[0] == "memory/note-10.md"


def test_a_note_that_was_deleted_alone_is_erased_after_a_quiet_minute(place: Place, store: Store) -> None:
    texts = len(place.contents().vectors)
    store.remove(3, 4)
    store.clock.advance(QUIET_S - 1)
    store.writer.sweep()
    assert store.aside == 2
    assert place.rows("SELECT count(*) FROM vectors") == [(texts,)]

    store.clock.advance(1)
    with closing(IndexWriter.of(place.agent, clock=store.clock)) as writer:
        # One that has erased nothing a moment ago.
        writer.sweep()

    assert (store.aside, store.kept) == (0, 0)
    assert place.rows("SELECT count(*) FROM vectors")[0][0] < texts
    assert b"word3x1x7" not in b"".join(
        file.read_bytes() for file in place.index_path.parent.iterdir() if file.is_file()
    )


def test_what_is_deleted_all_day_is_not_held_for_longer_than_a_vanished_root(
    place: Place, store: Store
) -> None:
    place.configure(sync={"keepVanishedHours": 1})
    with closing(IndexWriter.of(place.agent, clock=store.clock)) as writer:
        store = Store(place, writer, store.clock)
        for number in range(80):
            place.write(f"memory/new-{number}.md", f"# New {number}\n")
            store.look_at(f"memory/new-{number}.md")
        for number in range(70):
            store.clock.advance(GAP_S)
            store.writer.sweep()
            (place.workspace / f"memory/new-{number}.md").unlink()
            store.look_at(f"memory/new-{number}.md")
            if number < 50:
                place.write(f"memory/more-{number}.md", f"# More {number}\n")
                store.look_at(f"memory/more-{number}.md")

    assert store.kept == 0
    assert 55 < store.aside <= 3_600 / GAP_S + 1


def test_where_notes_come_and_go_all_day_nothing_vanishes(place: Place, store: Store) -> None:
    for number in range(60):
        store.clock.advance(GAP_S)
        store.writer.sweep()
        file = place.write(f"memory/new-{number}.md", f"# New {number}\n\nquokka{number}\n")
        os.utime(file, (store.clock.now(), store.clock.now()))
        store.look_at(f"memory/new-{number}.md")
        gone = f"memory/note-{number}.md" if number < 15 else f"memory/new-{number - 10}.md"
        (place.workspace / gone).unlink()
        store.look_at(gone)

    assert store.kept == 0
    there = {f"memory/{path.name}" for path in (place.workspace / "memory").iterdir()}
    assert set(place.outcomes()) == there
    assert place.search("quokka3").kept == ()


def test_notes_that_are_moved_one_by_one_are_removals(place: Place, store: Store) -> None:
    (place.workspace / "memory/old").mkdir()
    for number in range(20):
        name = f"note-{number}.md"
        shutil.move(place.workspace / "memory" / name, place.workspace / "memory/old" / name)
        store.look_at(f"memory/old/{name}")
        store.look_at(f"memory/{name}")
        store.clock.advance(GAP_S)

    assert store.kept == 0
    assert set(place.outcomes()) == {f"memory/old/note-{number}.md" for number in range(20)}


def test_a_note_that_is_back_is_read_and_no_longer_set_aside(place: Place, store: Store) -> None:
    store.remove(3)
    place.write("memory/note-3.md", "# Note 3\n\nzymurgy\n")
    store.clock.advance(1)
    store.look_at("memory/note-3.md")

    assert store.aside == 0
    assert paths(place.search("zymurgy"))[0] == "memory/note-3.md"


@pytest.mark.place(server={}, notes=4, is_indexed=True)
def test_of_a_root_that_is_never_kept_nothing_is_set_aside(place: Place, store: Store) -> None:
    store.remove(0, 1, 2, 3)

    assert (store.kept, store.aside) == (0, 0)


@pytest.mark.place(notes=6, is_indexed=True)
def test_a_small_root_of_which_all_went_is_there_again(place: Place, store: Store) -> None:
    store.remove(*range(6))

    assert (store.kept, store.aside) == (6, 0)
    assert all(map(store.found, range(6)))


def test_index_decides_at_once(place: Place, store: Store) -> None:
    store.remove(3, 4)
    (place.workspace / "memory/note-5.md").unlink()

    assert place.index().kept == ()

    assert (store.aside, store.kept, len(place.outcomes())) == (0, 0, 17)


def test_index_keeps_the_rest_of_a_root_that_was_vanishing(place: Place, store: Store) -> None:
    store.remove(*range(8))
    for number in range(8, 20):
        (place.workspace / f"memory/note-{number}.md").unlink()

    (kept,) = place.index(clock=store.clock).kept

    assert (kept.files, store.aside) == (20, 0)


def test_a_clock_that_is_set_back_holds_nothing(store: Store) -> None:
    store.remove(3)
    store.clock.set_back(3_600)
    store.writer.sweep()

    assert store.aside == 0


def test_forget_and_a_backup_leave_nothing_of_what_is_set_aside(place: Place, store: Store) -> None:
    store.remove(3, 4)
    target = place.folder / "backup"

    assert place.call("backup", str(target)).status == 0
    assert place.call("forget", "memory/note-3.md", "--yes").status == 0

    assert store.aside == 0
    held = [*target.iterdir(), *place.index_path.parent.iterdir()]
    assert not [file for file in held if file.is_file() and b"word3x1x7" in file.read_bytes()]
    assert Path(target / "main.sqlite").exists()
