"""Backups: made and put back while other processes use the index, checked before anything changes."""

import os
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from memline.producers.actions.backup import back_up, backups_at, refuse_other_workspace, restore
from memline.producers.memory import Memory
from memline.shared.errors import ConfigError, IndexCorrupt, IndexFault
from memline.shared.index import driver, meta
from memline.shared.values import replace
from tests.integration.bad.test_index import FULL_DISK
from tests.support.embedding_server import EmbeddingServer
from tests.support.process import end, running_memline
from tests.support.workspace import Place, note, paths, until

pytestmark = pytest.mark.place(server={}, notes=3, is_indexed=True)


def put_back(place: Place, folder: Path) -> None:
    (saved,) = backups_at(folder, [place.agent], place.agent)
    restore(saved, place.agent)


def test_a_backup_holds_everything_and_is_for_its_owner_alone(place: Place, tmp_path: Path) -> None:
    before = place.contents()

    (saved,) = back_up([place.agent], tmp_path / "saved")
    place.index_path.unlink()
    put_back(place, tmp_path / "saved")

    assert (saved.files, saved.chunks, saved.vectors) == (3, 9, 9)
    assert stat.S_IMODE(saved.path.stat().st_mode) == 0o600
    assert [path.name for path in saved.path.parent.iterdir()] == ["main.sqlite"]
    assert place.contents() == before
    assert not [path for path in place.index_path.parent.iterdir() if "restore" in path.name]


def test_a_backup_of_another_workspace_is_neither_replaced_nor_put_back(place: Place, tmp_path: Path) -> None:
    (saved,) = back_up([place.agent], tmp_path / "saved")
    (tmp_path / "other").mkdir()
    other = replace(place.agent, workspace=tmp_path / "other")

    with pytest.raises(ConfigError, match="is a backup of"):
        back_up([other], tmp_path / "saved")
    with pytest.raises(ConfigError, match="is a backup of") as refused:
        refuse_other_workspace(saved, other)
    assert f"--workspace {place.workspace}" in refused.value.hint
    # A workspace that was moved keeps its backups.
    place.workspace.rename(tmp_path / "moved")
    refuse_other_workspace(saved, other)
    assert back_up([other], tmp_path / "saved")[0].files == saved.files


def test_restore_refuses_the_backup_of_another_workspace(place: Place, tmp_path: Path) -> None:
    back_up([place.agent], tmp_path / "saved")
    (tmp_path / "other").mkdir()
    index = ("--workspace", str(tmp_path / "other"), "--home", str(tmp_path / "home"))

    ran = place.run(*index, "restore", str(tmp_path / "saved"), "--yes")

    assert ran.status == 2
    assert f"is a backup of {place.workspace}" in ran.stderr


def test_a_restore_is_seen_by_processes_that_have_the_index_open(
    place: Place, server: EmbeddingServer, tmp_path: Path
) -> None:
    """Also by the matrix of vectors that a long-lived process keeps: row ids mean other rows than before."""
    back_up([place.agent], tmp_path / "saved")
    place.configure(sync={"onSearch": False})
    with Memory.of(place.settings, place.agent, long_lived=True) as memory:
        for number in range(3):
            (place.workspace / f"memory/note-{number}.md").unlink()
        place.write("memory/other.md", note(7))
        place.index(re_embed=True)
        assert [hit.path for hit in memory.search("word7x1x5").hits] == ["memory/other.md"]

        put_back(place, tmp_path / "saved")
        again = memory.search("word1x1x5")

        assert again.hits[0].path == "memory/note-1.md"
        assert again.hits[0].vector_score == pytest.approx(
            place.search("word1x1x5").hits[0].vector_score, abs=1e-6
        )


def test_a_restore_keeps_what_was_paid_for_since(
    place: Place, server: EmbeddingServer, tmp_path: Path
) -> None:
    back_up([place.agent], tmp_path / "saved")
    place.write("memory/later.md", note(9))
    place.index()
    sent = server.texts.copy()

    put_back(place, tmp_path / "saved")
    assert place.outcomes().keys() == {f"memory/note-{number}.md" for number in range(3)}
    report = place.index()

    assert (report.vectors["embedded"], report.vectors["cached"]) == (0, 3)
    assert server.texts == sent


def test_a_backup_and_a_restore_beside_a_running_up(place: Place, tmp_path: Path) -> None:
    with running_memline(*place.arguments("up")) as running:
        place.write("memory/a.md", "# A\n\nxyzzy\n")
        until(lambda: "memory/a.md" in place.outcomes(), "the note")
        saved = place.run("backup", str(tmp_path / "saved"), "--json")
        place.write("memory/b.md", "# B\n\nplugh\n")
        until(lambda: "memory/b.md" in place.outcomes(), "the second note")
        restored = place.run("restore", str(tmp_path / "saved"), "--yes")
        assert "memory/a.md" in place.outcomes()
        place.write("memory/c.md", "# C\n\nfrotz\n")
        until(lambda: "memory/c.md" in place.outcomes(), "a note after the restore")
        end(running)
    place.index()

    assert saved.status == 0, saved.stderr
    assert restored.status == 0, restored.stderr
    assert {"memory/a.md", "memory/b.md", "memory/c.md"} <= place.outcomes().keys()
    assert paths(place.search("plugh"))[0] == "memory/b.md"
    place.contents()


def test_backups_beside_a_writer_that_never_rests_are_each_of_one_moment(
    place: Place, tmp_path: Path
) -> None:
    stop = threading.Event()
    commits = 0

    def write() -> None:
        nonlocal commits
        with closing(driver.open_writer(place.index_path)) as connection:
            while not stop.is_set():
                with driver.transaction(connection):
                    meta.put(connection, "left", commits)
                    meta.put(connection, "right", commits)
                commits += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            before = commits
            until(lambda seen=before: commits > seen, "another commit")
            back_up([place.agent], tmp_path / str(number))
    finally:
        stop.set()
        writer.join()

    moments = []
    for number in range(5):
        with closing(sqlite3.connect(tmp_path / str(number) / "main.sqlite")) as copy:
            assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            left, right = (meta.get(copy, key) for key in ("left", "right"))
            assert left == right
            moments.append(left)
    assert moments == sorted(set(moments))

    place.index_path.unlink()
    put_back(place, tmp_path / "4")
    with driver.reading(place.index_path) as reader:
        assert reader.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert paths(place.search("word1x1x5"))[0] == "memory/note-1.md"


@pytest.mark.parametrize(
    "harm", ["cut", "foreign", "text", "flipped", "trigger", "known trigger", "known view", "newer", "older"]
)
def test_a_file_that_is_not_a_whole_backup_changes_nothing(place: Place, tmp_path: Path, harm: str) -> None:
    (saved,) = back_up([place.agent], tmp_path / "saved")
    data = bytearray(saved.path.read_bytes())
    if harm == "cut":
        saved.path.write_bytes(data[: len(data) // 2])
    elif harm == "text":
        saved.path.write_bytes(b"hello")
    elif harm == "flipped":
        data[4096 * 3 : 4096 * 3 + 64] = b"\xff" * 64
        saved.path.write_bytes(data)
    else:
        with closing(driver.library().connect(str(saved.path))) as connection:
            connection.executescript(
                {
                    "foreign": "PRAGMA application_id = 7",
                    "trigger": "CREATE TRIGGER t AFTER DELETE ON files BEGIN DELETE FROM chunks; END",
                    "known trigger": "DROP TRIGGER vectors_deleted; CREATE TRIGGER vectors_deleted"
                    " AFTER DELETE ON files BEGIN DELETE FROM chunks; END",
                    "known view": "DROP VIEW chunk_documents; CREATE VIEW chunk_documents"
                    " AS SELECT id, text, heading, '' AS path, grams FROM chunks",
                    "newer": "PRAGMA user_version = 9999",
                    "older": "PRAGMA user_version = 18",
                }[harm]
            )
    before = place.contents()

    with pytest.raises(IndexFault) as raised:
        put_back(place, tmp_path / "saved")

    assert isinstance(raised.value, IndexCorrupt if harm in ("cut", "flipped", "older") else IndexFault)
    # Not what mends an index in use.
    assert "memline index" not in raised.value.hint
    assert "the index " not in raised.value.message
    assert "another" in raised.value.hint
    assert place.contents() == before
    assert not [path for path in place.index_path.parent.iterdir() if "restore" in path.name]


def test_a_damaged_index_is_moved_aside_and_replaced(place: Place, tmp_path: Path) -> None:
    before = place.contents()
    back_up([place.agent], tmp_path / "saved")
    place.index_path.write_bytes(b"no database at all" * 500)

    put_back(place, tmp_path / "saved")

    assert place.contents() == before
    assert [path for path in place.index_path.parent.iterdir() if ".corrupt-" in path.name]


def test_a_backup_takes_no_place_of_another_programs_file(place: Place, tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "main.sqlite").write_text("mine")

    with pytest.raises(IndexFault):
        back_up([place.agent], tmp_path / "saved")
    with pytest.raises(ConfigError):
        back_up([place.agent], place.index_path.parent)

    assert (tmp_path / "saved" / "main.sqlite").read_text() == "mine"


def test_a_restore_asks_first(place: Place, tmp_path: Path) -> None:
    place.call("backup", str(tmp_path / "saved"))
    before = place.contents()
    place.write("memory/new.md", note(8))

    refused = place.call("restore", str(tmp_path / "saved"))

    assert refused.status == 2
    assert "--yes" in refused.stderr
    assert place.contents() == before


def test_a_restore_of_nothing_says_so(place: Place, tmp_path: Path) -> None:
    result = place.call("restore", str(tmp_path / "none"))

    assert result.status == 2
    assert result.stderr.startswith(f"Error: {tmp_path / 'none'} does not exist\n")


def test_restores_at_once_all_succeed_one_after_another(place: Place, tmp_path: Path) -> None:
    back_up([place.agent], tmp_path / "saved")
    before = place.contents()
    (saved,) = backups_at(tmp_path / "saved", [place.agent], place.agent)

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(restore, saved, place.agent) for _ in range(8)]
        files = {each.result().files for each in done}

    assert files == {saved.files}
    assert place.contents() == before
    assert not [path for path in place.index_path.parent.iterdir() if path.name.startswith(".")]


def test_backups_into_one_folder_at_once_all_succeed(place: Place, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(back_up, [place.agent], tmp_path / "saved") for _ in range(8)]
        saved = [each.result()[0] for each in done]

    assert len({each.bytes for each in saved}) == 1
    assert [path.name for path in (tmp_path / "saved").iterdir()] == ["main.sqlite"]


def test_a_backup_follows_a_link_and_takes_no_place_of_what_is_no_file(place: Place, tmp_path: Path) -> None:
    saved, disk = tmp_path / "saved", tmp_path / "disk"
    saved.mkdir()
    disk.mkdir()
    (saved / "main.sqlite").symlink_to(disk / "real.sqlite")

    back_up([place.agent], saved)

    assert (saved / "main.sqlite").is_symlink()
    assert (disk / "real.sqlite").is_file()
    (saved / "main.sqlite").unlink()
    os.mkfifo(saved / "main.sqlite")
    with pytest.raises(IndexFault, match="is not a file"):
        back_up([place.agent], saved)
    assert (saved / "main.sqlite").is_fifo()


def test_a_write_that_fails_names_the_file_that_was_written(place: Place, tmp_path: Path) -> None:
    full, saved = tmp_path / "full", tmp_path / "saved"
    place.write("memory/large.md", "lighthouse " * 20_000)
    place.index()
    back_up([place.agent], saved)
    before = place.contents()

    made = place.run("backup", str(full), before=FULL_DISK)
    restored = place.run("restore", str(saved), "--yes", before=FULL_DISK)
    exported = place.run("export", str(tmp_path / "x.memline"), before=FULL_DISK)

    assert made.stderr.startswith(f"Error: cannot write {full / 'main.sqlite'}: ")
    assert f"Error: cannot write {place.index_path}: " in restored.stderr
    assert exported.stderr.startswith(f"Error: cannot write {tmp_path / 'x.memline.part'}: ")
    assert all("Try: free space" in each.stderr for each in (made, restored, exported))
    assert not full.exists()
    assert place.contents() == before


def test_a_backup_that_cannot_be_read_is_not_said_to_be_written(place: Place, tmp_path: Path) -> None:
    (saved,) = back_up([place.agent], tmp_path / "saved")
    saved.path.chmod(0)

    ran = place.run_without_rights("restore", str(saved.path), "--yes")

    assert f"cannot read {saved.path}" in ran.stderr
    assert "another backup" in ran.stderr
