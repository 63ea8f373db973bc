"""Transcripts in the index: continued on top of what is there, whatever order messages come in."""

from dataclasses import replace
from pathlib import Path

import pytest

from memline.shared.clock import ManualClock
from memline.shared.config.schema import Chunking
from memline.shared.index import ledger
from memline.shared.index.rows import FileRow
from memline.shared.index_writer import IndexWriter
from memline.shared.search.request import session_days
from memline.shared.sources.transcripts import transcript_slices
from memline.shared.sources.transcripts.formats import Transcripts
from memline.shared.sources.transcripts.stores import TranscriptFolder
from memline.shared.sync.read_file import read_transcript
from tests.support.index_rows import MODEL_A, answer, lease_all
from tests.support.transcripts import opening, sessions_folder, talk

PATH = "sessions/a.jsonl"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return sessions_folder(tmp_path / "state") / "a.jsonl"


def look(
    file: Path,
    writer: IndexWriter,
    clock: ManualClock,
    *,
    force: bool = False,
    allowed: bool = True,
    chunking: Chunking | None = None,
) -> list[FileRow]:
    """The rows of a look at the transcript as it is now, not stored yet."""
    clock.advance(1)
    transcripts = Transcripts([TranscriptFolder(str(file.parents[3]), "agents/main/sessions")])
    return list(
        read_transcript(
            PATH,
            transcripts=transcripts if allowed else None,
            chunking=chunking or Chunking(),
            entry=ledger.entry(writer.connection, PATH),
            force=force,
            clock=clock,
        )
    )


def take_in(file: Path, writer: IndexWriter, clock: ManualClock) -> None:
    """Look at the transcript and store what was found."""
    for row in look(file, writer, clock):
        writer.store_file(row)


def append(file: Path, text: str) -> None:
    with file.open("a") as handle:
        handle.write(text)


def texts(writer: IndexWriter) -> list[str]:
    rows = writer.connection.execute("SELECT text FROM chunks ORDER BY ordinal")
    found = [row[0] for row in rows]
    ordinals = [row[0] for row in writer.connection.execute("SELECT ordinal FROM chunks ORDER BY ordinal")]
    assert ordinals == list(range(len(ordinals)))
    writer.connection.execute("INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)")
    return found


def whole(file: Path, tmp_path: Path, clock: ManualClock) -> list[str]:
    """The texts of an index that read the file at once."""
    other = IndexWriter(tmp_path / "whole.sqlite", clock=clock)
    for row in look(file, other, clock):
        other.store_file(row)
    found = texts(other)
    other.close()
    (tmp_path / "whole.sqlite").unlink()
    return found


def test_growth_replaces_the_last_chunk_and_adds_to_it(
    file: Path, writer: IndexWriter, clock: ManualClock, tmp_path: Path
) -> None:
    append(file, opening() + talk(30))
    (row,) = look(file, writer, clock)
    assert writer.store_file(row) == "added"
    ids = [found[0] for found in writer.connection.execute("SELECT id FROM chunks ORDER BY ordinal")]

    append(file, talk(4, first=30))
    (row,) = look(file, writer, clock)
    change = writer.store_file(row)

    after = [found[0] for found in writer.connection.execute("SELECT id FROM chunks ORDER BY ordinal")]
    assert change == "changed"
    assert after[: len(ids) - 1] == ids[:-1]
    assert texts(writer) == whole(file, tmp_path, clock)
    entry = ledger.entry(writer.connection, PATH)
    assert entry is not None and entry.progress is not None
    assert (entry.size, entry.progress.consumed) == (file.stat().st_size, file.stat().st_size)
    assert entry.progress.counts.messages == 34


def test_nothing_but_the_last_changed_chunk_is_embedded_again(
    file: Path, writer: IndexWriter, clock: ManualClock
) -> None:
    writer.retarget(MODEL_A)
    append(file, opening() + talk(30))
    sent: list[bytes] = []
    for first in range(30, 60, 3):
        for row in look(file, writer, clock):
            writer.store_file(row)
        requests = lease_all(writer)
        sent += [text.hash for request in requests for text in request.texts]
        answer(writer, requests)
        append(file, talk(3, first=first))

    assert len(sent) == len(set(sent))
    # Ten looks: the chunks there are, and one that was open at each look.
    assert len(sent) <= len(texts(writer)) + 10


def test_a_row_may_be_stored_twice(file: Path, writer: IndexWriter, clock: ManualClock) -> None:
    append(file, opening() + talk(10))
    (first,) = look(file, writer, clock)
    writer.store_file(first)
    append(file, talk(10, first=10))
    (second,) = look(file, writer, clock)

    writer.store_file(second)
    before = texts(writer)

    assert writer.store_file(second) == "late"
    assert writer.store_file(first) == "late"
    assert texts(writer) == before


def test_a_row_that_continues_what_is_not_there_is_unknown_and_changes_nothing(
    file: Path, writer: IndexWriter, clock: ManualClock
) -> None:
    append(file, opening() + talk(10))
    (first,) = look(file, writer, clock)
    writer.store_file(first)
    append(file, talk(10, first=10))
    (second,) = look(file, writer, clock)
    append(file, talk(10, first=20))
    (third,) = look(file, writer, clock)
    writer.store_file(second)
    before = texts(writer)

    assert writer.store_file(third) == "unknown"
    assert texts(writer) == before
    assert writer.store_file(replace(third, chunking="other", base=second.hash)) == "unknown"


def test_slices_out_of_order_end_right_once_the_rest_is_read_again(
    file: Path, writer: IndexWriter, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript_slices, "SLICE_CHARS", 5_000)
    append(file, opening() + talk(90))
    rows = look(file, writer, clock)
    assert len(rows) > 4

    changes = [writer.store_file(row) for row in (rows[0], rows[2], rows[1], rows[3])]
    assert changes == ["added", "late", "changed", "late"]
    assert not ledger.observations(writer.connection, [PATH])[PATH][1]

    take_in(file, writer, clock)
    assert texts(writer) == whole(file, tmp_path, clock)
    assert ledger.observations(writer.connection, [PATH])[PATH][1]


def test_all_parts_of_a_read_that_is_too_late_enqueue_one_more_read(
    file: Path, writer: IndexWriter, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript_slices, "SLICE_CHARS", 5_000)
    append(file, opening() + talk(10))
    take_in(file, writer, clock)
    append(file, talk(80, first=10))
    first, second = look(file, writer, clock), look(file, writer, clock)

    for row in first:
        writer.store_file(row)
    changes = [writer.store_file(row) for row in second]

    assert len(changes) > 4
    assert changes == ["late"] * (len(changes) - 1) + ["unknown"]


def test_when_only_the_open_chunk_is_missing_it_comes_with_the_next_look(
    file: Path, writer: IndexWriter, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slice for every chunk that is closed: the last but one has read all bytes.
    monkeypatch.setattr(transcript_slices, "SLICE_CHARS", 1)
    append(file, opening() + talk(3, words=120))
    *parts, last = look(file, writer, clock)
    assert parts[-1].hash == last.hash
    for row in parts:
        writer.store_file(row)

    (row,) = look(file, writer, clock)
    writer.store_file(row)

    assert texts(writer) == whole(file, tmp_path, clock)
    assert ledger.observations(writer.connection, [PATH])[PATH][1]


def test_a_slice_that_ends_within_the_last_message_loses_nothing_behind_it(
    file: Path, writer: IndexWriter, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript_slices, "SLICE_CHARS", 5_000)
    append(file, opening() + talk(10))
    take_in(file, writer, clock)

    append(file, talk(1, first=10, words=800))
    part, last = look(file, writer, clock)
    assert part.hash == last.hash
    for row in (part, last):
        writer.store_file(row)

    assert texts(writer) == whole(file, tmp_path, clock)


def test_until_its_last_slice_a_transcript_that_is_read_anew_stays_searchable(
    file: Path, writer: IndexWriter, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript_slices, "SLICE_CHARS", 5_000)
    append(file, opening() + talk(60))
    take_in(file, writer, clock)
    before = texts(writer)
    file.write_text(file.read_text().replace("word59x1 ", "changed ").replace("word1x1 ", "changed "))

    *parts, last = look(file, writer, clock)
    for row in parts:
        writer.store_file(row)
        assert len(texts(writer)) >= len(before) - 1
    writer.store_file(last)

    assert texts(writer) == whole(file, tmp_path, clock)


def test_half_a_line_more_only_moves_size_and_time(
    file: Path, writer: IndexWriter, clock: ManualClock
) -> None:
    append(file, opening() + talk(10))
    take_in(file, writer, clock)

    append(file, '{"type":"message","mess')
    (row,) = look(file, writer, clock)

    assert row.chunks is None
    assert writer.store_file(row) == "unchanged"
    entry = ledger.entry(writer.connection, PATH)
    assert entry is not None and entry.size == file.stat().st_size
    assert look(file, writer, clock)[0].chunks is None


def test_reading_all_of_it_again_changes_no_chunk_and_embeds_nothing(
    file: Path, writer: IndexWriter, clock: ManualClock
) -> None:
    writer.retarget(MODEL_A)
    append(file, opening() + talk(30))
    take_in(file, writer, clock)
    answer(writer, lease_all(writer))
    before = texts(writer)

    for row in look(file, writer, clock, force=True):
        assert row.base == ""
        writer.store_file(row)

    assert texts(writer) == before
    assert lease_all(writer) == []


def test_a_place_that_another_version_kept_means_reading_all_of_it_again(
    file: Path, writer: IndexWriter, clock: ManualClock
) -> None:
    append(file, opening() + talk(10))
    take_in(file, writer, clock)
    before = texts(writer)
    writer.connection.execute("UPDATE transcripts SET resume = '{}'")

    (row,) = look(file, writer, clock)
    writer.store_file(row)

    assert row.base == ""
    assert texts(writer) == before


def test_a_removed_or_no_longer_allowed_transcript_leaves_nothing_in_the_index(
    file: Path, writer: IndexWriter, clock: ManualClock
) -> None:
    append(file, opening() + talk(10))
    take_in(file, writer, clock)

    (row,) = look(file, writer, clock, allowed=False)
    assert writer.store_file(row) == "removed"

    assert texts(writer) == []
    assert ledger.progress(writer.connection, PATH) is None
    file.unlink()
    clock.advance(10_000)
    writer.sweep()
    assert writer.connection.execute("SELECT count(*) FROM files").fetchone() == (0,)


def test_the_figures_of_a_transcript_are_kept_with_it(
    file: Path, writer: IndexWriter, clock: ManualClock
) -> None:
    clock.advance(30_000_000)  # From June 2025 to after the session.
    append(file, opening() + talk(4) + '{"type":"compaction"}\n' + talk(2, first=4))
    take_in(file, writer, clock)

    figures = ledger.progress(writer.connection, PATH)

    assert figures is not None
    assert figures.counts.messages == 6
    assert session_days(writer.connection) == {1: ("2026-02-10", "2026-02-10")}
    assert ledger.progress(writer.connection, "sessions/b.jsonl") is None
