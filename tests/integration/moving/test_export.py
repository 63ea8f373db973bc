"""Notes and vectors go to another machine in one file: none is paid for again, and nothing is overwritten."""

import os
import random
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memline.producers.bridges.export import export, take_in
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import ConfigError
from memline.shared.index import archive, driver, vectors
from memline.shared.index.archive import ArchiveRefused
from memline.shared.index_writer import IndexWriter
from tests.support import process
from tests.support.embedding_server import EmbeddingServer
from tests.support.workspace import Place, note, remote

NOTES = 4

pytestmark = pytest.mark.place(server={}, notes=NOTES, is_indexed=True)


@pytest.fixture
def other(tmp_path: Path, server: EmbeddingServer) -> Place:
    """Another machine: no notes, no index."""
    there = Place(folder=tmp_path / "other")
    there.configure(**remote(server.url))
    return there


class Stopped(Exception):
    """Stands for a kill at a certain place."""


def stop(done: int) -> None:
    raise Stopped(done)


def test_notes_and_vectors_move_without_a_request_and_answer_alike(
    place: Place, other: Place, server: EmbeddingServer, tmp_path: Path
) -> None:
    file = tmp_path / "moved.memline"
    question = "word2x1x7 word3x0x9"
    here = place.search(question)
    sent = server.texts.copy()

    exported = export(place.agent, file)
    imported = take_in(other.agent, file)
    report = other.index()
    again = take_in(other.agent, file)

    assert (exported.notes, exported.vectors) == (NOTES, 3 * NOTES)
    assert (imported.notes, imported.vectors) == (NOTES, 3 * NOTES)
    assert (report.vectors["embedded"], report.vectors["cached"]) == (0, 3 * NOTES)
    assert (again.notes, again.vectors, again.known_notes, again.known_vectors) == (0, 0, NOTES, 3 * NOTES)
    there = other.search(question)
    assert [(hit.path, hit.start_line, hit.score) for hit in there.hits] == [
        (hit.path, hit.start_line, hit.score) for hit in here.hits
    ]
    # The two questions, and nothing else.
    assert (server.texts - sent).total() <= 1
    assert other.contents() == place.contents()
    assert (other.workspace / "memory/note-1.md").stat().st_mtime_ns == (
        place.workspace / "memory/note-1.md"
    ).stat().st_mtime_ns


def test_the_file_is_for_its_owner_alone_and_holds_no_key(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "moved.memline"

    export(place.agent, file)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("moved")] == ["moved.memline"]
    content = file.read_bytes()
    assert b"sk-test" not in content
    assert b"127.0.0.1" not in content


@pytest.mark.parametrize(("what", "notes", "count"), [("notes", 4, 0), ("vectors", 0, 9), ("cache", 0, 3)])
def test_an_export_takes_what_is_asked_for(
    place: Place, tmp_path: Path, what: str, notes: int, count: int
) -> None:
    place.write("memory/note-0.md", "# Short\n\nxyzzy\n")
    place.configure(provider="none")
    place.index()

    moved = export(place.agent, tmp_path / "some.memline", what=what)

    assert (moved.notes, moved.vectors) == (notes, count)


def test_an_export_that_was_killed_goes_on(
    place: Place, other: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memline.producers.bridges.export.SLICE_ROWS", 5)
    file = tmp_path / "moved.memline"
    with pytest.raises(Stopped):
        export(place.agent, file, on_progress=stop)
    assert not file.exists()
    part = tmp_path / "moved.memline.part"
    with closing(driver.library().connect(str(part))) as connection:
        first = connection.execute("SELECT rowid, text_hash FROM vectors ORDER BY rowid").fetchall()
        connection.execute("CREATE TABLE seen (n)")
        connection.execute("DROP TABLE seen")
    inode = part.stat().st_ino

    export(place.agent, file)

    assert len(first) == 5
    assert file.stat().st_ino == inode
    with closing(driver.library().connect(str(file))) as connection:
        rows = connection.execute("SELECT rowid, text_hash FROM vectors ORDER BY rowid LIMIT 5")
        assert rows.fetchall() == first
    assert take_in(other.agent, file).vectors == 3 * NOTES


def test_what_another_export_left_is_not_gone_on_with(place: Place, other: Place, tmp_path: Path) -> None:
    file = tmp_path / "moved.memline"
    with pytest.raises(Stopped):
        export(place.agent, file, what="vectors", on_progress=stop)

    moved = export(place.agent, file, what="notes")

    assert (moved.notes, moved.vectors) == (NOTES, 0)
    (tmp_path / "moved.memline.part").write_text("not a database, but in its place")
    assert export(place.agent, file).vectors == 3 * NOTES


def test_an_import_that_was_killed_goes_on(
    place: Place, other: Place, server: EmbeddingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memline.producers.bridges.export.SLICE_ROWS", 5)
    file = tmp_path / "moved.memline"
    export(place.agent, file)
    with pytest.raises(Stopped):
        take_in(other.agent, file, on_progress=stop)

    moved = take_in(other.agent, file)

    assert (moved.vectors, moved.known_vectors) == (3 * NOTES - 5, 5)
    assert other.index().vectors["embedded"] == 0


#: A slice of few rows, and an end by SIGKILL after so many of them: nothing is closed, nothing written back.
KILLED_AFTER = """
import os, signal
from memline.producers.bridges import export
from memline.shared.clock import SystemClock
export.SLICE_ROWS = 2
def kill(done, slices=[0]):
    slices[0] += 1
    if slices[0] == {slices}:
        os.kill(os.getpid(), signal.SIGKILL)
"""
EXPORT = (
    "write = export.export\nexport.export = lambda *a, on_progress, **k: write(*a, on_progress=kill, **k)"
)
IMPORT = (
    "take = export.take_in\nexport.take_in = lambda *a, on_progress, **k: take(*a, on_progress=kill, **k)"
)


def test_processes_that_are_killed_at_any_slice_go_on_to_equal_answers(
    place: Place, other: Place, server: EmbeddingServer, tmp_path: Path
) -> None:
    file = tmp_path / "moved.memline"
    question = "word2x1x7 word3x0x9"
    here = place.search(question)
    first, second, third = sorted(random.sample(range(1, 6), 3))

    killed = [
        place.run("export", str(file), before=KILLED_AFTER.format(slices=second) + EXPORT),
        place.run("export", str(file), before=KILLED_AFTER.format(slices=first) + EXPORT),
    ]
    assert not file.exists()
    exported = place.run("export", str(file), "--json")
    killed += [
        other.run("import", str(file), before=KILLED_AFTER.format(slices=slices) + IMPORT)
        for slices in (first, third)
    ]
    imported = other.run("import", str(file), "--json")
    sent = server.texts.copy()

    assert {ran.status for ran in killed} == {-signal.SIGKILL}, (first, second, third)
    assert exported.json["vectors"] == 3 * NOTES
    # What was written before the kill was not written again.
    assert imported.json["knownVectors"] == 2 * third
    assert imported.json["vectors"] == 3 * NOTES - 2 * third
    assert other.index().vectors["embedded"] == 0
    assert server.texts == sent
    assert other.contents() == place.contents()
    there = other.search(question)
    assert [(hit.path, hit.start_line, hit.score) for hit in there.hits] == [
        (hit.path, hit.start_line, hit.score) for hit in here.hits
    ]


def test_no_note_is_overwritten(place: Place, other: Place, tmp_path: Path) -> None:
    file = tmp_path / "moved.memline"
    export(place.agent, file)
    other.write("memory/note-0.md", "mine")
    other.write("memory/note-1.md", note(1))

    moved = take_in(other.agent, file)

    assert (moved.notes, moved.known_notes, moved.kept) == (2, 1, ("memory/note-0.md",))
    assert (other.workspace / "memory/note-0.md").read_text() == "mine"


def test_a_note_is_not_written_through_a_link(place: Place, other: Place, tmp_path: Path) -> None:
    file, outside = tmp_path / "moved.memline", tmp_path / "outside"
    export(place.agent, file)
    outside.mkdir()
    (other.workspace / "memory").symlink_to(outside)

    moved = take_in(other.agent, file)

    assert moved.notes == 0
    assert len(moved.left_out) == NOTES
    assert list(outside.iterdir()) == []


def test_vectors_that_have_no_note_yet_outlive_a_small_cache(
    place: Place, other: Place, tmp_path: Path
) -> None:
    """Else a sweep between the import and the first look at the notes would throw away what was paid for."""
    file = tmp_path / "moved.memline"
    export(place.agent, file, what="vectors")
    other.configure(cache={"enabled": False})
    take_in(other.agent, file)

    with closing(IndexWriter.of(other.agent)) as writer:
        writer.sweep()
        kept = vectors.count_cached(writer.connection)
        vectors.prune_cache(writer.connection, 0, writer._clock.now() + vectors.IMPORTED_KEEP_S + 1)
        later = vectors.count_cached(writer.connection)

    assert (kept, later) == (3 * NOTES, 0)


def test_vectors_of_another_model_never_serve(
    place: Place, other: Place, server: EmbeddingServer, tmp_path: Path
) -> None:
    file = tmp_path / "moved.memline"
    export(place.agent, file)
    other.configure(**remote(server.url, model="another"))

    moved = take_in(other.agent, file)
    report = other.index()

    assert moved.other_models == ("openai stub",)
    assert report.vectors["embedded"] == 3 * NOTES


def change(statement: str, *values: object) -> Callable[[Path], None]:
    def apply(file: Path) -> None:
        archive._unseal(file)
        with closing(driver.library().connect(str(file), isolation_level=None)) as connection:
            connection.execute(statement, values)
        archive._seal(file)

    return apply


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip(file: Path) -> None:
    """Another byte in the text of a note."""
    data = file.read_bytes()
    file.write_bytes(data.replace(b"word1x1x50", b"word1x1x51", 1))


HARM: dict[str, Callable[[Path], Any]] = {
    "cut short": truncate,
    "another byte": flip,
    "text": lambda file: file.write_text("{}" * 5000),
    "nothing": lambda file: file.write_text(""),
    "not whole": change("DELETE FROM meta WHERE key = 'complete'"),
    "no row": change("DELETE FROM vectors WHERE rowid = 3"),
    "one more row": change("INSERT INTO notes VALUES ('memory/x.md', 1, x'00', x'00')"),
    "another vector": change("UPDATE vectors SET embedding = zeroblob(64) WHERE rowid = 2"),
    "a short vector": change("UPDATE vectors SET embedding = x'0000803f' WHERE rowid = 2"),
    "another model": change("UPDATE identities SET model = 'dearer'"),
    "a trigger": change("CREATE TRIGGER t AFTER INSERT ON meta BEGIN SELECT 1; END"),
    "a view": change("CREATE VIEW v AS SELECT 1"),
    "newer": change("PRAGMA user_version = 3"),
    "foreign": change("PRAGMA application_id = 7"),
    "no json": change("UPDATE meta SET value = '{' WHERE key = 'complete'"),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_file_that_is_not_as_it_was_written_changes_nothing(
    place: Place, other: Place, tmp_path: Path, harm: str
) -> None:
    file = tmp_path / "moved.memline"
    export(place.agent, file)
    HARM[harm](file)

    with pytest.raises(ArchiveRefused):
        take_in(other.agent, file)

    assert list(other.workspace.iterdir()) == []
    assert not other.index_path.exists()


@pytest.mark.parametrize("path", ["../x.md", "/tmp/x.md", "memory/../../x.md", ".git/x.md", "memory//x.md"])
def test_a_note_that_leads_out_of_the_workspace_refuses_the_whole_file(
    place: Place, other: Place, tmp_path: Path, path: str
) -> None:
    file = tmp_path / "moved.memline"
    hostile(file, path)

    with pytest.raises(ArchiveRefused, match="not a path below a workspace"):
        take_in(other.agent, file)

    assert list(other.workspace.iterdir()) == []


def hostile(file: Path, path: str) -> None:
    """An export that is whole by all its digests."""
    file.touch(0o600)
    with archive.writing(file, {"agent": "main"}) as made:
        made.add_note(archive.Note(path=path, mtime_ns=0, content=b"# Hi\n"))
        made.finish()


def test_other_dimensions_of_the_same_model_are_refused_before_anything_is_written(
    place: Place, other: Place, tmp_path: Path
) -> None:
    file = tmp_path / "moved.memline"
    export(place.agent, file)
    with EmbeddingServer(dims=8, port=0) as small:
        other.configure(**remote(small.url))
        other.write("memory/mine.md", note(50))
        other.index()
    # The same model behind the same name, with other vectors than those of the file.
    other.execute("UPDATE identities SET key = ?", identity_key(place.agent))

    with pytest.raises(ArchiveRefused, match="dimensions"):
        take_in(other.agent, file)

    assert [path.name for path in (other.workspace / "memory").iterdir()] == ["mine.md"]


def identity_key(agent: AgentSettings) -> str:
    with driver.reading(agent.index_path) as connection:
        key: str = connection.execute("SELECT key FROM identities").fetchone()[0]
        return key


def test_a_file_of_another_program_is_not_replaced(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "thesis.txt"
    file.write_text("mine")

    with pytest.raises(ConfigError):
        export(place.agent, file)

    assert file.read_text() == "mine"


def test_the_commands_say_what_moved(place: Place, other: Place, tmp_path: Path) -> None:
    file = str(tmp_path / "moved.memline")

    exported = place.call("export", file, "--json")
    imported = other.call("import", file)
    again = other.call("import", file, "--json")

    assert exported.json["notes"] == NOTES
    assert imported.status == 0, imported.stderr
    assert f"{NOTES} notes (0 were there), {3 * NOTES} vectors (0 were there)" in imported.stdout
    assert " index\n" in imported.stderr
    assert again.json["knownVectors"] == 3 * NOTES


@pytest.mark.parametrize("seed", range(3))
def test_an_export_with_one_changed_byte_anywhere_is_refused(
    place: Place, other: Place, tmp_path: Path, seed: int
) -> None:
    file, dice = tmp_path / "moved.memline", random.Random(seed)
    export(place.agent, file)
    whole = file.read_bytes()

    # The header of SQLite, the ends of the file, and any place: free space, rows, pages without use.
    chosen = [*range(0, 100, 7), len(whole) - 1, *(dice.randrange(len(whole)) for _ in range(60))]
    taken = []
    for at in chosen:
        changed = bytearray(whole)
        changed[at] ^= 1 << dice.randrange(8)
        file.write_bytes(changed)
        try:
            take_in(other.agent, file)
            taken.append(at)
        except ArchiveRefused:
            pass
    for size in (len(whole) - 32, len(whole) - 1, len(whole) // 2):
        file.write_bytes(whole[:size])
        with pytest.raises(ArchiveRefused):
            take_in(other.agent, file)

    assert taken == []
    assert not other.index_path.exists()


def files_of(place: Place) -> list[Path]:
    """What the home holds, but for what SQLite has beside a file in use."""
    return sorted(path for path in place.home.rglob("*") if not path.name.endswith(("-wal", "-shm")))


def test_an_export_goes_to_standard_output(place: Place, other: Place, tmp_path: Path) -> None:
    file, fifo = tmp_path / "piped.memline", tmp_path / "fifo"
    os.mkfifo(fifo)
    before = files_of(place)

    piped = into_a_pipe(place, "-")
    by_name = into_a_pipe(place, "/dev/stdout")
    with file.open("wb") as out:
        led = subprocess.run(command(place, "export", "/dev/stdout"), stdout=out, stderr=subprocess.PIPE)
    with subprocess.Popen(["cat", str(fifo)], stdout=subprocess.PIPE) as reader:
        written = place.run("export", str(fifo))
        if written.status:
            reader.terminate()
        through, _ = reader.communicate(timeout=process.TIMEOUT_S)
    as_json = place.run("export", "-", "--json")
    with file.open("rb") as stream:
        taken = subprocess.run(command(other, "import", "-"), stdin=stream, capture_output=True, text=True)

    assert piped.returncode == by_name.returncode == led.returncode == 0, piped.stderr
    assert {piped.stdout[:15], by_name.stdout[:15], through[:15]} == {b"SQLite format 3"}
    assert b"Exported main: 4 notes, 12 vectors" in piped.stderr
    assert "Exported main: 4 notes, 12 vectors" in written.stdout
    assert fifo.is_fifo()
    assert b"Exported" in led.stderr
    assert (as_json.status, as_json.stdout) == (2, "")
    assert f"{NOTES} notes (0 were there), {3 * NOTES} vectors (0 were there)" in taken.stdout, taken.stderr
    assert files_of(place) == before
    assert not Path("-").exists()


def into_a_pipe(place: Place, file: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command(place, "export", file), capture_output=True)


def command(place: Place, *args: str) -> list[str]:
    return [sys.executable, "-c", process._MEMLINE, *place.arguments(*args)]


def test_an_export_follows_a_link(place: Place, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link, file = tmp_path / "moved.memline", tmp_path / "disk" / "real.memline"
    link.symlink_to(file)

    export(place.agent, link)
    export(place.agent, link)

    assert link.is_symlink()
    assert archive.is_archive(file)
    with pytest.raises(ConfigError, match="is a folder"):
        export(place.agent, tmp_path / "disk")


def test_exports_into_one_file_at_once_all_succeed(place: Place, other: Place, tmp_path: Path) -> None:
    file = tmp_path / "moved.memline"

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(export, place.agent, file) for _ in range(8)]
        counts = {each.result().vectors for each in done}

    assert counts == {3 * NOTES}
    assert take_in(other.agent, file).vectors == 3 * NOTES
    assert [path.name for path in tmp_path.iterdir() if "moved" in path.name] == ["moved.memline"]


def test_forgetting_leaves_an_export_whole(place: Place, other: Place) -> None:
    file = place.home / "moved.memline"
    export(place.agent, file)

    place.call("forget", "memory/note-1.md", "--keep-note", "--yes")

    assert take_in(other.agent, file).notes == NOTES - 1
