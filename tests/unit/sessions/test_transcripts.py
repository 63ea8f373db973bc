"""A session is read whole: its chunks have the lines of its file, and nothing on the disk ends a reading."""

import json

import pytest

from memline.shared.sessions import stores
from memline.shared.sessions.transcripts import read_session
from tests.support.clock import ManualClock
from tests.support.transcripts import openclaw_store, opening, said, sessions_folder, talk, tool_result


def read(folder, *parts, tokens=400, overlap=80):
    data = b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)
    (sessions_folder(folder) / "a.jsonl").write_bytes(data)
    return read_again(folder, tokens=tokens, overlap=overlap)


def read_again(folder, *, tokens=400, overlap=80):
    clock, limits = ManualClock(1_772_000_000), {"max_tokens": tokens, "overlap_tokens": overlap}
    return read_session(openclaw_store(folder), "sessions/a.jsonl", **limits, clock=clock)


def test_a_transcript_becomes_chunks_with_the_lines_of_its_file(tmp_path):
    first = opening() + tool_result("x") + said("user", "Where is the key?") + "\nnot json\n"

    found = read(tmp_path, first, said("assistant", "Under the mat."))

    (chunk,) = found.chunks
    assert chunk.text == "User: Where is the key?\nAssistant: Under the mat."
    assert (chunk.start_line, chunk.end_line) == (3, 6)
    assert chunk.heading == "2026-02-10 10 February 2026 > Where is the key?"
    assert (found.outcome, found.reason) == ("indexed", "no valid record on 1 line, left out")
    assert found.lines == 6
    assert found.size == (sessions_folder(tmp_path) / "a.jsonl").stat().st_size


def test_growth_changes_no_chunk_but_the_last(tmp_path):
    before = read(tmp_path, opening() + talk(40)).chunks

    after = read(tmp_path, opening() + talk(43)).chunks

    assert len(before) > 5 and after[: len(before) - 1] == before[:-1]


def test_a_session_with_each_record_written_twice_has_the_same_chunks(tmp_path):
    lines = [opening(), *talk(40).splitlines(keepends=True)]

    once, twice = read(tmp_path, *lines), read(tmp_path, *(line * 2 for line in lines))

    assert [chunk.text for chunk in once.chunks] == [chunk.text for chunk in twice.chunks]


def test_half_a_line_waits_for_its_end(tmp_path):
    line = said("assistant", "The rest comes later, über alles.").encode()
    first = opening() + said("user", "Tell me.")

    half, none = read(tmp_path, first, line[:70]), read(tmp_path, first)
    whole = read(tmp_path, first, line)

    assert [chunk.text for chunk in half.chunks] == ["User: Tell me."]
    assert (half.digest, half.lines) == (none.digest, none.lines) and half.size > none.size
    assert whole.chunks[0].end_line == 3


def test_a_last_line_without_a_line_end_is_taken_when_it_is_a_whole_message(tmp_path):
    found = read(tmp_path, opening() + said("user", "The last words").rstrip("\n"))

    assert found.chunks[0].text == "User: The last words"


def test_a_very_long_message_is_cut_in_pieces_that_say_who_speaks(tmp_path):
    found = read(tmp_path, said("assistant", "This is a sentence. " * 2_000))

    assert len(found.chunks) > 20
    assert all(chunk.text.startswith("Assistant: This is a sentence.") for chunk in found.chunks)
    assert all(len(chunk.text) <= 1600 for chunk in found.chunks)
    assert {(chunk.start_line, chunk.end_line) for chunk in found.chunks} == {(1, 1)}


def test_a_line_beyond_all_measure_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "MAX_LINE_BYTES", 500)

    found = read(tmp_path, said("user", "before") + said("user", "x" * 5_000) + said("user", "after"))

    assert [chunk.text for chunk in found.chunks] == ["User: before\nUser: after"]
    assert (found.chunks[0].end_line, found.reason) == (3, "no valid record on 1 line, left out")


def test_the_name_of_a_session_holds_from_where_it_was_given(tmp_path):
    named = json.dumps({"type": "session_info", "name": "The rollout"}) + "\n"

    found = read(tmp_path, opening() + said("user", "Hello there") + talk(12), named + talk(12, first=12))

    assert found.chunks[0].heading.endswith("> Hello there")
    assert found.chunks[-1].heading.endswith("> The rollout")


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
def test_a_transcript_without_words_says_why(tmp_path, data, outcome, reason):
    found = read(tmp_path, data)

    assert (found.outcome, found.reason, found.chunks) == (outcome, reason, ())
