import pytest

from tests.support.process import python
from tests.support.workspace import note, paths, remote

#: Runs in the process before the command: a write past this many bytes of a file fails, as on a full disk.
FULL_DISK = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))"


#: Overwrites what is between the first and the last pages of an index. In a process of its own: this one may
#: have the index open, and a second SQLite library, or a plain open and close, would drop its locks.
DAMAGE = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
connection.close()
with open(sys.argv[1], "r+b") as file:
    file.seek(2 * 4096)
    file.write(b"\\xa5" * (os.path.getsize(sys.argv[1]) - 4 * 4096))
"""


def test_a_read_only_index_folder_is_told_with_its_path_and_search_goes_on(place):
    place.index()
    place.write("memory/new.md", "# New\n\nplugh\n")
    # Readable by everybody, written by nobody.
    for path in (place.folder, place.home, place.index_path.parent):
        path.chmod(0o555)
    place.index_path.chmod(0o444)

    ran = place.run_without_rights("index")
    found = place.run_without_rights("search", "lighthouse", "--json")

    assert ran.status == 1
    assert str(place.index_path) in ran.stderr
    assert "Try: " in ran.stderr
    assert "Traceback" not in ran.stderr
    assert found.status == 0, found.stderr
    assert [hit["path"] for hit in found.json["results"]] == ["memory/good.md"]
    assert found.json["stale"] is True
    # Not the index, which would refuse.
    assert found.json["action"] == f"let this user write to {place.index_path.parent}, or use --home DIR"


@pytest.mark.place(server={})
@pytest.mark.parametrize("kind", ["account_path", "index_path"])
def test_a_file_that_may_not_be_written_is_what_status_and_doctor_name(place, kind):
    place.index()
    place.write("memory/new.md", "# New\n\nplugh\n")
    file = getattr(place.agent, kind)
    file.chmod(0o444)

    status, doctor, index = (place.run_without_rights(each) for each in ("status", "doctor", "index"))

    assert f"{file} is not writable" in status.stdout.split("\n")[1]
    assert f"let this user write to {file}" in status.stdout
    assert f"{file} is not writable" in doctor.stdout
    assert (doctor.status, index.status) == (1, 1)


@pytest.mark.parametrize("command", [("index",), ("search", "lighthouse")])
def test_a_home_that_cannot_be_made_is_told_with_its_path(place, command):
    place.folder.chmod(0o555)

    ran = place.run_without_rights(*command)

    assert ran.status == 1
    assert ran.stderr.startswith(f"Error: cannot write the index {place.home}")
    assert "Try: check the folder's permissions" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_full_disk_is_told_and_nothing_is_half_written(place, server):
    place.configure(**remote(server.url))
    place.index()
    for number in range(40):
        place.write(f"memory/note-{number}.md", note(number))

    full = place.run("index", before=FULL_DISK)
    kept = place.contents()
    after = place.run("index", "--json")

    assert full.status == 1
    assert str(place.index_path) in full.stderr
    assert "Try: " in full.stderr
    assert "Traceback" not in full.stderr
    assert "word3x1x7" not in full.stderr, "notes have no place in error lines"
    whole = {path for path, *_ in kept.files}
    assert {path for path, *_ in kept.chunks} == whole, "every file of the ledger has its chunks"
    assert "memory/good.md" in whole
    assert after.status == 0
    assert after.json[0]["files"]["seen"] == 41
    assert len(place.contents().vectors) == 121


@pytest.mark.parametrize("words", ["damaged", "has schema 18, of an older release"])
def test_a_damaged_index_or_one_of_an_older_release_is_moved_aside_and_the_index_built_again(place, words):
    place.index()
    if words == "damaged":
        place.index_path.write_bytes(b"this is no database " * 1000)
    else:
        place.execute("PRAGMA user_version = 18")
    before = place.index_path.read_bytes()[:20]

    searched = place.run("search", "lighthouse")
    ran = place.run("index")

    assert searched.status == 1
    assert words in searched.stderr
    assert f"Try: {place.typed('index')}" in searched.stderr
    assert ran.status == 0, ran.stderr
    (aside,) = place.index_path.parent.glob("*.corrupt-*Z")
    assert str(aside) in ran.stderr
    assert aside.read_bytes().startswith(before)
    assert paths(place.search("lighthouse")) == ["memory/good.md"]


@pytest.mark.parametrize("is_last", [False, True], ids=["in the middle", "after its last vector"])
def test_an_index_that_is_damaged_while_a_run_uses_it_is_built_again(place, server, is_last):
    server.control({"latency_ms": 30})
    place.configure(**remote(server.url, maxRows=3))
    for number in range(30):
        place.write(f"memory/note-{number}.md", note(number))
    damaged = []

    def damage(progress):
        is_due = progress.vectors_done == progress.vectors if is_last else progress.vectors_done > 20
        if progress.files_done == progress.files and progress.vectors and is_due and not damaged:
            damaged.append(progress)
            done = python(DAMAGE, str(place.index_path))
            assert done.status == 0, done.stderr

    notes = []
    report = place.index(on_progress=damage, on_note=notes.append)

    assert damaged
    assert len(notes) == 1, "\n".join(notes)
    assert not report.failed
    assert len(place.contents().vectors) == 91
