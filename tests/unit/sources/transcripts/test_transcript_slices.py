"""A transcript that is read as it grows gives the chunks of one that is read at once."""

import json
import os
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memline.shared.clock import ManualClock
from memline.shared.sources.chunking import Chunk
from memline.shared.sources.tokens import weighted_length
from memline.shared.sources.transcripts import transcript_slices
from memline.shared.sources.transcripts.opening import open_file
from memline.shared.sources.transcripts.transcript_slices import TranscriptSlice, read_transcript
from tests.support.transcripts import opening, said, talk, tool_result


class Kept:
    """What an index would have of one transcript after some readings."""

    def __init__(self, folder: Path, *, tokens: int = 400, overlap: int = 80) -> None:
        self.folder = folder
        self.file = folder / "a.jsonl"
        self.tokens, self.overlap = tokens, overlap
        self.chunks: list[Chunk] = []
        self.last: TranscriptSlice | None = None

    def read(self) -> list[TranscriptSlice]:
        """Read what is new and apply it; the slices it came in."""
        known = self.last.progress if self.last and self.last.digest else None
        slices = list(
            read_transcript(
                partial(open_file, str(self.folder), "a.jsonl"),
                known=known,
                known_digest=self.last.digest if self.last else "",
                max_tokens=self.tokens,
                overlap_tokens=self.overlap,
                clock=ManualClock(1_772_000_000),
            )
        )
        for part in slices:
            if part.base:
                assert self.last is not None and part.base == self.last.digest
            stop = part.keeps + len(part.chunks) if not part.is_last else len(self.chunks)
            self.chunks[part.keeps : max(stop, part.keeps)] = part.chunks
            self.last = part
        assert [part.is_last for part in slices] == [False] * (len(slices) - 1) + [True]
        return slices

    def append(self, data: str | bytes) -> None:
        with self.file.open("ab") as file:
            file.write(data if isinstance(data, bytes) else data.encode())


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def whole(kept: Kept) -> list[Chunk]:
    """The chunks of the same file read at once."""
    other = Kept(kept.folder, tokens=kept.tokens, overlap=kept.overlap)
    other.read()
    return other.chunks


def test_a_transcript_becomes_chunks_with_the_lines_of_its_file(kept: Kept) -> None:
    kept.append(opening() + tool_result("x") + said("user", "Where is the key?") + "\nnot json\n")
    kept.append(said("assistant", "Under the mat."))

    (only,) = kept.read()

    (chunk,) = kept.chunks
    assert chunk.text == "User: Where is the key?\nAssistant: Under the mat."
    assert (chunk.start_line, chunk.end_line) == (3, 6)
    assert chunk.heading == "2026-02-10 10 February 2026 > Where is the key?"
    assert (only.outcome, only.reason) == ("indexed", "no valid record on 1 line, left out")
    assert (only.progress.lines, only.progress.counts.messages) == (6, 2)
    assert only.progress.consumed == only.size == kept.file.stat().st_size


def test_only_the_last_chunk_is_made_again_when_a_transcript_grows(kept: Kept) -> None:
    kept.append(opening() + talk(40))
    kept.read()
    before = list(kept.chunks)

    kept.append(talk(3, first=40))
    (only,) = kept.read()

    assert only.keeps == len(before) - 1 > 5
    assert len(only.chunks) <= 3
    assert kept.chunks[: only.keeps] == before[: only.keeps]
    assert kept.chunks == whole(kept)


def test_the_bytes_of_before_are_not_parsed_again(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.append(opening() + talk(400))
    kept.read()
    parsed: list[bytes] = []
    real = transcript_slices.TranscriptParser.read_line

    def take(self: transcript_slices.TranscriptParser, line: bytes, *, is_counted: bool = True) -> object:
        parsed.append(line)
        return real(self, line, is_counted=is_counted)

    monkeypatch.setattr(transcript_slices.TranscriptParser, "read_line", take)
    kept.append(talk(1, first=400))
    kept.read()

    assert len(parsed) < 12


def test_half_a_line_waits_for_its_end(kept: Kept) -> None:
    line = said("assistant", "The rest comes later, über alles.").encode()
    kept.append(opening() + said("user", "Tell me."))
    kept.append(line[:70])
    (half,) = kept.read()
    assert [chunk.text for chunk in kept.chunks] == ["User: Tell me."]
    assert half.progress.consumed < half.size
    assert half.progress.counts.broken == 0

    kept.append(line[70:])
    kept.read()

    assert kept.chunks == whole(kept)
    assert kept.chunks[0].end_line == 3


def test_a_last_line_without_a_line_end_is_taken_when_it_is_a_whole_message(kept: Kept) -> None:
    kept.append(opening() + said("user", "The last words").rstrip("\n"))
    (only,) = kept.read()
    assert kept.chunks[0].text == "User: The last words"
    assert only.progress.counts.messages == 1

    kept.append("\n" + said("assistant", "were not the last."))
    kept.read()

    assert kept.chunks == whole(kept)
    assert kept.last is not None and kept.last.progress.counts.messages == 2


@pytest.mark.parametrize("left", [0, 10, 700])
def test_a_transcript_that_was_cut_short_is_read_again(kept: Kept, left: int) -> None:
    kept.append(opening() + talk(40))
    kept.read()

    kept.file.write_bytes(kept.file.read_bytes()[:left])
    (only,) = kept.read()

    assert only.base == ""
    assert kept.chunks == whole(kept)
    assert len(kept.chunks) <= 1


def test_a_transcript_that_was_written_anew_is_read_again_also_when_it_has_grown(kept: Kept) -> None:
    kept.append(opening() + talk(40))
    kept.read()
    data = kept.file.read_bytes()

    kept.file.write_bytes(data.replace(b"word3x7", b"WORD3X7") + talk(5, first=40).encode())
    slices = kept.read()

    assert slices[0].base == ""
    assert any("WORD3X7" in chunk.text for chunk in kept.chunks)


def test_a_long_transcript_comes_in_slices_of_bounded_size(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = Kept(kept.folder)
    kept.append(opening() + talk(300))
    at_once.read()
    monkeypatch.setattr(transcript_slices, "SLICE_CHARS", 10_000)

    slices = kept.read()

    assert len(slices) > 5
    assert all(sum(len(chunk.text) for chunk in part.chunks) < 15_000 for part in slices)
    assert kept.chunks == at_once.chunks
    assert kept.last is not None and at_once.last is not None
    assert kept.last.progress == at_once.last.progress


def test_also_one_endless_message_comes_in_slices_and_goes_on_after_any(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.append(said("user", "go") + said("assistant", "This is a sentence. " * 3_000) + said("user", "stop"))
    expected = whole(kept)
    monkeypatch.setattr(transcript_slices, "SLICE_CHARS", 5_000)

    slices = kept.read()

    assert len(slices) > 8
    assert kept.chunks == expected
    for number, part in enumerate(slices[:-1]):
        again = Kept(kept.folder)
        again.chunks, again.last = expected[: slices[number + 1].keeps], part
        again.read()
        assert again.chunks == expected
        assert again.last.progress == slices[-1].progress


def test_reading_goes_on_after_any_slice(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript_slices, "SLICE_CHARS", 5_000)
    kept.append(opening() + talk(100))
    slices = kept.read()
    expected = list(kept.chunks)

    for number, part in enumerate(slices[:-1]):
        again = Kept(kept.folder)
        again.chunks = expected[: slices[number + 1].keeps]
        again.last = part
        again.read()
        assert again.chunks == expected


def test_a_very_long_message_is_cut_in_pieces_that_say_who_speaks(kept: Kept) -> None:
    kept.append(said("assistant", "This is a sentence. " * 2_000))

    kept.read()

    assert len(kept.chunks) > 20
    assert all(chunk.text.startswith("Assistant: This is a sentence.") for chunk in kept.chunks)
    assert all(len(chunk.text) <= 1600 for chunk in kept.chunks)
    assert {(chunk.start_line, chunk.end_line) for chunk in kept.chunks} == {(1, 1)}


def test_a_line_beyond_all_measure_is_passed_over(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript_slices, "MAX_LINE_BYTES", 500)
    kept.append(said("user", "before") + said("user", "x" * 5_000) + said("user", "after"))

    (only,) = kept.read()

    assert [chunk.text for chunk in kept.chunks] == ["User: before\nUser: after"]
    assert kept.chunks[0].end_line == 3
    assert only.progress.counts.broken == 1
    kept.append(said("user", "y" * 5_000)[:-1])
    (half,) = kept.read()
    assert half.progress.consumed == only.progress.consumed
    kept.append("\n" + said("user", "end"))
    kept.read()
    assert kept.chunks == whole(kept)
    assert kept.last is not None and kept.last.base


def test_the_name_of_a_session_holds_from_where_it_was_given(kept: Kept) -> None:
    kept.append(opening() + said("user", "Hello there") + talk(12))
    kept.append(json.dumps({"type": "session_info", "name": "The rollout"}) + "\n" + talk(12, first=12))

    kept.read()

    assert kept.chunks[0].heading.endswith("> Hello there")
    assert kept.chunks[-1].heading.endswith("> The rollout")


@pytest.mark.parametrize(
    ("data", "outcome", "reason"),
    [
        (b"", "empty", "no complete line yet"),
        (b'{"type":', "empty", "no complete line yet"),
        (opening().encode(), "empty", "it has no messages"),
        (b"PK\x03\x04 something\nbinary\n", "not_text", "no valid record on 2 of its 2 lines"),
        (b"\n\n\n", "empty", "it has no messages"),
    ],
)
def test_a_transcript_without_words_says_why(kept: Kept, data: bytes, outcome: str, reason: str) -> None:
    kept.append(data)

    (only,) = kept.read()

    assert (only.outcome, only.reason, only.chunks) == (outcome, reason, ())


def test_what_is_no_regular_file_is_not_read(kept: Kept, tmp_path: Path) -> None:
    assert kept.read()[0].outcome == "removed"
    os.mkfifo(kept.file)
    assert kept.read()[0].outcome == "special"
    kept.file.unlink()
    (tmp_path / "other").write_text(said("user", "not yours"))
    kept.file.symlink_to(tmp_path / "other")
    assert kept.read()[0].outcome == "symlink"


TURNS = st.lists(
    st.one_of(
        st.builds(
            said,
            st.sampled_from(["user", "assistant"]),
            st.text(alphabet="ab .中é", min_size=1, max_size=400),
        ),
        st.builds(said, st.just("assistant"), st.integers(1, 60).map(lambda n: "A sentence here. " * n)),
        st.builds(tool_result, st.text(max_size=20)),
        st.just("no record\n"),
        st.just("\n"),
        st.builds(
            lambda name: json.dumps({"type": "session_info", "name": name}) + "\n", st.text(max_size=9)
        ),
        st.builds(
            said, st.just("user"), st.just("next day"), at=st.sampled_from(["2026-02-11", "2026-02-12"])
        ),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(
    TURNS,
    st.lists(st.integers(0, 1_000), max_size=6),
    st.sampled_from([(400, 80), (60, 10), (40, 0), (20, 15), (3, 1)]),
)
def test_a_transcript_read_in_any_pieces_gives_the_chunks_of_one_read_at_once(
    tmp_path_factory: pytest.TempPathFactory, turns: list[str], cuts: list[int], limits: tuple[int, int]
) -> None:
    kept = Kept(tmp_path_factory.mktemp("t"), tokens=limits[0], overlap=limits[1])
    data = "".join(turns).encode()
    places = sorted({cut * len(data) // 1_000 for cut in cuts} | {0, len(data)})

    for start, stop in pairwise(places):
        kept.append(data[start:stop])
        kept.read()
    if data:
        assert kept.chunks == whole(kept)

    # The lines of every chunk are lines of the file that say something, in order.
    speaking = [number for number, line in enumerate(data.decode().split("\n"), 1) if '"text": "' in line]
    for chunk in kept.chunks:
        assert chunk.start_line in speaking and chunk.end_line in speaking
        assert chunk.start_line <= chunk.end_line
        if limits[0] > 3:
            assert weighted_length(chunk.text) <= 4 * limits[0]
    starts = [(chunk.start_line, chunk.end_line) for chunk in kept.chunks]
    assert starts == sorted(starts)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=5))
def test_no_bytes_raise(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    kept = Kept(tmp_path_factory.mktemp("t"))

    for part in parts:
        kept.append(part)
        kept.read()

    kept.file.touch()
    assert kept.chunks == whole(kept)


def test_a_changed_progress_is_never_trusted_without_its_digest(kept: Kept) -> None:
    kept.append(opening() + talk(30))
    kept.read()
    assert kept.last is not None
    kept.last = replace(kept.last, digest="0" * 64)

    slices = kept.read()

    assert slices[0].base == ""
    assert kept.chunks == whole(kept)
