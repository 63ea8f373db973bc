"""Transcripts in the index: what did not change keeps its rows, whatever order messages come in."""

from datetime import date

import pytest
from msgspec.structs import replace

from memline.shared.config.schema import MemorySearch
from memline.shared.index import ledger
from memline.shared.index_writer import IndexWriter
from memline.shared.search.request import files_of_days
from memline.shared.sources.dates import Days
from memline.shared.sync.read_file import FileReader
from tests.support.index_rows import MODEL_A, answer, lease_all, retarget, stored_chunks
from tests.support.transcripts import opening, session_settings, sessions_folder, talk

PATH = "sessions/a.jsonl"


@pytest.fixture
def file(tmp_path):
    return sessions_folder(tmp_path / "state") / "a.jsonl"


def look(
    file,
    writer,
    clock,
    *,
    force=False,
    allowed=True,
):
    """A look at the transcript as it is now, not stored yet."""
    clock.advance(1)
    settings = session_settings(file.parents[3])
    if not allowed:
        settings = replace(settings, memory=MemorySearch())
    return FileReader(settings, clock=clock).read(
        PATH, entry=ledger.entry(writer.connection, PATH), force=force
    )


def take_in(file, writer, clock):
    """Look at the transcript and store what was found."""
    writer.store_file(look(file, writer, clock))


def append(file, text):
    with file.open("a") as handle:
        handle.write(text)


def texts(writer):
    return [text for _, text in stored_chunks(writer)]


def whole(file, tmp_path, clock):
    """The texts of an index that read the file at once."""
    other = IndexWriter(tmp_path / "whole.sqlite", clock=clock)
    other.store_file(look(file, other, clock))
    found = texts(other)
    other.close()
    (tmp_path / "whole.sqlite").unlink()
    return found


def ids(writer):
    return [row_id for row_id, _ in stored_chunks(writer)]


def test_growth_replaces_the_last_chunk_and_adds_to_it(file, writer, clock, tmp_path):
    append(file, opening() + talk(30))
    assert writer.store_file(look(file, writer, clock)) == "stored"
    before = ids(writer)

    append(file, talk(4, first=30))
    assert writer.store_file(look(file, writer, clock)) == "stored"

    assert ids(writer)[: len(before) - 1] == before[:-1]
    assert texts(writer) == whole(file, tmp_path, clock)
    entry = ledger.entry(writer.connection, PATH)
    assert entry is not None and entry.size == file.stat().st_size
    assert entry.lines == 35


@pytest.mark.parametrize("kept", [0, 100, 4_000])
def test_one_that_was_cut_short_or_written_anew_is_as_one_that_is_new(file, writer, clock, tmp_path, kept):
    append(file, opening() + talk(30))
    take_in(file, writer, clock)

    file.write_bytes(file.read_bytes()[:kept])
    take_in(file, writer, clock)
    assert texts(writer) == whole(file, tmp_path, clock)

    file.write_text(opening() + talk(30).replace("word3x7", "WORD3X7"))
    take_in(file, writer, clock)
    assert texts(writer) == whole(file, tmp_path, clock)


def test_nothing_but_the_last_changed_chunk_is_embedded_again(file, writer, clock):
    retarget(writer, MODEL_A)
    append(file, opening() + talk(30))
    sent = []
    for first in range(30, 60, 3):
        take_in(file, writer, clock)
        requests = lease_all(writer)
        sent += [text.hash for request in requests for text in request.texts]
        answer(writer, requests)
        append(file, talk(3, first=first))

    assert len(sent) == len(set(sent))
    # Ten looks: the chunks there are, and one that was open at each look.
    assert len(sent) <= len(texts(writer)) + 10


def test_a_removed_or_no_longer_allowed_transcript_leaves_nothing_in_the_index(file, writer, clock):
    append(file, opening() + talk(10))
    take_in(file, writer, clock)

    assert writer.store_file(look(file, writer, clock, allowed=False)) == "stored"

    assert texts(writer) == []
    file.unlink()
    clock.advance(10_000)
    writer.sweep()
    assert ledger.entry(writer.connection, PATH) is None


def test_the_lines_and_days_of_a_transcript_are_kept_with_it(file, writer, clock):
    clock.advance(30_000_000)  # From June 2025 to after the session.
    append(file, opening() + talk(4) + '{"type":"compaction"}\n' + talk(2, first=4))
    take_in(file, writer, clock)

    (path,) = ledger.entries(writer.connection)
    assert ledger.entries(writer.connection)[path].lines == 8
    day = date(2026, 2, 10)
    assert [*files_of_days(writer.connection, [Days(first=day, last=day)])] == [1]
