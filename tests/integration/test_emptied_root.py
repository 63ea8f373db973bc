"""A root whose files vanish together is kept: nothing is paid for again, and every answer says so."""

import os
import shutil
import time
from pathlib import Path

import pytest

from memline.producers.memory import Memory
from memline.producers.watching.follow import Follower
from memline.shared.sources.append import local_time, log_path
from tests.support.embedding_server import EmbeddingServer
from tests.support.process import end, running_memline
from tests.support.workspace import Place, paths, until

pytestmark = pytest.mark.place(server={}, notes=20, is_indexed=True, cache={"enabled": False})


def away(place: Place, count: int = 20) -> list[Path]:
    """Move so many notes out of the workspace; their files are returned."""
    attic = place.folder / "attic"
    attic.mkdir(exist_ok=True)
    return [
        Path(shutil.move(place.workspace / f"memory/note-{number}.md", attic / f"note-{number}.md"))
        for number in range(count)
    ]


def back(place: Place, files: list[Path]) -> None:
    for file in files:
        shutil.move(file, place.workspace / "memory" / file.name)


@pytest.mark.parametrize("count", [20, 11])
def test_a_search_keeps_what_vanished_together_and_says_so(
    place: Place, server: EmbeddingServer, count: int
) -> None:
    before = place.contents()

    files = away(place, count)
    answer = place.call("search", "word3x1x7", "--json").json
    again = place.search("word3x1x7")
    report = place.call("index", "--json")

    (kept,) = answer["kept"]
    assert (kept["files"], kept["root"]) == (count, str(place.workspace))
    assert answer["results"][0]["path"] == "memory/note-3.md"
    assert place.call("get", "memory/note-3.md#L1-L3").stdout == "# Note 3\n\n## Section 0 of 3\n"
    assert place.call("get", "memory/note-3.md", "--json").json["kept"] == [kept]
    assert place.call("get", "memory/none.md", "--json").json["kept"] == [kept]
    assert "root_emptied" in [each["code"] for each in answer["findings"]]
    assert (again.kept[0]["since"], again.stale) == (kept["since"], False)
    assert report.status == 0
    assert report.json[0]["kept"] == [kept]
    assert report.json[0]["files"]["removed"] == 0
    status = place.call("status", "--json").json[0]
    assert status["status"]["kept"] == [kept]
    back(place, files)
    place.index()
    assert place.contents() == before
    assert place.search("word3x1x7").kept == ()
    assert {server.texts[digest.hex()] for digest in before.vectors} == {1}


@pytest.mark.parametrize("gone", ["notes", "memory", "."])
def test_no_export_takes_the_place_of_a_whole_one_while_notes_are_kept(
    place: Place, tmp_path: Path, gone: str
) -> None:
    file = tmp_path / "all.memline"
    place.call("export", str(file))
    whole = file.read_bytes()
    if gone == "notes":
        away(place)
    else:
        shutil.move(place.workspace / gone, tmp_path / "disk")

    done = place.call("export", str(file))

    assert done.status == 1
    assert "20 notes are gone from" in done.stderr
    assert "kept in the index since 20" in done.stderr
    assert "--accept-removals" in done.stderr
    assert file.read_bytes() == whole
    assert place.call("export", str(file), "--what", "vectors").status == 0


@pytest.mark.parametrize("gone", ["notes", "memory", "."])
@pytest.mark.parametrize("name", ["note-3", "Note 3", "NOTE-3.md", "./memory/note-3.md"])
def test_what_is_kept_is_read_by_its_name_too(place: Place, tmp_path: Path, gone: str, name: str) -> None:
    if gone == "notes":
        away(place)
    else:
        shutil.move(place.workspace / gone, tmp_path / "disk")

    note = place.call("get", f"{name}#L1-L3")

    assert (note.status, note.stdout) == (0, "# Note 3\n\n## Section 0 of 3\n")


@pytest.mark.parametrize("gone", ["memory", "."])
def test_what_is_kept_is_read_and_said_before_any_search(place: Place, tmp_path: Path, gone: str) -> None:
    today = log_path(local_time(time.time()).date())
    place.write(today, "# Today\n\nWe met the owls.\n")
    place.index()
    shutil.move(place.workspace / gone, tmp_path / "disk")
    said = f"21 files are gone from {place.workspace}, and kept in the index\n"

    note = place.call("get", "memory/note-3.md#L1-L3")
    context = place.call("context")
    plan = place.call("reindex", "--plan")

    assert (note.status, note.stdout) == (0, "# Note 3\n\n## Section 0 of 3\n")
    assert said in note.stderr
    assert place.call("get", "memory/note-3.md", "--json").json["kept"][0]["files"] == 21
    assert all(hit.gone for hit in place.search("owls").hits)
    assert place.call("search", "owls", "--format", "files").stdout == ""
    assert "We met the owls." in context.stdout
    assert said in context.stderr
    assert place.call("context", "--json").json["kept"][0]["root"] == str(place.workspace)
    assert said in plan.stdout
    assert place.call("get", "memory/none.md").status == 1


def test_up_says_that_the_workspace_is_missing(place: Place, tmp_path: Path) -> None:
    shutil.move(place.workspace, tmp_path / "disk")

    (line,) = Follower([place.agent]).describe()

    assert line.endswith(": the folder is missing, and what was indexed of it is kept")


def test_fewer_are_removed_at_once(place: Place) -> None:
    away(place, 10)

    assert place.index().files["removed"] == 10
    assert place.search("word3x1x7").kept == ()


@pytest.mark.place(server={}, notes=4, is_indexed=True)
def test_a_small_root_whose_folder_is_there_is_not_kept(place: Place) -> None:
    away(place, 4)

    assert place.index().files["removed"] == 4


def test_an_accepted_removal_is_carried_out(place: Place) -> None:
    away(place)
    place.index()

    report = place.call("index", "--accept-removals", "--json")

    assert report.json[0]["files"]["removed"] == 20
    assert place.outcomes() == {}
    assert place.rows("SELECT count(*) FROM vectors") == [(0,)]
    assert place.search("word3x1x7").kept == ()


@pytest.mark.parametrize("hours", [24, 2])
def test_what_is_kept_goes_when_its_hours_are_over(place: Place, hours: int) -> None:
    place.configure(sync={"keepVanishedHours": hours})
    away(place)
    place.index()
    place.execute("UPDATE kept SET since = since - ?", hours * 3_600 - 60)
    assert place.index().files["removed"] == 0

    place.execute("UPDATE kept SET since = since - 120")

    assert place.index().files["removed"] == 20
    assert place.outcomes() == {}


@pytest.mark.parametrize("keeps_times", [True, False])
def test_files_that_moved_within_the_root_are_no_removal(
    place: Place, server: EmbeddingServer, keeps_times: bool
) -> None:
    calls = len(server.texts)
    (place.workspace / "memory/old").mkdir()
    for file in sorted((place.workspace / "memory").glob("*.md")):
        moved = Path(shutil.move(file, place.workspace / "memory/old" / file.name))
        if not keeps_times:
            os.utime(moved)

    report = place.index()

    assert (report.files["removed"], report.kept) == (20, ())
    assert set(place.outcomes()) == {f"memory/old/note-{number}.md" for number in range(20)}
    assert len(server.texts) == calls


def test_a_removal_of_one_more_is_carried_out_while_others_are_kept(place: Place) -> None:
    away(place, 12)
    place.index()
    (place.workspace / "memory/note-19.md").unlink()

    report = place.index()

    assert (report.files["removed"], report.kept[0].files) == (1, 12)


def test_a_folder_of_extra_paths_that_is_missing_is_kept(place: Place) -> None:
    wiki = place.folder / "wiki"
    wiki.mkdir()
    (wiki / "w.md").write_text("Wombat facts.")
    place.configure(extraPaths=[str(wiki)])
    place.index()
    shutil.rmtree(wiki)

    answer = place.search("wombat")
    assert paths(answer)[0] == str(wiki / "w.md")
    assert [(each["files"], each["root"]) for each in answer.kept] == [(1, str(wiki))]
    place.configure(extraPaths=[])
    assert place.index().files["removed"] == 1


def test_a_missing_workspace_answers_from_its_index_and_nothing_advises_mkdir(place: Place) -> None:
    place.workspace.rename(place.folder / "unmounted")
    for args in (["search", "word3x1x7"], ["status"], ["doctor"], ["index"]):
        for options in ([], ["--workspace", str(place.workspace)]):
            ran = place.call(*options, *args)
            assert "mkdir" not in ran.stdout + ran.stderr
            assert str(place.workspace) in ran.stdout + ran.stderr
            assert ran.status == (args[0] in ("doctor", "index"))
    answer = place.call("search", "word3x1x7", "--json").json
    assert answer["results"][0]["path"] == "memory/note-3.md"
    assert [each["files"] for each in answer["kept"]] == [20]
    assert len(place.outcomes()) == 20
    note = place.call("get", "memory/note-3.md#L1-L3", "--json").json
    assert note["text"] == "# Note 3\n\n## Section 0 of 3"
    assert [(each["files"], each["root"]) for each in note["kept"]] == [(20, str(place.workspace))]
    assert "answers come from what was indexed" in answer["warning"]
    # The disk is mounted, and it is empty.
    place.workspace.mkdir()
    assert place.search("word3x1x7").kept[0]["files"] == 20
    assert place.index().files["removed"] == 0


@pytest.mark.place(server={})
def test_a_configured_workspace_that_was_never_there_leads_to_its_line_in_the_file(place: Place) -> None:
    place.workspace.rename(place.folder / "elsewhere")

    index, search, status = (place.call(*args) for args in (["index"], ["search", "x"], ["status"]))

    assert (index.status, search.status) == (1, 0)
    line = f"Try: correct agents.defaults.workspace in {place.config}, or put the folder back, then: memline"
    for said in (index.stderr, search.stderr, status.stdout.replace("try:", "Try:")):
        assert line in said
        assert said.lower().count("try:") == 1
        assert "the index holds no notes" not in said


def test_up_keeps_what_vanishes_within_a_minute(place: Place, server: EmbeddingServer) -> None:
    """The files go in two parts, and the first alone would be no reason."""
    place.configure(sync={"watchDebounceMs": 20})
    before, calls = place.contents(), len(server.texts)
    with running_memline(*place.arguments("up")) as running:
        place.write("memory/new.md", "# New\n\nxyzzy\n")
        until(lambda: "memory/new.md" in place.outcomes(), "a new note")
        files = away(place, 8)
        place.write("memory/newer.md", "# Newer\n\nplugh\n")
        until(lambda: "memory/newer.md" in place.outcomes(), "the watcher after the first part")
        assert "memory/note-0.md" in place.outcomes()
        files += [
            Path(shutil.move(place.workspace / f"memory/note-{number}.md", place.folder / "attic"))
            for number in range(8, 20)
        ]
        until(lambda: place.rows("SELECT count(*) FROM kept") == [(20,)], "that they are kept")
        back(place, files)
        until(lambda: place.rows("SELECT count(*) FROM kept") == [(0,)], "that they are back")
        (place.workspace / "memory/new.md").unlink()
        until(lambda: "memory/new.md" not in place.outcomes(), "a plain removal")
        (place.workspace / "memory/newer.md").unlink()
        until(lambda: "memory/newer.md" not in place.outcomes(), "another")
        end(running)

    assert place.contents() == before
    assert len(server.texts) == calls + 2


def test_a_tree_that_comes_back_under_another_name_is_followed_without_a_word_of_the_watcher(
    place: Place,
) -> None:
    for number in range(20):
        place.write(f"memory/tree/{number}/deep/a.md", f"# Deep {number}\n")
    place.index()
    with running_memline(*place.arguments("up")) as running:
        place.write("memory/new.md", "# New\n")
        until(lambda: "memory/new.md" in place.outcomes(), "the watcher")
        shutil.move(place.workspace / "memory/tree", place.folder / "tree")
        shutil.move(place.folder / "tree", place.workspace / "memory/back")
        until(lambda: "memory/back/19/deep/a.md" in place.outcomes(), "the tree")
        place.write("memory/back/7/deep/b.md", "# Later\n")
        until(lambda: "memory/back/7/deep/b.md" in place.outcomes(), "a note in it")
        said = end(running)

    assert [line for line in said.splitlines() if "Warning" in line or "inotify" in line] == []


def test_a_long_lived_memory_keeps_them_too(place: Place) -> None:
    with Memory.of(place.settings, place.agent, long_lived=True) as memory:
        assert memory.search("word3x1x7").kept == ()
        away(place)
        until(lambda: bool(memory.search("word3x1x7").kept), "what is kept")
        assert paths(memory.search("word3x1x7"))[0] == "memory/note-3.md"
