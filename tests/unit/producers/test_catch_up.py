"""What a search does before it answers: changed files are stored, within a time."""

import pytest

from memline.producers import store_changes
from memline.producers.memory import catch_up
from memline.shared.config.schema import AgentSettings, MemorySearch, Sync
from memline.shared.embedders.choice import choose
from memline.shared.index_writer import IndexWriter
from tests.support.clock import ManualClock


def look(tmp_path, *, may_write=True, on_search=True, clock=None):
    settings = AgentSettings(
        agent="main",
        workspace=tmp_path / "notes",
        index_path=tmp_path / "index.sqlite",
        state_dir=tmp_path,
        memory=MemorySearch(provider="none", sync=Sync(on_search=on_search)),
    )
    return catch_up(settings, choose(settings), clock=clock or ManualClock(), may_write=may_write)


@pytest.fixture(autouse=True)
def notes(tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "MEMORY.md").write_text("One.\n")
    (notes / "memory.md").write_text("Two.\n")
    return notes


def test_changed_files_are_stored_and_nothing_is_behind(tmp_path):
    assert look(tmp_path).files_behind == 0
    assert (tmp_path / "index.sqlite").exists()


@pytest.mark.parametrize("options", [{"may_write": False}, {"on_search": False}])
def test_where_a_search_does_not_write_files_are_counted_as_behind(tmp_path, options):
    assert look(tmp_path, **options).files_behind == 2
    assert not (tmp_path / "index.sqlite").exists()


def test_what_does_not_fit_into_the_time_stays_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(store_changes, "CATCH_UP_S", -1.0)

    assert look(tmp_path).files_behind == 2


def test_files_that_are_gone_are_stored_together(tmp_path, notes, monkeypatch):
    (notes / "memory").mkdir()
    for number in range(60):
        (notes / f"memory/{number}.md").write_text(f"Note {number}.\n")
    look(tmp_path)
    calls, store = list[int](), IndexWriter.store_files

    def counted(self, rows, **options):
        calls.append(len(rows))
        return store(self, rows, **options)

    monkeypatch.setattr(IndexWriter, "store_files", counted)
    for number in range(20):
        (notes / f"memory/{number}.md").unlink()

    assert look(tmp_path).files_behind == 0
    # Each call looks at all files of the index.
    assert calls == [20]


def test_an_index_that_is_slow_to_open_takes_nothing_of_the_time(tmp_path, monkeypatch):
    clock, opened = ManualClock(), IndexWriter.of

    def slowly(*arguments, **options):
        clock.advance(2 * store_changes.CATCH_UP_S)
        return opened(*arguments, **options)

    monkeypatch.setattr(IndexWriter, "of", slowly)

    assert look(tmp_path, clock=clock).files_behind == 0
