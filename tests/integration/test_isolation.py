"""Two workspaces never share an index, and an index is never taken from its workspace."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memline import Memory
from memline.shared.config import workspaces
from memline.shared.index import driver, meta, repair
from tests.support.embedding_server import EmbeddingServer
from tests.support.shell import Shell
from tests.support.workspace import Place, remote


@pytest.fixture
def shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Shell]:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    return Shell(monkeypatch, capsys)


@pytest.fixture
def indexes(home: Path) -> Path:
    return home / ".local/share/memline/memory"


def made(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text(text)
    return folder


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("*.sqlite")}


def cited(shell: Shell, *args: str) -> list[str]:
    return [hit["snippet"] for hit in shell(*args, "--json").json["results"]]


def test_two_workspaces_have_two_indexes_and_never_see_each_other(
    shell: Shell, tmp_path: Path, indexes: Path
) -> None:
    one = made(tmp_path / "one", "The alpha secret is in the cellar.\n")
    two = made(tmp_path / "two", "The beta plan is in the attic.\n")

    for folder in (one, two):
        assert shell("--workspace", str(folder), "index").status == 0

    assert names(indexes) == {f"main-{workspaces.digest(each)}.sqlite" for each in (one, two)}
    assert cited(shell, "--workspace", str(two), "search", "secret cellar plan") == [
        "The beta plan is in the attic."
    ]
    assert cited(shell, "--workspace", f"{one}/", "search", "alpha") == ["The alpha secret is in the cellar."]
    with Memory(two) as memory:
        assert not memory.search("alpha").hits
        assert memory.search("beta").hits


def test_status_config_and_doctor_name_the_same_file(shell: Shell, tmp_path: Path, indexes: Path) -> None:
    folder = made(tmp_path / "one", "A note.\n")
    shell("--workspace", str(folder), "index")
    file = str(indexes / f"main-{workspaces.digest(folder)}.sqlite")
    shell.setenv("MEMLINE_WORKSPACE", str(folder))

    assert shell("status", "--json").json[0]["status"]["dbPath"] == file
    assert file in shell("config", "show").stdout
    assert file in shell("doctor").stdout
    Path(file).unlink()
    assert f"nothing is indexed yet, {file} is missing" in shell("doctor").stdout
    missing = shell("--workspace", str(folder), "doctor")
    assert f"memline --workspace {folder} index" in missing.stdout


def test_the_index_of_a_workspace_that_was_configured_is_its_own_without_a_configuration(
    tmp_path: Path, shell: Shell
) -> None:
    with EmbeddingServer() as server:
        place = Place(folder=tmp_path / "user", memory=remote(server.url))
        place.write("MEMORY.md", "The umbrella is in the cellar.\n")
        place.index()
        sent = dict(server.texts)
        config = tmp_path / "other.json5"
        config.write_text(json.dumps({"agents": {"defaults": {"memorySearch": place.memory}}}))
        options = ("--config", str(config), "--home", str(place.home), "--workspace")

        assert shell(*options, str(place.workspace), "index").status == 0
        other = made(tmp_path / "other", "Alpha.\n")
        assert shell(*options, str(other), "index").status == 0

        # The text of the other workspace, and no text twice.
        assert server.texts.keys() > sent.keys() and list(server.texts.values()) == [1, 1]
    assert names(place.home / "memory") == {"main.sqlite", f"main-{workspaces.digest(other)}.sqlite"}


def test_the_index_of_another_workspace_is_kept_when_a_configured_one_comes(
    shell: Shell, tmp_path: Path, home: Path, indexes: Path
) -> None:
    one = made(tmp_path / "one", "Alpha.\n")
    two = made(tmp_path / "two", "Beta.\n")
    config = home / ".config/memline/config.json5"
    config.parent.mkdir(parents=True)

    for folder, other in ((one, two), (two, one)):
        config.write_text(json.dumps({"agents": {"defaults": {"workspace": str(folder)}}}))
        assert cited(shell, "search", "alpha beta") == [folder.joinpath("MEMORY.md").read_text().strip()]
        assert shell("status", "--json").json[0]["status"]["dbPath"] == str(indexes / "main.sqlite")
        assert other.is_dir()

    assert names(indexes) == {"main.sqlite", f"main-{workspaces.digest(one)}.sqlite"}
    with closing(driver.open_reader(indexes / f"main-{workspaces.digest(one)}.sqlite")) as reader:
        assert meta.get(reader, meta.WORKSPACE) == str(one)


def test_an_index_that_is_in_use_stays_where_it_is(
    shell: Shell, tmp_path: Path, home: Path, indexes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made(tmp_path / "one", "Alpha.\n")
    two = made(tmp_path / "two", "Beta.\n")
    monkeypatch.setattr(repair, "MOVE_WAIT_S", 0.01)
    config = home / ".config/memline/config.json5"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"agents": {"defaults": {"workspace": str(one)}}}))
    shell("index")
    config.write_text(json.dumps({"agents": {"defaults": {"workspace": str(two)}}}))

    with closing(driver.open_reader(indexes / "main.sqlite")):
        ran = shell("index")

    assert ran.status == 1
    assert "another process has it open" in ran.stderr
    assert shell("search", "alpha").stdout.count("Alpha") == 0


def test_a_moved_folder_takes_its_index_along_when_asked(shell: Shell, tmp_path: Path, indexes: Path) -> None:
    one = made(tmp_path / "one", "Alpha.\n")
    shell("--workspace", str(one), "index")
    moved = one.rename(tmp_path / "moved")

    ran = shell("--workspace", str(moved), "index", "--adopt", str(one))

    assert (ran.status, names(indexes)) == (0, {f"main-{workspaces.digest(moved)}.sqlite"})
    assert "1 unchanged" in ran.stdout
    assert shell("--workspace", str(moved), "index", "--adopt", str(one)).status == 1


def test_an_index_names_the_workspace_that_was_not_given(shell: Shell, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "MEMORY.md").write_text("Alpha.\n")

    given = shell("--workspace", str(notes), "index", cwd=tmp_path / "empty")
    inside = shell("index", cwd=notes)
    found = shell("index", cwd=tmp_path / "empty")

    assert f"of {notes}" not in given.stdout + inside.stdout
    assert f"  of {notes} (the only workspace with an index)\n" in found.stdout


def test_a_mistyped_agent_makes_no_second_index(shell: Shell, tmp_path: Path, indexes: Path) -> None:
    folder = made(tmp_path / "one", "Alpha.\n")
    shell("--workspace", str(folder), "index")
    before = names(indexes)

    for command in (("index",), ("search", "alpha"), ("status",), ("up",)):
        ran = shell("--workspace", str(folder), "--agent", "mian", *command)
        assert (ran.status, names(indexes)) == (2, before)
        assert "there is no agent 'mian' yet; these have an index: main" in ran.stderr
        assert " --agent mian index --new-agent" in ran.stderr

    assert shell("--workspace", str(folder), "--agent", "work", "index", "--new-agent").status == 0
    assert shell("--workspace", str(folder), "--agent", "work", "search", "alpha").status == 0
    assert len(names(indexes)) == 2


def test_one_file_for_two_workspaces_is_refused(shell: Shell, tmp_path: Path) -> None:
    one = made(tmp_path / "one", "Alpha.\n")
    two = made(tmp_path / "two", "Beta.\n")
    config = tmp_path / "c.json5"
    config.write_text('{memorySearch: {store: {path: "shared.sqlite"}}}')
    shell.setenv("MEMLINE_CONFIG", str(config))
    assert shell("--workspace", str(one), "index").status == 0

    for command in ("index", "search alpha", "status", "doctor", "up"):
        ran = shell("--workspace", str(two), *command.split())
        assert "Alpha" not in ran.stdout
        assert f"is of another workspace, {one}" in ran.stdout + ran.stderr
        # The commands of doctor repeat the options.
        assert f" index --adopt {one}" in ran.stdout + ran.stderr
        assert ran.status == (0 if command == "status" else 1)
    assert cited(shell, "--workspace", str(one), "search", "alpha") == ["Alpha."]
