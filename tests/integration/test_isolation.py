"""Two workspaces never share an index, and an index is never taken from its workspace."""

import json

import pytest

from tests.support.shell import Shell


@pytest.fixture
def shell(monkeypatch, capsys, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    return Shell(monkeypatch, capsys)


@pytest.fixture
def indexes(home):
    return home / ".local/share/memline/memory"


def made(folder, text):
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text(text)
    return folder


def names(folder):
    return {file.name for file in folder.glob("*.sqlite")}


def cited(shell, *args):
    return [hit["snippet"] for hit in shell(*args, "--json").json["results"]]


def test_one_file_for_two_workspaces_is_refused(shell, tmp_path):
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
        assert "give each workspace a store.path of its own" in ran.stdout + ran.stderr
        assert ran.status == (0 if command == "status" else 1)
    assert cited(shell, "--workspace", str(one), "search", "alpha") == ["Alpha."]


def test_the_index_of_an_agent_follows_its_configured_workspace(shell, tmp_path, home, indexes):
    one = made(tmp_path / "one", "Alpha.\n")
    config = home / ".config/memline/config.json5"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"agents": {"defaults": {"workspace": str(one)}}}))
    shell("index")
    moved = one.rename(tmp_path / "moved")
    config.write_text(json.dumps({"agents": {"defaults": {"workspace": str(moved)}}}))

    ran = shell("index")

    assert (ran.status, "1 unchanged" in ran.stdout, names(indexes)) == (0, True, {"main.sqlite"})
    assert cited(shell, "search", "alpha") == ["Alpha."]
