"""From a folder of any kind to a cited answer, and further folders beside it."""

import json
import shlex
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from memline.producers.api.calls import Caller, Calls
from memline.shared.config.load import Options, load
from tests.support.pseudo_terminal import on_terminal, plain
from tests.support.shell import Shell

#: Kind of folder: its files, and what is not read of it.
KINDS = {
    "openclaw": (
        {
            "AGENTS.md": "Rules.",
            "SOUL.md": "Me.",
            "memory/2026-02-10.md": "# Deploy\n\nRolled back to a828e60.",
        },
        ["AGENTS.md", "SOUL.md"],
    ),
    "long-term": (
        {"MEMORY.md": "# Deploy\n\nRolled back to a828e60.", "README.md": "x"},
        ["README.md"],
    ),
    "docs repository": (
        {
            ".git/HEAD": "ref: refs/heads/main",
            ".gitignore": "build/\n",
            "README.md": "# App",
            "docs/ops/deploy.md": "# Deploy\n\nRolled back to a828e60.",
            "build/out.md": "# Generated",
        },
        ["build/out.md"],
    ),
    "plain": ({"b.md": "# Deploy\n\nRolled back to a828e60.", "sub/c.md": "x"}, []),
}


@pytest.fixture
def shell(monkeypatch, capsys, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return Shell(monkeypatch, capsys)


def make(folder, files):
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_a_folder_of_any_kind_answers_after_init(shell, tmp_path, name):
    files, unread = KINDS[name]
    folder = make(tmp_path / name, files)
    before = sorted(folder.rglob("*"))

    ran = shell("init", str(folder), "--yes")

    assert ran.status == 0
    assert f"{folder}: " in ran.stdout
    assert f"  memline --workspace {shlex.quote(str(folder))} setup claude --write\n" in ran.stdout
    assert sorted(folder.rglob("*")) == before
    # In a new terminal.
    found = shell("search", "a828e60", "--json", cwd=folder).json
    assert len(found["results"]) == 1
    status = shell("status", "--json").json[0]["status"]
    markdown = [path for path in files if path.endswith(".md")]
    assert (status["workspaceDir"], status["files"]) == (str(folder), len(markdown) - len(unread))
    again = shell("init", str(folder), "--yes")
    assert again.status == 0


def test_a_lost_index_of_a_folder_comes_back_from_its_backup(shell, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text(f"# Note {name}\n")
        shell("init", "--yes", cwd=tmp_path / name)
        made = shell("backup", "--json", cwd=tmp_path / name)
    folder = Path(shell("status", "--json", cwd=tmp_path / "two").json[0]["status"]["dbPath"]).parent
    shutil.rmtree(folder)

    restored = shell("backup", "restore", made.json[0]["path"], "--json", cwd=tmp_path / "two")

    assert restored.json["isIndex"]
    assert [
        hit["path"] for hit in shell("search", "note", "--json", cwd=tmp_path / "two").json["results"]
    ] == ["a.md"]


def test_init_takes_the_current_folder(shell, tmp_path):
    folder = make(tmp_path / "notes", {"a.md": "One."})

    assert shell("init", cwd=folder).status == 0
    assert shell("init", str(tmp_path / "elsewhere"), "--yes").status == 1
    file = shell("init", str(folder / "a.md"), "--yes")
    assert (file.status, f"a.md is a file, not a folder: memline init {folder}" in file.stderr) == (2, True)


WIDE = {
    "a home directory": ({"a.md": "One.", "b.md": "Two."}, "is your home directory, with 2 Markdown files"),
    "thousands of files": (
        {f"{n // 100}/{n}.md": f"Note {n}." for n in range(2_001)},
        "has 2,001 Markdown files and is not a repository, vault or graph",
    ),
}


@pytest.mark.parametrize("name", WIDE)
def test_init_takes_a_home_or_thousands_of_files_only_when_told_to(shell, tmp_path, home, name):
    files, words = WIDE[name]
    folder = make(home if "home" in name else tmp_path / "many", files)

    refused = shell("init", "--yes", cwd=folder)

    assert refused.status == 2
    assert f"{folder} {words}" in refused.stderr
    assert f"memline init {folder} --yes --anyway" in refused.stderr
    assert not (home / ".local/share/memline/memory").exists()
    with on_terminal("init") as terminal:
        terminal.until(lambda shown: "Index all of it?" in plain(shown), "the question")
        terminal.type("n\n")
        assert terminal.end() == 1
    assert not (home / ".local/share/memline/memory").exists()
    assert shell("init", "--yes", "--anyway").status == 0


def test_init_refuses_what_holds_the_home_and_takes_a_large_repository(shell, tmp_path, home):
    make(home / "notes", {"a.md": "One."})
    many = make(tmp_path / "many", {f"docs/{n}.md": f"Note {n}." for n in range(2_001)})
    (many / ".git").mkdir()

    above = shell("init", str(home.parent), "--yes")
    repository = shell("init", str(many / "docs"), "--yes")

    assert (above.status, "contains your home directory" in above.stderr) == (2, True)
    assert repository.status == 0


def test_every_answer_names_its_workspace(shell, tmp_path, home):
    notes = make(home / "notes", {"a.md": "Alpha here."})
    (empty := tmp_path / "empty").mkdir()
    file = home / ".config/memline/config.json5"
    make(file.parent, {file.name: json.dumps({"agents": {"defaults": {"workspace": str(notes)}}})})
    changed = shell("index")
    assert (changed.status, f"Changes the notes of {notes} (" in changed.stderr) == (0, True)

    for folder in (notes, empty, home):
        for words in (("search", "alpha"), ("get", "a.md")):
            ran = shell(*words, cwd=folder)
            assert ran.status == 0, ran.stderr
            # Nobody reads it on a terminal.
            assert ran.stderr == ""
            assert shell(*words, "--json").json["workspace"] == str(notes)
        settings = load(Options())
        with closing(Calls(settings, ("main",))) as tools:
            caller = Caller(agent="main")
            assert tools.search(caller, query="alpha")["workspace"] == str(notes)
            assert tools.get(caller, path="a.md")["workspace"] == str(notes)
