"""Files and indexes as they should not be: each has an outcome and a reason, and the rest goes on."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.process import memline
from tests.support.workspace import paths


def _fifo(path):
    os.mkfifo(path)


def _link(path):
    target = path.parents[2] / "secret.md"
    target.write_text("# Secret\n\nThe password is xyzzy.\n")
    path.symlink_to(target)


def _sparse(path):
    with path.open("wb") as file:
        file.truncate(2 * 1024**3)


#: How a bad file is made, and what the ledger must say of it.
REFUSED: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a FIFO": (_fifo, "special", "not a regular file"),
    "a symbolic link": (_link, "symlink", "never followed"),
    "2 GB of nothing": (_sparse, "too_large", "2,147.5 MB, and notes of more than 16.8 MB are not read"),
    "a program": (lambda path: path.write_bytes(bytes(range(256)) * 40), "not_text", "NUL"),
    "noise": (lambda path: path.write_bytes(bytes(range(128, 256)) * 40), "not_text", "not text"),
    "an empty file": (lambda path: path.write_bytes(b""), "empty", "0 bytes"),
    "white space": (lambda path: path.write_bytes(b" \n\n\t\n"), "empty", "white space"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_cannot_be_indexed_is_named_with_its_reason(place, kind):
    make, outcome, reason = REFUSED[kind]
    make(place.workspace / "memory" / "bad.md")

    ran = place.call("index", "--json")
    status = place.call("status", "--verbose", "--json")
    found = place.call("search", "lighthouse password", "--json")

    assert ran.status == (1 if outcome in ("too_large", "not_text") else 0), ran.stderr
    (bad,) = [file for file in status.json[0]["files"] if file["path"] == "memory/bad.md"]
    assert bad["outcome"] == outcome
    assert reason in bad["reason"]
    assert [hit["path"] for hit in found.json["results"]] == ["memory/good.md"]
    assert place.call("reindex", "--plan", "--json").json[0]["files"] == 0, "looked at once, not every time"
    assert place.call("index", "--json").json[0]["files"]["unchanged"] == 1


def test_a_folder_that_becomes_a_link_takes_its_notes_out_of_the_index(place):
    place.write("memory/diary/day.md", "# Day\n\nThe password is plugh.\n")
    place.index()
    (place.workspace / "memory/diary").rename(place.folder / "moved")
    (place.workspace / "memory/diary").symlink_to(place.folder / "moved")

    place.index()

    assert paths(place.search("password plugh")) == []
    assert paths(place.search("lighthouse")) == ["memory/good.md"]


def test_names_that_cannot_be_kept_are_told_and_odd_names_that_can_are_indexed(place):
    folder = os.fsencode(place.workspace / "memory")
    Path(os.fsdecode(folder + b"/caf\xe9.md")).write_text("# Latin\n\nplugh\n")
    odd = ["a b.md", "q?#%.md", "line\nbreak.md", "-dash.md", "日記.md", "quote'\".md"]
    for name in odd:
        place.write(f"memory/{name}", f"# Odd\n\nxyzzy\n{name}\n")

    ran = place.run("index", "--json")
    answer = place.search("xyzzy", max_results=20)

    assert ran.status == 0
    assert ran.json[0]["failures"] == []
    assert any("caf\\xe9.md is not valid UTF-8" in each["what"] for each in ran.json[0]["findings"])
    assert set(paths(answer)) == {f"memory/{name}" for name in odd}
    assert paths(place.search("lighthouse")) == ["memory/good.md"]


def test_an_unreadable_file_and_folder_fail_alone_and_are_read_when_they_can_be(place):
    closed = place.write("memory/closed.md", "# Closed\n\nxyzzy\n")
    folder = place.write("memory/shut/inside.md", "# Inside\n\nplugh\n").parent
    closed.chmod(0)
    folder.chmod(0)

    ran = place.run_without_rights("index", "--json")
    again = place.run_without_rights("index", "--json")
    status = place.run_without_rights("status", "--verbose", "--json")
    answer = place.run_without_rights("search", "lighthouse", "--json")
    closed.chmod(0o644)
    folder.chmod(0o755)
    mended = place.run_without_rights("index", "--json")

    assert ran.status == 1, ran.stderr
    reasons = {failure["path"]: failure["reason"] for failure in ran.json[0]["failures"]}
    assert reasons == {"memory/closed.md": "not readable (EACCES)"}
    assert {file["path"]: file["outcome"] for file in status.json[0]["files"]} == {
        "memory/closed.md": "unreadable",
    }
    # Nothing changed: it is tried again, and not said to be new.
    assert again.json[0]["files"]["changed"] == 0
    assert status.json[0]["status"]["dirty"] is False
    for findings in (status.json[0]["findings"], answer.json["findings"]):
        told = {each["code"]: each for each in findings}
        assert "files_behind" not in told
        assert told["files_failed"]["what"].startswith("1 file could not be read: memory/closed.md")
    (shut,) = (each for each in status.json[0]["findings"] if each["code"] == "source_missing")
    assert shut["what"] == "the folder memory/shut is not readable (EACCES)"
    assert "let it be read" in shut["action"]
    assert mended.status == 0, mended.stdout
    assert sorted(paths(place.search("lighthouse xyzzy plugh"))) == [
        "memory/closed.md",
        "memory/good.md",
        "memory/shut/inside.md",
    ]


@pytest.mark.parametrize("name", ["memory", "memory/shut", "memory/shut.md"])
def test_a_folder_that_could_be_listed_again_is_no_removed_note(place, name):
    folder = place.write(f"{name}/inside.md", "# Inside\n\nplugh\n").parent
    assert place.run_without_rights("index").status == 0
    folder.chmod(0)
    shut = place.run_without_rights("index", "--json")
    said = place.run_without_rights("status", "--json").json[0]["findings"]
    folder.chmod(0o755)

    status = place.run_without_rights("status", "--json").json[0]
    mended = place.run_without_rights("index", "--json")

    assert (shut.status, shut.json[0]["failures"]) == (1, [])
    assert {"source_missing"} == {each["code"] for each in said} - {"no_provider"}
    assert {each["code"] for each in status["findings"]} <= {"no_provider"}
    files = mended.json[0]["files"]
    assert (mended.status, files["changed"], files["removed"], files["failed"]) == (0, 0, 0, 0)
    assert place.run_without_rights("status", "--verbose", "--json").json[0]["status"]["dirty"] is False
    assert len(place.search("plugh").hits) == 1


def test_a_missing_workspace_is_reported(tmp_path):
    ran = memline("--workspace", str(tmp_path / "nowhere"), "--home", str(tmp_path / "home"), "index")

    assert ran.status == 2
    assert f"{tmp_path / 'nowhere'}: no such folder" in ran.stderr
    assert "Try: check the path" in ran.stderr
    assert "mkdir" not in ran.stderr


def test_a_search_beside_a_file_that_cannot_be_read_is_not_behind(place):
    place.write("memory/closed.md", "# Closed\n\nxyzzy\n").chmod(0)
    place.run_without_rights("index")

    answer = place.run_without_rights("search", "lighthouse", "--json").json

    assert (answer["behind"]["files"], answer["stale"]) == (0, False)
    assert [each["code"] for each in answer["findings"]].count("files_behind") == 0
    assert answer["warning"].startswith("1 file could not be read: memory/closed.md")
