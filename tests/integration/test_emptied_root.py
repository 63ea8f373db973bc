"""A root of which no file is left keeps its rows until the removal is accepted; all else goes."""

import shutil
from pathlib import Path

import pytest

from tests.support.process import end, running_memline
from tests.support.workspace import until

pytestmark = pytest.mark.place(server={}, notes=20, is_indexed=True, cache={"enabled": False})


def away(place, count=20):
    """Move so many notes out of the workspace; their files are returned."""
    attic = place.folder / "attic"
    attic.mkdir(exist_ok=True)
    return [
        Path(shutil.move(place.workspace / f"memory/note-{number}.md", attic / f"note-{number}.md"))
        for number in range(count)
    ]


def back(place, files):
    for file in files:
        shutil.move(file, place.workspace / "memory" / file.name)


def test_an_emptied_root_stays_searched_and_is_said_until_its_files_are_back(place, server):
    before = place.contents()

    files = away(place)
    answer = place.call("search", "word3x1x7", "--json").json
    report = place.call("index", "--json")
    status = place.call("status", "--json").json[0]

    assert answer["results"][0]["path"] == "memory/note-3.md"
    assert "20 files are gone from" in answer["warning"] and "--accept-removals" in answer["action"]
    assert (report.status, report.json[0]["files"]["removed"]) == (0, 0)
    for said in (report.json[0], status):
        assert "root_emptied" in [each["code"] for each in said["findings"]]
    back(place, files)
    place.index()
    assert place.contents() == before
    assert place.search("word3x1x7").findings == ()
    assert {server.texts[digest.hex()] for digest in before.vectors} == {1}


def test_files_that_moved_within_the_root_are_paid_for_once(place, server):
    calls = len(server.texts)
    (place.workspace / "memory/old").mkdir()
    for file in sorted((place.workspace / "memory").glob("*.md")):
        shutil.move(file, place.workspace / "memory/old" / file.name)

    assert place.index().files["removed"] == 20
    assert set(place.outcomes()) == {f"memory/old/note-{number}.md" for number in range(20)}
    assert len(server.texts) == calls


def test_a_missing_workspace_answers_from_its_index_and_nothing_advises_mkdir(place):
    place.workspace.rename(place.folder / "unmounted")
    for args in (["search", "word3x1x7"], ["status"], ["doctor"], ["index"]):
        for options in ([], ["--workspace", str(place.workspace)]):
            ran = place.call(*options, *args)
            assert "mkdir" not in ran.stdout + ran.stderr
            assert str(place.workspace) in ran.stdout + ran.stderr
            assert ran.status == (args[0] in ("doctor", "index"))
    answer = place.call("search", "word3x1x7", "--json").json
    assert answer["results"][0]["path"] == "memory/note-3.md"
    assert "answers come from what was indexed of it, 20 files" in answer["warning"]
    assert len(place.outcomes()) == 20
    # The disk is mounted, and it is empty.
    place.workspace.mkdir()
    assert "20 files are gone" in place.search("word3x1x7").warning
    assert place.index().files["removed"] == 0


@pytest.mark.place(server={})
def test_a_configured_workspace_that_was_never_there_leads_to_its_line_in_the_file(place):
    place.workspace.rename(place.folder / "elsewhere")

    index, search, status = (place.call(*args) for args in (["index"], ["search", "x"], ["status"]))

    assert (index.status, search.status) == (1, 0)
    line = f"Try: put it back, or correct {place.config}: agents.defaults.workspace, then: memline"
    for said in (index.stderr, search.stderr, status.stdout.replace("try:", "Try:")):
        assert line in said
        assert said.lower().count("try:") == 1
        assert "the index holds no notes" not in said


def test_up_keeps_an_emptied_root_and_carries_out_plain_removals(place, server):
    place.configure(sync={"watchDebounceMs": 20})
    before = place.contents()
    with running_memline(*place.arguments("up")) as running:
        place.write("memory/new.md", "# New\n\nxyzzy\n")
        until(lambda: "memory/new.md" in place.outcomes(), "a new note")
        (place.workspace / "memory/new.md").unlink()
        until(lambda: "memory/new.md" not in place.outcomes(), "a plain removal")
        shutil.move(place.workspace / "memory", place.folder / "attic")
        until(lambda: "20 files are gone" in place.search("word3x1x7").warning, "that it is said")
        shutil.move(place.folder / "attic", place.workspace / "memory")
        place.write("memory/newer.md", "# Newer\n\nplugh\n")
        until(lambda: "memory/newer.md" in place.outcomes(), "a note after they are back")
        (place.workspace / "memory/newer.md").unlink()
        until(lambda: "memory/newer.md" not in place.outcomes(), "another removal")
        end(running)

    assert place.contents() == before
    assert {server.texts[digest.hex()] for digest in before.vectors} == {1}
