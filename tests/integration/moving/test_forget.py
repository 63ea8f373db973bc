"""What is forgotten is in no byte of the note, the index and its WAL; what holds it elsewhere is named."""

import json
import subprocess
import sys
from contextlib import closing
from datetime import date

import pytest

from memline.producers.actions.backup import back_up
from memline.producers.actions.forget import forget, targets_before, targets_of_path, targets_of_query
from memline.shared.clock import SystemClock
from memline.shared.errors import BadRequest, MemlineError, PathNotAllowed
from memline.shared.index import chunks, driver, maintenance
from memline.shared.index_writer import IndexWriter
from memline.shared.sync.read_file import FileReader
from tests.support.transcripts import opening, said, sessions_folder
from tests.support.workspace import paths, remote

#: No other text has any of these words, nor one that is stemmed to the same.
SECRET = "The quixotzalp door code is 8841-frobnitz-vexahedral."
WORDS = (b"quixotzalp", b"frobnitz", b"vexahedr", b"8841-f")
LINES = ["# Doors", "", "The garden gate is green.", "", SECRET, "", "The attic is empty."]
BATCH = {"enabled": True, "minTexts": 2, "pollIntervalMs": 50, "wait": False}

pytestmark = pytest.mark.place(
    server={}, files={"memory/doors.md": "\n".join(LINES) + "\n"}, notes=3, is_indexed=True
)


def files_with(folder):
    """The files below a folder that hold any of the words, whatever SQLite makes of upper and lower case."""
    return [
        path.name
        for path in sorted(folder.rglob("*"))
        if path.is_file() and any(word in path.read_bytes().lower() for word in WORDS)
    ]


@pytest.fixture
def session(place, tmp_path, monkeypatch):
    """A transcript of OpenClaw that is searched."""
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(tmp_path / "state"))
    place.configure(
        sources=["memory", "sessions"],
        experimental={"sessionMemory": True},
        **remote(place.memory["remote"]["baseUrl"]),
    )
    (place.workspace / "memory/doors.md").unlink()
    file = sessions_folder(tmp_path / "state") / "abc.jsonl"
    file.write_text(opening() + said("user", SECRET) + said("assistant", "Noted: frobnitz."))
    place.index()
    assert paths(place.search("frobnitz"))[0] == "sessions/abc.jsonl"
    return file


def test_no_byte_of_forgotten_words_is_in_the_index_its_wal_or_the_note(place):
    assert files_with(place.home)
    others = [each for each in place.contents().chunks if each[0] != "memory/doors.md"]

    done = forget(place.agent, targets_of_path(place.agent, "memory/doors.md#L5"))

    assert files_with(place.home) == files_with(place.workspace) == []
    assert (done.lines, done.vectors, done.out_of_reach) == (1, 1, ())
    assert (place.workspace / "memory/doors.md").read_text().split("\n")[:5] == [*LINES[:4], ""]
    place.index()
    assert paths(place.search("attic"))[0] == "memory/doors.md"
    assert [each for each in place.contents().chunks if each[0] != "memory/doors.md"] == others


def test_a_whole_note_goes_with_its_vector_and_what_was_deleted_by_hand_since(place):
    vectors = [row[0] for row in place.rows("SELECT embedding FROM vectors")]
    place.write("memory/doors.md", "# Doors\n\nCurtains.\n")
    place.index()
    assert len(place.rows("SELECT 1 FROM vectors WHERE active = 0")) == 1

    forget(place.agent, targets_of_path(place.agent, "memory/doors.md"))

    assert not (place.workspace / "memory/doors.md").exists()
    assert files_with(place.home) == []
    gone = [each for each in vectors if (each,) not in place.rows("SELECT embedding FROM vectors")]
    assert len(gone) == 1
    assert gone[0] not in place.index_path.read_bytes()


def test_a_note_that_was_deleted_is_forgotten_by_its_path(place):
    (place.workspace / "memory/doors.md").unlink()

    assert place.call("forget", "memory/doors.md", "--yes").status == 0

    assert files_with(place.home) == []
    assert place.call("forget", "memory/doors.md", "--yes").status == 1


def test_a_note_that_cannot_be_changed_stops_it_before_any_other_is(place):
    place.write("memory/zebra.md", "# Zebra\n\nquixotzalp\n".encode("utf-16"))
    place.index()
    before = place.contents()

    with pytest.raises(MemlineError, match=r"zebra\.md is not UTF-8"):
        forget(place.agent, targets_of_query(place.agent, "quixotzalp"))

    assert place.contents() == before
    assert SECRET in (place.workspace / "memory/doors.md").read_text()


def test_a_query_takes_each_line_with_all_its_words_as_they_are_written(place):
    place.write("memory/more.md", "The CODE of the door.\nA code.\nEncoded doors, a code.\nThe door codes.\n")
    place.write("notes.txt", "The door code.\n")

    found = [str(each) for each in targets_of_query(place.agent, "door code")]
    together = [str(each) for each in targets_of_query(place.agent, '"door code"')]

    assert found == ["memory/doors.md#L5", "memory/more.md#L1"]
    assert together == ["memory/doors.md#L5"]
    assert targets_of_query(place.agent, "door nothing") == targets_of_query(place.agent, '""') == []


def test_a_query_names_the_notes_that_it_could_not_read(place):
    place.write("memory/odd.md", b"quixotzalp\0\n" * 9)

    said = place.call("forget", "--query", "quixotzalp", "--dry-run")

    assert "memory/odd.md cannot be read, and may contain it: contains NUL bytes" in said.stderr
    assert "memory/doors.md#L5" in said.stdout


def test_dated_notes_go_by_their_day(place):
    place.write("memory/2024-05-01.md", "An owl.\n")
    place.write("memory/2026-05-01.md", "A swan.\n")

    found = [str(each) for each in targets_before(place.agent, date(2025, 1, 1))]

    assert found == ["memory/2024-05-01.md#L1"]


def test_what_is_read_before_comes_too_late(place):
    early = FileReader(place.agent, clock=SystemClock()).read("memory/doors.md", entry=None)

    forget(place.agent, targets_of_path(place.agent, "memory/doors.md#L5"))
    with closing(IndexWriter.of(place.agent)) as writer:
        kind = writer.store_file(early)

    assert kind == "late"
    assert files_with(place.home) == []


def test_files_of_the_home_with_the_line_are_named_and_stay(place):
    back_up([place.agent], None)
    log = place.home / "up.log"
    log.write_text(f"12:01 {SECRET}\n12:02 fine\n")

    done = place.call("forget", "memory/doors.md#L5", "--yes", "--json")

    assert done.json["outOfReach"] == [str(place.home / "backups" / "main.sqlite"), str(log)]
    assert files_with(place.home) == ["main.sqlite", "up.log"]
    assert SECRET in log.read_text()
    assert files_with(place.index_path.parent) == []


def test_an_open_batch_with_the_text_is_named(place, server):
    place.configure(**remote(server.url, batch=BATCH))
    server.control({"batch": {"looks": 1_000}})
    place.write("memory/doors.md", "\n".join([*LINES, "More of it."]) + "\n")
    place.write("memory/other.md", "# Other\n\nAnother.\n")
    place.index()
    ((token, file),) = place.rows("SELECT token, file_id FROM batches")

    done = place.call("forget", "memory/doors.md#L5", "--yes", "--json")

    assert done.json["atProvider"] == [f"{token[:8]} at openai, file {file}"]


def test_a_log_that_a_reader_holds_is_told(place):
    writing = driver.open_writer(place.index_path, busy_timeout_ms=100)
    with closing(driver.open_reader(place.index_path)) as reader, driver.snapshot(reader):
        chunks.count(reader)
        with closing(writing), pytest.raises(MemlineError, match="reads an old state"):
            maintenance.erase(writing, wait_s=0)

    place.call("forget", "memory/doors.md#L5", "--yes")

    assert files_with(place.home) == []


def test_a_log_is_emptied_after_the_checkpoint_of_another_process(place):
    # SQLite's lock for a checkpoint is this byte.
    code = "import fcntl, sys, time; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 121)"
    other = [sys.executable, "-c", f"{code}; print(flush=True); time.sleep(0.5)", f"{place.index_path}-shm"]
    with closing(driver.open_writer(place.index_path)) as writing:
        chunks.count(writing)
        with subprocess.Popen(other, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            maintenance.erase(writing)

    place.call("forget", "memory/doors.md#L5", "--yes")
    assert files_with(place.home) == []


@pytest.mark.parametrize("way", ["path", "session", "query"])
def test_a_session_is_barred_for_good_also_from_a_new_index(place, session, way):
    words = {
        "path": ["sessions/abc.jsonl"],
        "session": ["--session", "abc"],
        "query": ["--query", "quixotzalp"],
    }[way]

    done = place.call("forget", *words, "--yes")

    assert done.status == 0, done.stderr
    assert SECRET in session.read_text()
    assert files_with(place.home) == []
    with session.open("a") as file:
        file.write(said("user", "And the vexahedral window."))
    place.index()
    assert files_with(place.home) == []
    place.index_path.unlink()
    place.index(force=True)
    assert files_with(place.home) == []
    assert place.call("forget", "sessions/abc.jsonl", "--yes").status == 1


def test_it_lists_and_asks_and_refuses_what_is_odd(place):
    listed = place.call("forget", "--query", "quixotzalp", "--dry-run")
    asked = place.call("forget", "memory/doors.md#L5")
    nothing = place.call("forget", "--query", "kumquat", "--yes")
    two = place.call("forget", "memory/doors.md", "--query", "x", "--yes")

    assert listed.stdout == f"  memory/doors.md#L5  {SECRET}\n"
    assert json.loads(place.call("forget", "--query", "quixotzalp", "--dry-run", "--json").stdout) == {
        "agentId": "main",
        "wouldForget": ["memory/doors.md#L5"],
    }
    assert (asked.status, nothing.status, two.status) == (1, 1, 2) or asked.status == 2
    assert SECRET in (place.workspace / "memory/doors.md").read_text()
    for odd in ("../secret.md", "/etc/passwd"):
        with pytest.raises(PathNotAllowed):
            targets_of_path(place.agent, odd)
    with pytest.raises(BadRequest):
        targets_of_path(place.agent, "sessions/abc.jsonl#L5")


@pytest.mark.parametrize(
    ("cited", "words"),
    [
        ("memory/nope.md", "there is no note memory/nope.md"),
        ("memory/doors.md#L9", "memory/doors.md has 7 lines of text"),
        ("sessions/nope.jsonl", "there is no session sessions/nope.jsonl"),
    ],
)
def test_what_is_not_there_is_named(place, cited, words):
    said = place.call("forget", cited, "--yes")

    assert (said.status, words in said.stderr) == (1, True), said.stderr
