"""What is forgotten is in no file of the home, WAL included, and nothing that comes late brings it back."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path

import msgspec
import pytest

from memline.producers.actions.forget import forget
from memline.producers.actions.forget_home import AUDIT
from memline.producers.actions.forget_targets import (
    targets_before,
    targets_of_path,
    targets_of_query,
)
from memline.producers.memory import Memory
from memline.shared.clock import SystemClock
from memline.shared.errors import ConfigError, IndexUnwritable, MemlineError, PathNotAllowed
from memline.shared.index import driver, identities, jobs, meta
from memline.shared.index.rows import FileRow, LearnedCaps, VectorRow
from memline.shared.index_writer import IndexWriter
from memline.shared.queue import redis_client
from memline.shared.sources.append import local_time, log_path
from memline.shared.sync.read_file import FileReader
from tests.support.embedding_server import EmbeddingServer
from tests.support.process import end, running_memline
from tests.support.redis_server import RedisServer
from tests.support.transcripts import opening, said, sessions_folder
from tests.support.workspace import Place, outside_reader, paths, remote, until

#: No other text has any of these words, nor one that is stemmed to the same.
SECRET = "The quixotzalp door code is 8841-frobnitz-vexahedral."
WORDS = (b"quixotzalp", b"frobnitz", b"vexahedr", b"8841-f")
LINES = ["# Doors", "", "The garden gate is green.", "", SECRET, "", "The attic is empty."]

pytestmark = pytest.mark.place(
    server={}, files={"memory/doors.md": "\n".join(LINES) + "\n"}, notes=3, is_indexed=True
)

SHORT = "PIN 8841-frobnitz"
APPENDER = """
import select, sys
with open(sys.argv[1], "a", buffering=1) as log:
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        number += 1
        log.write(f"line {number}\\n")
    print(number)
"""


def files_with(folder: Path, words: tuple[bytes, ...] = WORDS) -> list[str]:
    """The files below a folder that hold any of the words, whatever SQLite makes of upper and lower case."""
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and any(word in path.read_bytes().lower() for word in words)
    ]


def forget_line(place: Place, **options: object) -> None:
    forget(place.agent, targets_of_path(place.agent, "memory/doors.md#L5"), **options)  # type: ignore[arg-type]


def read_note(place: Place) -> FileRow:
    """What a chunk worker sends of the note now."""
    return FileReader(place.agent, clock=SystemClock()).read("memory/doors.md", entry=None)


def test_a_note_that_cannot_be_changed_stops_it_before_any_other_is(place: Place) -> None:
    place.write("memory/zebra.md", "# Zebra\n\nquixotzalp\n".encode("utf-16"))
    place.index()
    before = place.contents()

    with pytest.raises(MemlineError, match=r"zebra\.md is not UTF-8") as refused:
        forget(place.agent, targets_of_query(place.agent, "quixotzalp"))

    assert "--keep-note" in refused.value.hint
    assert place.contents() == before
    assert place.call("forget", "--list").stdout == "Nothing was forgotten.\n"


def test_a_forgotten_line_is_in_no_file_and_the_rest_of_its_note_is_found(place: Place) -> None:
    assert files_with(place.home)
    others = place.contents()

    forget_line(place)

    assert files_with(place.home) == files_with(place.workspace) == []
    assert (place.workspace / "memory/doors.md").read_text().split("\n")[:5] == [*LINES[:4], ""]
    place.index()
    assert paths(place.search("quixotzalp")) != ["memory/doors.md"]
    assert paths(place.search("attic"))[0] == "memory/doors.md"
    after = place.contents()
    assert [each for each in after.chunks if each[0] != "memory/doors.md"] == [
        each for each in others.chunks if each[0] != "memory/doors.md"
    ]
    assert place.status()["forgotten"] == 1
    audit = (place.home / AUDIT).read_text()
    assert json.loads(audit)["forgotten"] == ["memory/doors.md#L5-L5"]
    assert not any(word in audit.encode() for word in WORDS)


def test_a_whole_note_is_forgotten_with_its_vector(place: Place) -> None:
    vectors = [row[0] for row in place.rows(f"SELECT embedding FROM vectors WHERE text_hash IN ({OF_DOORS})")]
    assert len(vectors) == 1
    holders = [p for p in place.home.rglob("*") if p.is_file() and vectors[0] in p.read_bytes()]
    assert holders

    forget(place.agent, targets_of_path(place.agent, "memory/doors.md"))

    assert not (place.workspace / "memory/doors.md").exists()
    assert files_with(place.home) == []
    assert not [p for p in place.home.rglob("*") if p.is_file() and vectors[0] in p.read_bytes()]
    assert place.index().files["removed"] == 0


OF_DOORS = "SELECT text_hash FROM chunks JOIN files ON files.id = file_id WHERE path = 'memory/doors.md'"


def test_a_kept_note_stays_and_its_lines_do_not_come_back(place: Place, server: EmbeddingServer) -> None:
    forget_line(place, keep_note=True)
    assert SECRET in (place.workspace / "memory/doors.md").read_text()
    assert files_with(place.home) == []

    unchanged = place.index()
    forced = place.index(force=True)
    place.write("memory/doors.md", "\n".join(["# Doors", "", "New first line.", "", *LINES[2:]]) + "\n")
    edited = place.index()

    assert unchanged.files["changed"] == 0
    assert forced.failures == edited.failures == []
    assert files_with(place.home) == []
    hit = place.search("attic").hits[0]
    assert hit.path == "memory/doors.md"
    assert place.rows(f"SELECT count(*) FROM chunks WHERE text LIKE '%{SECRET}%'") == [(0,)]


def test_a_new_text_under_the_same_name_is_indexed(place: Place) -> None:
    forget(place.agent, targets_of_path(place.agent, "memory/doors.md"))

    place.write("memory/doors.md", "# Doors\n\nNothing but curtains.\n")
    place.index()

    assert paths(place.search("curtains"))[0] == "memory/doors.md"


def test_the_same_text_written_again_on_purpose_is_indexed(place: Place) -> None:
    forget(place.agent, targets_of_path(place.agent, "memory/doors.md"))

    place.write("memory/doors.md", "\n".join(LINES) + "\n")
    report = place.index()

    assert paths(place.search("quixotzalp"))[0] == "memory/doors.md"
    assert (report.vectors["embedded"], report.vectors["pending"]) == (1, 0)


@pytest.mark.parametrize("keep", [False, True])
def test_a_late_message_does_not_bring_it_back(place: Place, keep: bool) -> None:
    late = read_note(place)

    forget_line(place, keep_note=keep)
    with closing(IndexWriter.of(place.agent)) as writer:
        kind = writer.store_file(late)

    assert kind == "late"
    assert place.rows(f"SELECT count(*) FROM chunks WHERE text LIKE '%{SECRET}%'") == [(0,)]


def test_a_worker_that_read_the_list_before_does_not_bring_it_back(place: Place) -> None:
    """It looks at the kept note after it was forgotten, with the list of before."""
    forget_line(place, keep_note=True)
    row = read_note(place)
    assert any(SECRET in chunk.text for chunk in row.chunks or ())

    with closing(IndexWriter.of(place.agent)) as writer:
        writer.store_file(row)

    assert place.rows(f"SELECT count(*) FROM chunks WHERE text LIKE '%{SECRET}%'") == [(0,)]


def test_a_late_result_is_not_kept(place: Place) -> None:
    with closing(IndexWriter.of(place.agent)) as writer:
        ((digest, vector),) = writer.connection.execute(
            f"SELECT text_hash, embedding FROM vectors WHERE text_hash IN ({OF_DOORS})"
        ).fetchall()
        forget_line(place)
        target = identities.target(writer.connection)
        assert target is not None
        rows = [VectorRow(hash=digest, vector=vector)]
        writer.store_vectors(target.identity, "lease of a batch", rows, LearnedCaps())

    assert place.rows("SELECT count(*) FROM vectors WHERE text_hash = ?", digest) == [(0,)]


def test_what_a_provider_said_of_it_is_forgotten_too(place: Place, server: EmbeddingServer) -> None:
    """A refusal may quote the text, and is kept beside every text of its request and with the provider."""
    place.write("memory/other.md", "# Other\n\nA text of the same request.\n")
    place.index()
    said = f"400 cannot read '{SECRET}'"
    place.execute(
        "UPDATE vectors SET state = 'failed', error = ?, due = 9e9 WHERE text_hash IN"
        " (SELECT text_hash FROM chunks WHERE text LIKE '%same request%')",
        said,
    )
    place.execute_accounts(
        f"INSERT INTO health (account, mode, reason) VALUES ('openai:x', 'batch', \"{said}\")"
    )
    assert files_with(place.home) == ["accounts.sqlite", "memory/main.sqlite"]

    forget_line(place)

    assert files_with(place.home) == []
    assert place.vector_states()["failed"] == 1


def test_failed_messages_about_it_are_dropped_and_others_stay(place: Place, tmp_path: Path) -> None:
    """By a line of it, by the hash that its vector goes by, and by the path of the file."""
    digest = place.rows(f"SELECT text_hash FROM vectors WHERE text_hash IN ({OF_DOORS})")[0][0]
    letters = {
        "text": SECRET.encode(),
        "vector": digest,
        "path": b"memory/doors.md",
        "other": b"} # memory/x.md",
    }
    with RedisServer(tmp_path / "redis") as server, redis_client.connected(server.url) as client:
        dead = redis_client.key(client, "store.XQ")
        for name, content in letters.items():
            client.zadd(dead, {name: 1})
            client.hset(f"{dead}.msgs", name, msgspec.msgpack.encode({"args": [content]}))

        forget(place.agent, targets_of_path(place.agent, "memory/doors.md"), queue_address=server.url)

        assert client.zrange(dead, 0, -1) == [b"other"]
        assert client.hkeys(f"{dead}.msgs") == [b"other"]


def test_what_jobs_keep_of_it_are_paths(place: Place) -> None:
    with closing(IndexWriter.of(place.agent)) as writer, writer.transaction() as (connection, _):
        jobs.create(connection, jobs.REINDEX, by="me@host", now_ns=1, files=[("memory/doors.md", 1)])

    forget_line(place)

    assert ("me@host",) in place.rows("SELECT asked_by FROM jobs")
    assert files_with(place.home) == []


def test_a_log_loses_no_line_that_another_process_adds_while_it_is_cleaned(place: Place) -> None:
    log = place.home / "up.log"
    log.write_text(f"odd: {SECRET}\n" * 20_000)
    before = log.stat()
    with subprocess.Popen(
        [sys.executable, "-c", APPENDER, str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as appender:
        until(lambda: log.stat().st_size > before.st_size, "a line of the other process")

        forget_line(place)

        written = int(appender.communicate()[0])
    lines = log.read_text().splitlines()
    assert lines[:20_000] == [f"odd: {'*' * len(SECRET)}"] * 20_000
    assert lines[20_000:] == [f"line {number + 1}" for number in range(written)]
    assert log.stat().st_ino == before.st_ino


def test_a_backup_of_the_note_goes_outside_of_the_home_and_of_the_notes(place: Place, tmp_path: Path) -> None:
    forget_line(place, backup=tmp_path / "attic")

    assert SECRET in (tmp_path / "attic/memory/doors.md").read_text()
    with pytest.raises(ConfigError):
        forget_line(place, backup=place.home / "attic")
    with pytest.raises(ConfigError, match="the copy would be found"):
        forget_line(place, backup=place.workspace / "memory/attic")


def test_the_index_of_another_agent_that_has_it_is_named(place: Place) -> None:
    shutil.copytree(place.workspace, f"{place.workspace}-other")
    place.call("--agent", "other", "index", "--new-agent")
    (other,) = place.index_path.parent.glob("other*.sqlite")

    ran = place.call("forget", "--query", "quixotzalp", "--keep-note", "--yes")
    again = place.call("--agent", "other", "forget", "--query", "quixotzalp", "--keep-note", "--yes")

    assert f"  another agent or workspace still has it: {other}\n" in ran.stdout
    assert "another agent" not in again.stdout


@pytest.mark.parametrize(
    ("cited", "why"),
    [
        ("memory/nosuch.md", r"there is no note memory/nosuch\.md\.\nTry: memline .*search QUERY"),
        ("memory/DOORS.md", r"there is no note memory/DOORS\.md\.\nTry: memline .*forget memory/doors\.md"),
        (
            "memory/nul.md",
            r"memory/nul\.md is on the disk and was not read: contains NUL bytes\.\nTry: rm .*",
        ),
        ("memory/doors.md#L99", r"memory/doors\.md has \d lines\."),
        ("memory/doors.md#L0", r"memory/doors\.md has \d lines\."),
        ("memory/empty.md", r"memory/empty\.md is empty\."),
        ("sessions/nosuch.jsonl", r"there is no transcript sessions/nosuch\.jsonl\.\nTry: .*"),
    ],
)
def test_what_has_nothing_to_be_forgotten_says_why(place: Place, cited: str, why: str) -> None:
    place.write("memory/nul.md", "a\0b")
    place.write("memory/empty.md", "")
    place.index()

    ran = place.call("forget", cited, "--yes")

    assert (ran.status, ran.stdout) == (1, "")
    assert re.fullmatch(f"Nothing to forget: {why}\n", ran.stderr)


def test_with_up_running_it_is_in_no_file_and_up_goes_on(place: Place) -> None:
    """A long-lived reader, its cache and the writer of `up` have the index open."""
    place.configure(sync={"watchDebounceMs": 20}, **remote(place.memory["remote"]["baseUrl"]))
    with Memory.of(place.settings, place.agent, long_lived=True) as memory:
        assert paths(memory.search("quixotzalp"))[0] == "memory/doors.md"
        with running_memline(*place.arguments("up")) as running:
            place.write("memory/new.md", f"# New\n\n{SECRET}\n")
            until(lambda: "memory/new.md" in place.outcomes(), "the new note")
            first = place.run("forget", "memory/doors.md#L5", "--yes")
            second = place.run("forget", "memory/new.md", "--yes", "--json")
            assert place.run("forget", "memory/new.md", "--yes").status == 1
            found = [path for path in place.home.rglob("*") if path.name.startswith("main.sqlite")]
            assert len(found) >= 2
            in_files = outside_reader(place.home, "|".join(word.decode() for word in WORDS))
            place.write("memory/later.md", "# Later\n\nxyzzy\n")
            until(lambda: "memory/later.md" in place.outcomes(), "a note after it")
            end(running)
        assert not any("quixotzalp" in hit.snippet for hit in memory.search("quixotzalp").hits)

    assert first.status == 0, first.stderr
    assert second.status == 0, second.stderr
    assert "the same text" not in first.stdout
    assert in_files == ""
    assert files_with(place.home) == []
    place.index()
    place.contents()


def edits_of(place: Place, number: int) -> None:
    """Index the note so many times, each with other words around the secret."""
    for edit in range(number):
        place.write("memory/doors.md", f"# Doors\n\nEdit {edit}. {SECRET}\n\nThe attic has {edit} boxes.\n")
        place.index()


@pytest.mark.parametrize("change", ["deleted", "edited"])
def test_the_next_index_erases_what_its_owner_took_out_of_a_note(place: Place, change: str) -> None:
    """From rows, free pages, full text and the log of the index; with the cache on, its vector is left."""
    edits_of(place, 3)
    assert files_with(place.home)

    if change == "deleted":
        (place.workspace / "memory/doors.md").unlink()
    else:
        place.write("memory/doors.md", "# Doors\n\nThe garden gate is green.\n")
    place.index()

    assert files_with(place.home) == []
    place.contents()


def test_a_sweep_erases_too_and_so_does_what_comes_after_a_kill(place: Place) -> None:
    place.write("memory/doors.md", "# Doors\n\nNothing.\n")
    with closing(IndexWriter.of(place.agent)) as writer:
        # A search that stores the change, and is killed before anything is erased.
        writer.store_file(read_note(place))
        in_files = outside_reader(place.home, "|".join(word.decode() for word in WORDS))
        assert "main.sqlite" in in_files

        writer.sweep()

        assert outside_reader(place.home, "|".join(word.decode() for word in WORDS)) == ""


def test_what_a_full_disk_left_unfinished_is_said_and_erased_by_the_next_run(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise IndexUnwritable("cannot write the index x: the disk is full; nothing was half-written")

    with monkeypatch.context() as disk:
        disk.setattr("memline.shared.index.erase.erase", full)
        with pytest.raises(IndexUnwritable) as error:
            forget(place.agent, targets_of_path(place.agent, "memory/doors.md"))
    again = place.call("forget", "memory/doors.md", "--yes")
    place.index()

    assert error.value.message.startswith("not all is forgotten, and lines may be out of their note already")
    assert error.value.message.endswith("the disk is full")
    assert not (place.workspace / "memory/doors.md").exists()
    assert again.stderr.endswith(" index\n")
    assert files_with(place.home) == []


def test_an_index_of_before_is_erased_as_a_whole_once(place: Place) -> None:
    """Its free pages have what an older release deleted."""
    with closing(driver.open_writer(place.index_path)) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("CREATE TABLE old (text TEXT)")
        connection.executemany("INSERT INTO old VALUES (?)", [(f"{SECRET} {n}" * 50,) for n in range(50)])
        connection.execute("DROP TABLE old")
        connection.execute("DELETE FROM chunks_fts_config WHERE k = 'none'")
        meta.put(connection, meta.TO_ERASE, meta.ALL)
    place.write("memory/doors.md", "# Doors\n")

    place.index()

    assert files_with(place.home) == []
    assert place.rows("SELECT value FROM meta WHERE key = 'to_erase'") == []


def test_a_reader_that_holds_the_log_is_named_by_status_until_it_ends(place: Place) -> None:
    with closing(driver.open_reader(place.index_path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM chunks").fetchone()
        place.write("memory/doors.md", "# Doors\n\nNothing.\n")
        report = place.index()
        held = place.call("status")
        reader.execute("COMMIT")
    assert report.failures == []
    assert "deleted text is still in the log" in held.stdout + held.stderr

    # Nothing else has run since.
    over = place.call("status")

    assert "deleted text" not in over.stdout + over.stderr
    assert place.rows("SELECT value FROM meta WHERE key IN ('log_held', 'to_erase')") == []
    assert files_with(place.home) == []


def test_cached_vectors_of_what_a_note_was_before_are_forgotten_with_it(place: Place) -> None:
    edits_of(place, 14)
    former = "SELECT count(*) FROM vectors WHERE active = 0 AND state = 'ready'"
    assert place.rows(former) == [(14,)]

    done = place.call("forget", "memory/doors.md", "--yes", "--json")

    assert done.json["vectors"] == 15
    assert place.rows(former) == [(0,)]
    assert place.rows("SELECT count(*) FROM former_texts") == [(0,)]


def test_a_note_that_its_owner_deleted_is_forgotten_with_its_vectors(place: Place) -> None:
    edits_of(place, 2)
    (place.workspace / "memory/doors.md").rename(place.workspace / "memory/gates.md")
    place.index()
    (place.workspace / "memory/gates.md").unlink()
    place.index()

    done = place.call("forget", "memory/gates.md", "--yes", "--json")
    again = place.call("forget", "memory/gates.md", "--yes")

    # Of both names.
    assert (done.status, done.json["vectors"]) == (0, 3)
    assert place.rows("SELECT count(*) FROM vectors WHERE active = 0") == [(0,)]
    assert again.status == 1
    assert "nothing but hashes is left" in again.stderr


def test_what_is_kept_of_an_emptied_root_is_forgotten_at_once(place: Place) -> None:
    for number in range(5):
        place.write(f"memory/more-{number}.md", f"# More {number}\n")
    place.index()
    shutil.rmtree(place.workspace / "memory")
    assert paths(place.search("quixotzalp"))[0] == "memory/doors.md"

    done = place.call("forget", "memory/doors.md", "--yes")

    assert done.status == 0, done.stderr
    assert files_with(place.home) == []
    assert "memory/doors.md" not in place.outcomes()
    assert "memory/more-0.md" in place.outcomes()


GATE_OPENS, GATE_CODE = "The quixotzalp gate opens at nine.", "quixotzalp 8841"


def test_a_line_of_a_kept_note_stays_forgotten_under_another_name(place: Place) -> None:
    """A long one is known by its text, a short one by the file in which it stands."""
    place.write("memory/doors.md", f"# Doors\n\n{SECRET}\n{SHORT}\n\nThe attic is empty.\n")
    place.write("memory/other.md", f"# Other\n\n{SHORT}\n")
    place.index()
    forget(place.agent, targets_of_path(place.agent, "memory/doors.md#L3-L4"), keep_note=True)
    note = (place.workspace / "memory/doors.md").rename(place.workspace / "memory/gates.md")

    before = place.call("get", "memory/gates.md").stdout
    place.index()
    note.write_text(note.read_text() + "One more line.\n")
    place.index()
    after = place.call("get", "memory/gates.md", "--json").json["text"]

    assert before == "# Doors\n\n[forgotten]\n[forgotten]\n\nThe attic is empty.\n"
    assert after.split("\n")[2:] == [
        "[forgotten]",
        "[forgotten]",
        "",
        "The attic is empty.",
        "One more line.",
    ]
    assert "memory/gates.md" in paths(place.search("attic"))
    found = place.rows("SELECT path FROM chunks JOIN files ON files.id = file_id WHERE text LIKE '%8841%'")
    # A short line is another note's own.
    assert found == [("memory/other.md",)]
    assert SHORT in place.call("get", "memory/other.md").stdout


def test_a_long_line_that_also_stands_in_another_note_is_forgotten_there_too(place: Place) -> None:
    place.write("memory/copy.md", f"# Copy\n\nAnd again:\n{SECRET}\n")
    place.index()

    done = place.call("forget", "memory/doors.md#L5", "--keep-note", "--yes")
    place.write("memory/later.md", f"# Later\n\n{SECRET}\n")
    place.index()

    assert done.status == 0
    assert files_with(place.home) == []
    assert place.call("get", "memory/later.md").stdout == "# Later\n\n[forgotten]\n"


def test_the_list_has_path_and_day_and_one_is_taken_off_it(place: Place) -> None:
    forget_line(place, keep_note=True)

    listed = place.call("forget", "--list")
    numbered = place.call("forget", "--list", "--json").json
    wrong = place.call("forget", "--undo", "2")
    undone = place.call("forget", "--undo", "1")
    place.index()

    assert listed.stdout.split()[::2] == ["1", "memory/doors.md"]
    assert not any(word in listed.stdout.encode() for word in WORDS)
    assert [(each["number"], each["path"]) for each in numbered] == [(1, "memory/doors.md")]
    assert wrong.status == 2
    assert undone.status == 0
    assert "Try: " in undone.stderr and undone.stderr.endswith(" index\n")
    assert paths(place.search("quixotzalp"))[0] == "memory/doors.md"
    assert SECRET in place.call("get", "memory/doors.md").stdout
    assert place.call("forget", "--list").stdout == "Nothing was forgotten.\n"


def test_taking_one_off_says_that_the_numbers_behind_it_move_up(place: Place) -> None:
    forget_line(place)
    forget(place.agent, targets_of_path(place.agent, "memory/doors.md#L3"))

    first, last = (place.call("forget", "--undo", "1").stdout for _ in range(2))

    assert "The numbers behind it are one less now." in first
    assert "numbers" not in last


def test_taking_off_what_was_taken_out_of_a_note_advises_no_run_that_brings_nothing(place: Place) -> None:
    forget_line(place)

    undone = place.call("forget", "--undo", "1")

    assert (undone.status, undone.stderr) == (0, "")
    assert "is back once you put it there again" in undone.stdout


def test_a_line_of_a_note_that_was_renamed_stands_on_the_list_once_and_is_taken_off_whole(
    place: Place,
) -> None:
    place.write("memory/short.md", f"# Short\n\nThe fence is green.\n{SHORT}\n")
    place.index()
    place.call("forget", "memory/short.md#L4", "--keep-note", "--yes")
    for before, after in (("short", "shorter"), ("shorter", "shortest")):
        (place.workspace / f"memory/{before}.md").rename(place.workspace / f"memory/{after}.md")
        place.index()

    listed = place.call("forget", "--list", "--json").json
    place.call("forget", "--undo", "1")
    place.index()

    assert [each["path"] for each in listed] == ["memory/shortest.md"]
    assert place.call("forget", "--list").stdout == "Nothing was forgotten.\n"
    assert SHORT in place.call("get", "memory/shortest.md").stdout


def test_what_was_forgotten_is_not_in_the_context_of_a_session(place: Place) -> None:
    name = log_path(local_time(SystemClock().now(), "").date())
    place.write(name, f"# Today\n\n{SECRET}\n")
    place.index()

    forget(place.agent, targets_of_path(place.agent, f"{name}#L3"), keep_note=True)

    assert "[forgotten]" in place.call("context").stdout
    assert "quixotzalp" not in place.call("context", "--json").stdout


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(tmp_path / "state"))
    yield sessions_folder(tmp_path / "state")


def test_a_session_goes_as_a_whole_and_is_back_once_it_is_off_the_list(sessions: Path, place: Place) -> None:
    place.configure(sources=["memory", "sessions"], experimental={"sessionMemory": True}, provider="none")
    (sessions / "abc.jsonl").write_text(opening() + said("user", "The kudu is ill."))
    place.index()

    part = place.call("forget", "sessions/abc.jsonl#L2", "--yes")
    whole = place.call("forget", "sessions/abc.jsonl", "--yes")
    gone = paths(place.search("kudu"))
    unread = place.call("get", "sessions/abc.jsonl")
    place.call("forget", "--undo", "1")
    place.index()

    assert part.status == 2
    assert part.stderr.endswith(" forget sessions/abc.jsonl\n")
    assert (whole.status, gone) == (0, [])
    assert "there is no such past conversation in the index" in unread.stderr
    assert paths(place.search("kudu")) == ["sessions/abc.jsonl"]


def test_old_notes_and_sessions_are_named_by_their_day(sessions: Path, place: Place) -> None:
    place.configure(sources=["memory", "sessions"], experimental={"sessionMemory": True}, provider="none")
    place.write("memory/2025-12-31.md", "# Old\n\nyesteryear\n")
    place.write("memory/2026-02-01.md", "# New\n\ntoday\n")
    place.write("memory/plan.md", "---\ndate: 2025-06-01\n---\nold, by its front matter\n")
    place.write("memory/2025-05-05.md", "---\ndate: 2026-03-01\n---\nnew, whatever its name\n")
    (sessions / "abc.jsonl").write_text(opening() + said("user", "Hello.", at="2025-06-01T10:00:00.000Z"))
    place.index()

    found = targets_before(place.agent, date(2026, 1, 1))

    named = ["memory/2025-12-31.md#L1-L3", "memory/plan.md#L1-L4", "sessions/abc.jsonl"]
    assert [str(target) for target in found] == named


QUESTIONS = {
    "all words, in other forms, on one line": ("door codes", ["memory/doors.md#L5-L5"]),
    "not the lines that hold some of them": ("green door code", []),
    "a sentence over two lines": ("blue cellar key", ["memory/wrapped.md#L3-L4"]),
    "every line that holds them": ("attic", ["memory/doors.md#L7-L7", "memory/wrapped.md#L6-L6"]),
    "an id is one word": ("8841-frobnitz-vexahedral", ["memory/doors.md#L5-L5"]),
    "part of an id": ("8841-frobnitz", []),
    "a word in no note": ("door code zanzibar", []),
    "nothing to look for": ("?!", []),
    "a line of a note that is not indexed yet": ("parrot", ["memory/new.md#L2-L2"]),
}


@pytest.mark.parametrize(("query", "expected"), QUESTIONS.values(), ids=QUESTIONS)
def test_a_query_names_only_the_lines_that_hold_all_its_words(
    place: Place, query: str, expected: list[str]
) -> None:
    place.write("memory/wrapped.md", "# Keys\n\nThe key of the\nblue cellar is lost.\n\nMind the attic.\n")
    place.write("memory/new.md", "# New\nThe parrot moved.\n")
    place.index()
    place.write("memory/new.md", "# New\nThe parrot moved in.\n")

    assert [str(target) for target in targets_of_query(place.agent, query)] == expected


def test_lines_that_moved_since_the_index_was_made_are_named_where_they_are(place: Place) -> None:
    place.write("memory/doors.md", "\n".join(["An older line.", *LINES]) + "\n")

    found = place.call("forget", "--query", "door code", "--dry-run", "--json")
    nothing = place.call("forget", "--query", "green door code", "--yes")

    assert found.json["wouldForget"] == ["memory/doors.md#L6-L6"]
    assert nothing.status == 1
    assert " forget PATH#L5" in nothing.stderr


@pytest.mark.parametrize("path", ["../x.md", "/etc/passwd", "notes.txt"])
def test_nothing_but_memory_files_can_be_forgotten(place: Place, path: str) -> None:
    with pytest.raises(PathNotAllowed):
        targets_of_path(place.agent, path)


def test_the_command_lists_asks_and_does_nothing_before(place: Place) -> None:
    before = place.contents()

    dry = place.call("forget", "--query", "quixotzalp", "--dry-run", "--json")
    listed = place.call("forget", "--query", "quixotzalp", "--dry-run")
    asked = place.call("forget", "memory/doors.md#L5")
    neither = place.call("forget", "--yes")

    assert dry.json["wouldForget"] == ["memory/doors.md#L5-L5"]
    assert f"memory/doors.md#L5-L5  {SECRET}" in dry.stderr
    assert (listed.stdout, listed.stderr) == (f"  memory/doors.md#L5-L5  {SECRET}\n", "")
    assert asked.status == 2
    assert "memory/doors.md#L5-L5" in asked.stderr
    assert neither.status == 2
    assert place.contents() == before
