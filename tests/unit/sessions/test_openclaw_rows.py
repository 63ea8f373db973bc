"""Sessions that are rows of OpenClaw's database read like files, and not a byte of it changes."""

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from memline.shared.sessions.transcripts import read_session
from tests.support.clock import ManualClock
from tests.support.openclaw_rows import SessionDatabase
from tests.support.transcripts import openclaw_store, opening, said, sessions_folder, talk, tool_result

CLOCK = ManualClock(1_772_000_000)
PATH = "sessions/a.jsonl"


@pytest.fixture
def state(tmp_path):
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def read(store, path=PATH):
    return read_session(store, path, max_tokens=400, overlap_tokens=80, clock=CLOCK)


def fingerprint(folder):
    return {
        file.name: (file.stat().st_mtime_ns, sha256(file.read_bytes()).hexdigest())
        for file in folder.iterdir()
    }


@pytest.mark.parametrize("is_plain", [False, True], ids=["compressed", "plain"])
def test_a_session_reads_like_the_file_of_the_same_lines(state, is_plain):
    lines = opening() + talk(30) + tool_result("x" * 5000) + said("user", "Grüße " * 400) + "{broken\n"
    (sessions_folder(state) / "a.jsonl").write_text(lines)
    as_file = read(openclaw_store(state))
    database = SessionDatabase(state, is_plain=is_plain)
    database.say("a", lines)

    as_rows = read(openclaw_store(state))

    assert len(as_rows.chunks) > 3
    assert (as_rows.chunks, as_rows.digest) == (as_file.chunks, as_file.digest)
    (found,) = openclaw_store(state).discover().files
    assert (found.path, found.size, found.mtime_ns) == (PATH, as_rows.size, as_rows.mtime_ns)


#: Another process that has a session in its log: within one process SQLite shares what it keeps in memory.
_PROGRAM = """
import sys
from pathlib import Path
from tests.support.openclaw_rows import SessionDatabase
database = SessionDatabase(Path(sys.argv[1]))
database.say("a", sys.argv[3])
if sys.argv[2] == "closed":
    database.close()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["open", "closed", "killed"])
def test_reading_changes_no_byte_and_sees_what_is_only_in_the_log(state, how):
    command = [sys.executable, "-c", _PROGRAM, str(state), how, said("user", "Where do pelicans sleep?")]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None and program.stdout.readline() == b"ready\n"
        if how == "killed":
            program.kill()
            program.wait()
        folder = state / "agents/main/agent"
        before = fingerprint(folder)

        store = openclaw_store(state)
        found = store.discover()
        chunks = read(store).chunks

        assert [file.path for file in found.files] == [PATH] and "pelicans" in chunks[0].text
        assert fingerprint(folder) == before
        program.kill()


def test_rows_that_are_damaged_take_their_place_and_say_nothing(state):
    database = SessionDatabase(state)
    database.say("a", said("user", "one") + said("user", "x" * 3000) * 2 + said("user", "last"))
    database.damage(1, b"\0", size=1 << 50)
    database.damage(2, b"\x28\xb5\x2f\xfd")

    part = read(openclaw_store(state))

    assert [chunk.text for chunk in part.chunks] == ["User: one\nUser: last"]
    assert part.chunks[0].end_line == 4
    assert part.reason == "no valid record on 2 lines, left out"


def test_sessions_that_openclaw_forgot_or_put_away_are_not_read(state):
    database = SessionDatabase(state)
    for session in ("a", "b", "../x", "n\0ul", "y" * 300):
        database.say(session, said("user", "hello"))
    database.note("memory_session_tombstones", "b")

    found = openclaw_store(state).discover()

    assert [file.path for file in found.files] == [PATH]


def test_a_database_that_cannot_be_read_is_an_issue(state):
    database = SessionDatabase(state)
    database.say("a", said("user", "hello"))
    database.close()
    database.path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)

    found = openclaw_store(state).discover()

    assert not found.files
    assert found.issues[0].startswith(f"sessions of OpenClaw not readable ({database.path}): ")
    assert read(openclaw_store(state)).outcome == "failed"


def test_a_log_without_its_program_is_not_taken_in_by_us(state):
    database = SessionDatabase(state)
    database.say("a", said("user", "hello"))
    copy = state / "agents/other/agent/openclaw-agent.sqlite"
    copy.parent.mkdir(parents=True)
    for suffix in ("", "-wal"):
        Path(f"{copy}{suffix}").write_bytes(Path(f"{database.path}{suffix}").read_bytes())
    before = fingerprint(copy.parent)

    found = openclaw_store(state, "other").discover()

    assert "has not taken in" in found.issues[0]
    assert fingerprint(copy.parent) == before


def test_files_and_rows_are_one_list_and_rows_win(state):
    folder = sessions_folder(state)
    (folder / "a.jsonl").write_text(said("user", "as a file"))
    (folder / "old.jsonl").write_text(said("user", "old"))
    SessionDatabase(state).say("a", said("user", "as rows"))
    store = openclaw_store(state)

    found = store.discover()

    assert [file.path for file in found.files] == [PATH, "sessions/old.jsonl"]
    assert read(store).chunks[0].text == "User: as rows"
    assert read(store, "sessions/old.jsonl").chunks[0].text == "User: old"
