"""Two workspaces never share an index, and an index is never taken from its workspace."""

import json
import os
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
    again = shell("--workspace", str(moved), "index", "--adopt", str(one))
    assert (again.status, f"there is no index of {one}, and {moved} has its own" in again.stderr) == (1, True)
    assert again.stderr.splitlines()[-1].endswith(" index") and "away" not in again.stderr


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


@pytest.fixture
def moved(shell: Shell, tmp_path: Path) -> tuple[Path, Path]:
    """A folder that was initialised and indexed, and then moved; returns what it was and what it is."""
    one = made(tmp_path / "one", "Alpha.\n")
    (one / "docs").mkdir()
    (one / "docs/deep.md").write_text("Beta.\n")
    other = tmp_path / "other"
    other.mkdir()
    (other / "wiki.md").write_text("Gamma.\n")
    shell("init", str(one), "--yes")
    for folder in (one / "docs", other):
        assert shell("--workspace", str(one), "add", str(folder)).status == 0
    file = workspaces.settings_file(one, os.environ)
    file.write_text(file.read_text().replace("exclude: []", 'exclude: ["drafts/"]'))
    shell("--workspace", str(one), "index")
    return one, one.rename(tmp_path / "moved")


@pytest.mark.parametrize(
    "command", ["search alpha", "status", "index", "doctor", "get MEMORY.md", "config show", "add ."]
)
def test_every_command_in_a_moved_folder_says_so(
    shell: Shell, moved: tuple[Path, Path], command: str
) -> None:
    one, now = moved

    ran = shell(*command.split(), cwd=now)

    assert f"{now} was {one}: its settings and its index are still those of that folder\nTry: memline " in (
        ran.stderr
    ).replace("Error: ", "")
    assert f"index --adopt {one}\n" in ran.stderr


def test_a_moved_folder_that_nothing_names_is_known_as_well(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "one/sub").mkdir(parents=True)
    (tmp_path / "one/note.md").write_text("Alpha.\n")
    shell("init", str(tmp_path / "one"), "--yes")
    now = (tmp_path / "one").rename(tmp_path / "now")

    for command in ("search alpha", "status", "index", "up"):
        ran = shell(*command.split(), cwd=now / "sub")
        assert (ran.status, f"Error: {now} was {tmp_path / 'one'}: " in ran.stderr) == (2, True)
        assert ran.stderr.endswith(f"Try: memline index --adopt {tmp_path / 'one'}\n")
    for command in ("config check", "config path", "config show"):
        told = shell(*command.split(), cwd=now / "sub").stderr
        assert f"{now} was {tmp_path / 'one'}: " in told, command
        assert f"Try: memline index --adopt {tmp_path / 'one'}\n" in told
    taken = shell("index", "--adopt", "../../one", cwd=now / "sub")

    assert (taken.status, "1 unchanged" in taken.stdout) == (0, True)
    assert cited(shell, "search", "alpha") == ["Alpha."]


def test_one_command_in_a_moved_folder_takes_settings_and_index(
    shell: Shell, moved: tuple[Path, Path], indexes: Path
) -> None:
    one, now = moved
    refused = shell("init", str(now), "--yes")
    # What a search brings in on its way is no reason to lose what was paid for.
    shell("search", "alpha", cwd=now)

    ran = shell("index", "--adopt", str(one), cwd=now)

    file = workspaces.settings_file(now, os.environ)
    assert (refused.status, f"index --adopt {one}" in refused.stderr) == (2, True)
    assert ran.status == 0, ran.stderr
    assert f"The settings of {one} are those of {now} now: {file}" in ran.stderr
    assert not workspaces.settings_file(one, os.environ).exists()
    assert names(indexes) == {f"main-{workspaces.digest(now)}.sqlite"}
    shown = shell("config", "show", "--changed", cwd=now)
    assert f'"{now}/docs"' in shown.stdout and "drafts/" in shown.stdout and f"{one}/" not in shown.stdout
    assert "was" not in shown.stderr
    for word in ("alpha", "beta", "gamma"):
        assert cited(shell, "search", word) == [f"{word.capitalize()}."]


def test_another_folder_is_not_taken_for_one_that_was_moved(
    shell: Shell, moved: tuple[Path, Path], tmp_path: Path
) -> None:
    _, now = moved
    made(tmp_path / "third", "Delta.\n")

    third = shell("--workspace", str(tmp_path / "third"), "status")
    for file in (now / "MEMORY.md", now / "docs/deep.md"):
        file.write_text("Others.\n")
    changed = shell("--workspace", str(now), "status")

    assert "--adopt" not in third.stderr + changed.stderr
