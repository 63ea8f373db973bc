"""Files and indexes as they should not be: each has an outcome and a reason, and the rest goes on."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from producers.bring_up import Progress
from shared.index import driver
from tests.support.embedding_server import EmbeddingServer
from tests.support.process import memline, python
from tests.support.workspace import Place, note, paths, remote

#: A sound note beside every bad file; it must be found whatever happens to the other.
GOOD = "# Good\n\nThe lighthouse is green.\n"

#: Runs in the process before the command: a write past this many bytes of a file fails, as on a full disk.
FULL_DISK = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))"

#: Runs in the process before the command: these modules cannot be imported.
BLOCKED = """
import sys
class _Without:
    def __init__(self, finder):
        self._finder = finder
    def find_spec(self, name, *rest):
        return None if name.split(".")[0] in {names!r} else self._finder.find_spec(name, *rest)
sys.meta_path[:] = [_Without(finder) for finder in sys.meta_path]
"""

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


@pytest.fixture
def place(place: Place) -> Place:
    """A workspace with one sound note."""
    place.write("memory/good.md", GOOD)
    return place


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    target = path.parents[2] / "secret.md"
    target.write_text("# Secret\n\nThe password is xyzzy.\n")
    path.symlink_to(target)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2 * 1024**3)


#: How a bad file is made, and what the ledger must say of it.
REFUSED: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a FIFO": (_fifo, "special", "no regular file"),
    "a symbolic link": (_link, "symlink", "never followed"),
    "2 GB of nothing": (_sparse, "too_large", "2147483648 bytes"),
    "a program": (lambda path: path.write_bytes(bytes(range(256)) * 40), "not_text", "NUL"),
    "noise": (lambda path: path.write_bytes(bytes(range(128, 256)) * 40), "not_text", "no text"),
    "an empty file": (lambda path: path.write_bytes(b""), "empty", "0 bytes"),
    "white space": (lambda path: path.write_bytes(b" \n\n\t\n"), "empty", "white space"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_cannot_be_indexed_is_named_with_its_reason(place: Place, kind: str) -> None:
    make, outcome, reason = REFUSED[kind]
    make(place.workspace / "memory" / "bad.md")

    ran = place.run("index", "--json")
    status = place.run("status", "--verbose", "--json")
    found = place.run("search", "lighthouse password", "--json")

    assert ran.status == (1 if outcome in ("too_large", "not_text") else 0), ran.stderr
    (bad,) = [file for file in status.json[0]["files"] if file["path"] == "memory/bad.md"]
    assert bad["outcome"] == outcome
    assert reason in bad["reason"]
    assert [hit["path"] for hit in found.json["results"]] == ["memory/good.md"]
    assert place.run("index", "--json").json[0]["files"]["unchanged"] == 2, "looked at once, not every time"


def test_a_symbolic_link_to_a_folder_is_not_entered_and_its_files_cannot_be_had(place: Place) -> None:
    outside = place.folder / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("# Secret\n\nThe password is xyzzy.\n")
    (place.workspace / "memory" / "linked").symlink_to(outside)

    report = place.index()
    got = place.run("get", "memory/linked/secret.md")

    assert not report.failed
    assert place.outcomes()["memory/linked"][0] == "symlink"
    assert place.rows("SELECT count(*) FROM chunks WHERE text LIKE '%xyzzy%'") == [(0,)]
    assert got.status == 1
    assert "not an allowed Markdown memory file" in got.stderr
    assert "xyzzy" not in got.stdout + got.stderr


def test_a_folder_that_becomes_a_link_takes_its_notes_out_of_the_index(place: Place) -> None:
    place.write("memory/diary/day.md", "# Day\n\nThe password is plugh.\n")
    place.index()
    (place.workspace / "memory/diary").rename(place.folder / "moved")
    (place.workspace / "memory/diary").symlink_to(place.folder / "moved")

    place.index()

    assert paths(place.search("password plugh")) == []
    assert paths(place.search("lighthouse")) == ["memory/good.md"]


def _vanish(files: list[Path]) -> None:
    for file in files:
        file.unlink()


def test_a_file_that_vanishes_between_the_look_and_the_reading_is_gone_and_nothing_else(place: Place) -> None:
    doomed = [place.write(f"memory/doomed-{number}.md", note(number)) for number in range(3)]

    report = place.index(on_plan=lambda _: _vanish(doomed))

    assert not report.failed
    assert set(place.outcomes()) == {"memory/good.md"}
    assert paths(place.search("lighthouse word1x1x1")) == ["memory/good.md"]


@pytest.mark.parametrize(
    ("data", "found", "lines"),
    [
        (b"# Caf\xe9\n\nThe owl is br\xfbn and loud, and nobody minds.\n", "loud", "L1-L3"),
        (b"# Owl\r\n\r\nThe owl is loud.\r\n", "loud", "L1-L3"),
        (b"\xef\xbb\xbf# Owl\n\nThe owl is loud.\n", "loud", "L1-L3"),
        ("# Owl\n\nThe owl is loud.\n".encode("utf-16"), "loud", "L1-L3"),
        (b"owl " * 250_000 + b"loud", "loud", "L1"),
    ],
    ids=["not UTF-8", "CRLF", "byte order mark", "UTF-16", "a line of 1 MB"],
)
def test_odd_text_is_indexed_and_found_at_its_lines(
    place: Place, data: bytes, found: str, lines: str
) -> None:
    place.write("memory/odd.md", data)

    report = place.index()
    (hit,) = place.search(found).hits

    assert not report.failed
    assert hit.citation == f"memory/odd.md#{lines}"
    assert "\r" not in hit.snippet
    assert "\ufeff" not in hit.snippet
    outcome, reason = place.outcomes()["memory/odd.md"]
    assert outcome == "indexed"
    assert ("not valid UTF-8" in reason) == (b"\xe9" in data)


def test_names_that_cannot_be_kept_are_told_and_odd_names_that_can_are_indexed(place: Place) -> None:
    folder = os.fsencode(place.workspace / "memory")
    Path(os.fsdecode(folder + b"/caf\xe9.md")).write_text("# Latin\n\nplugh\n")
    odd = ["a b.md", "q?#%.md", "line\nbreak.md", "-dash.md", "日記.md", "quote'\".md"]
    for name in odd:
        place.write(f"memory/{name}", f"# Odd\n\nxyzzy\n{name}\n")

    ran = place.run("index", "--json")
    answer = place.search("xyzzy", max_results=20)

    assert ran.status == 1
    (failure,) = ran.json[0]["failures"]
    assert "rename" in failure["reason"]
    assert set(paths(answer)) == {f"memory/{name}" for name in odd}
    assert paths(place.search("lighthouse")) == ["memory/good.md"]


def test_an_unreadable_file_and_folder_fail_alone_and_are_read_when_they_can_be(place: Place) -> None:
    closed = place.write("memory/closed.md", "# Closed\n\nxyzzy\n")
    folder = place.write("memory/shut/inside.md", "# Inside\n\nplugh\n").parent
    closed.chmod(0)
    folder.chmod(0)

    ran = place.run_without_rights("index", "--json")
    status = place.run_without_rights("status", "--verbose", "--json")
    closed.chmod(0o644)
    folder.chmod(0o755)
    mended = place.run_without_rights("index", "--json")

    assert ran.status == 1, ran.stderr
    reasons = {failure["path"]: failure["reason"] for failure in ran.json[0]["failures"]}
    assert reasons == {"memory/closed.md": "not readable (EACCES)", "memory/shut": "not readable (EACCES)"}
    assert {file["path"]: file["outcome"] for file in status.json[0]["files"]} == {
        "memory/closed.md": "unreadable",
        "memory/shut": "unreadable",
    }
    assert mended.status == 0, mended.stdout
    assert sorted(paths(place.search("lighthouse xyzzy plugh"))) == [
        "memory/closed.md",
        "memory/good.md",
        "memory/shut/inside.md",
    ]


def test_a_read_only_index_folder_is_told_with_its_path_and_search_goes_on(place: Place) -> None:
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


def test_a_home_that_cannot_be_made_is_told_with_its_path(place: Place) -> None:
    place.folder.chmod(0o555)

    ran = place.run_without_rights("index")

    assert ran.status == 1
    assert str(place.home) in ran.stderr
    assert "Try: " in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_full_disk_is_told_and_nothing_is_half_written(place: Place, server: EmbeddingServer) -> None:
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


def test_a_damaged_header_is_moved_aside_and_the_index_built_again(place: Place) -> None:
    place.index()
    place.index_path.write_bytes(b"this is no database " * 1000)

    searched = place.run("search", "lighthouse")
    ran = place.run("index")

    assert searched.status == 1
    assert "damaged" in searched.stderr
    assert "Try: memline index" in searched.stderr
    assert ran.status == 0, ran.stderr
    (aside,) = place.index_path.parent.glob("*.corrupt-*Z")
    assert str(aside) in ran.stderr
    assert aside.read_bytes().startswith(b"this is no database")
    assert paths(place.search("lighthouse")) == ["memory/good.md"]


def test_pages_that_are_damaged_in_the_middle_are_found_in_the_run_and_the_index_is_built_again(
    place: Place, server: EmbeddingServer
) -> None:
    place.configure(**remote(server.url))
    for number in range(30):
        place.write(f"memory/note-{number}.md", note(number))
    place.index()
    right = place.contents()
    python(DAMAGE, str(place.index_path))
    place.write("memory/note-7.md", note(7) + "\n")

    notes: list[str] = []
    report = place.index(force=True, on_note=notes.append)

    (aside,) = place.index_path.parent.glob("*.corrupt-*Z")
    assert len(notes) == 1
    assert str(aside) in notes[0]
    assert not report.failed
    assert place.contents().chunks == right.chunks
    assert place.contents().vectors == right.vectors


def test_an_index_that_is_damaged_while_a_run_uses_it_is_built_again(
    place: Place, server: EmbeddingServer
) -> None:
    server.control({"latency_ms": 30})
    place.configure(**remote(server.url, maxRows=3))
    for number in range(30):
        place.write(f"memory/note-{number}.md", note(number))
    damaged: list[Progress] = []

    def damage(progress: Progress) -> None:
        if progress.files_done == progress.files and progress.vectors_done > 20 and not damaged:
            damaged.append(progress)
            done = python(DAMAGE, str(place.index_path))
            assert done.status == 0, done.stderr

    notes: list[str] = []
    report = place.index(on_progress=damage, on_note=notes.append)

    assert damaged
    assert len(notes) == 1
    assert not report.failed
    assert len(place.contents().vectors) == 91


def test_the_database_of_another_program_is_refused_and_left_as_it_is(place: Place) -> None:
    place.index_path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(place.index_path)) as connection:
        connection.execute("CREATE TABLE chunks (id TEXT PRIMARY KEY, text TEXT)")
        connection.execute("INSERT INTO chunks VALUES ('a', 'not ours')")
        connection.commit()
    before = place.index_path.read_bytes()

    for command in (("index",), ("search", "lighthouse")):
        ran = place.run(*command)

        assert ran.status == 1
        assert "not a Memline index" in ran.stderr
        assert "Try: " in ran.stderr
    assert place.index_path.read_bytes() == before
    assert [path.name for path in place.index_path.parent.iterdir()] == [place.index_path.name]
    assert "not a Memline index" in place.status()["error"]


def test_a_newer_schema_is_refused_with_both_versions(place: Place) -> None:
    place.index()
    with closing(sqlite3.connect(place.index_path)) as connection:
        connection.execute("PRAGMA user_version = 99")

    for command in (("index",), ("search", "lighthouse")):
        ran = place.run(*command)

        assert ran.status == 1
        assert "schema 99" in ran.stderr
        assert f"up to {driver.SCHEMA_VERSION}" in ran.stderr
        assert "upgrade Memline" in ran.stderr


@pytest.mark.parametrize(
    "missing",
    [("sqlite_vec",), ("numpy",), ("sqlite_vec", "numpy"), ("sqlean", "pysqlite3")],
    ids=" and ".join,
)
def test_without_an_extra_library_the_same_is_found_and_status_names_what_is_gone(
    place: Place, server: EmbeddingServer, missing: tuple[str, ...]
) -> None:
    place.configure(**remote(server.url))
    for number in range(5):
        place.write(f"memory/note-{number}.md", note(number))
    blocked = BLOCKED.format(names=set(missing))
    question = ("search", "word3x1x7 lighthouse", "--json")

    ran = place.run("index", "--json", before=blocked)
    without = place.run(*question, before=blocked)
    status = place.run("status", "--json", before=blocked).json[0]["status"]
    doctor = place.run("doctor", before=blocked)
    whole = place.run(*question)
    place.write("memory/later.md", "# Later\n\nplugh\n")
    again = place.run("index", "--json")

    assert ran.status == 0, ran.stderr
    assert without.json["mode"] == "hybrid"
    assert _hits(without.json) == _hits(whole.json)
    assert status["vector"]["available"] == ("numpy" in missing and len(missing) == 1)
    assert bool(status["vector"]["loadError"]) != status["vector"]["available"]
    assert status["vector"]["numpy"] == ("numpy" not in missing)
    assert "Traceback" not in doctor.stderr
    assert again.status == 0
    # What a writer without sqlite-vec could not keep in step is in step again.
    assert place.contents().vec_table == place.contents().vectors


def test_without_full_text_search_the_vectors_go_on_and_status_names_what_is_gone(
    place: Place, server: EmbeddingServer
) -> None:
    place.configure(**remote(server.url))
    for number in range(5):
        place.write(f"memory/note-{number}.md", note(number))
    text = place.workspace.joinpath("memory/note-3.md").read_text().split("\n\n")[2].strip()
    env = {"MEMLINE_SQLITE": "tests.support.sqlite_without_fts5"}

    ran = place.run("index", "--json", env=env)
    without = place.run("search", text, "--json", env=env)
    status = place.run("status", "--json", env=env).json[0]["status"]
    doctor = place.run("doctor", env=env)
    place.write("memory/note-3.md", note(3).replace("word3x1x7", "plugh"))
    changed = place.run("index", "--json", env=env)
    whole = place.run("index", "--json")

    assert ran.status == 0, ran.stderr
    assert ran.json[0]["vectors"]["embedded"] == 16
    assert without.status == 0, without.stderr
    assert without.json["mode"] == "vector"
    assert without.json["results"][0]["path"] == "memory/note-3.md"
    assert "keywords were not searched" in without.json["warning"]
    assert status["fts"] == {"enabled": True, "available": False, "error": "no such module: fts5"}
    assert doctor.status == 1
    assert "no FTS5" in doctor.stdout
    assert changed.status == 0, changed.stderr
    # A library that has it makes the full-text index of what the other one wrote.
    assert whole.status == 0, whole.stderr
    assert place.contents().chunks
    assert paths(place.search("plugh", min_score=1))[0] == "memory/note-3.md"


def test_an_index_that_was_kept_in_step_without_full_text_search_is_mended_by_one_with_it(
    place: Place,
) -> None:
    place.index()
    place.write("memory/good.md", "# Good\n\nThe lighthouse is plugh.\n")
    place.write("memory/new.md", "# New\n\nxyzzy\n")
    env = {"MEMLINE_SQLITE": "tests.support.sqlite_without_fts5"}

    without = place.run("index", "--json", env=env)
    asked = place.run("search", "xyzzy", "--json", env=env)
    stale = place.search("lighthouse")
    place.index()

    assert without.status == 0, without.stderr
    assert asked.status == 0
    assert "keywords were not searched" in asked.json["warning"]
    assert asked.json["action"]
    assert stale.warning.startswith("keywords were not searched")
    assert place.contents()
    assert paths(place.search("plugh")) == ["memory/good.md"]
    assert paths(place.search("xyzzy")) == ["memory/new.md"]
    assert paths(place.search("green")) == []


def test_a_workspace_that_is_not_there_is_told(tmp_path: Path) -> None:
    ran = memline("--workspace", str(tmp_path / "nowhere"), "--home", str(tmp_path / "home"), "index")

    assert ran.status == 2
    assert f"{tmp_path / 'nowhere'}: no such folder" in ran.stderr
    assert "Try: mkdir" in ran.stderr


def _hits(answer: dict[str, list[dict[str, object]]]) -> list[tuple[object, object]]:
    return [(hit["citation"], round(float(str(hit["score"])), 4)) for hit in answer["results"]]
