"""From a folder of any kind to a cited answer, and further folders beside it."""

import json
import os
import re
import shlex
from contextlib import closing
from pathlib import Path

import pytest

from memline.producers.agents.tools import Caller, MemoryTools
from memline.shared.config import workspaces
from memline.shared.config.load import Options, load
from tests.support.pseudo_terminal import on_terminal, plain
from tests.support.shell import Shell

#: Kind of folder: its files, the words for it, and what is not read of it.
KINDS = {
    "openclaw": (
        {
            "AGENTS.md": "Rules.",
            "SOUL.md": "Me.",
            "memory/2026-02-10.md": "# Deploy\n\nRolled back to a828e60.",
        },
        "an OpenClaw workspace",
        ["AGENTS.md", "SOUL.md"],
    ),
    "long-term": (
        {"MEMORY.md": "# Deploy\n\nRolled back to a828e60.", "README.md": "x"},
        "a folder with MEMORY.md or memory/",
        ["README.md"],
    ),
    "obsidian": (
        {
            ".obsidian/app.json": "{}",
            "Projects/Deploy.md": "# Deploy\n\nRolled back to a828e60.",
            "Templates/Day.md": "# {{date}}",
        },
        "an Obsidian vault",
        ["Templates/Day.md"],
    ),
    "logseq": (
        {
            "logseq/config.edn": "{}",
            "journals/2026_03_02.md": "- Rolled back to a828e60.",
            "pages/deploy.md": "- see the journal",
            "logseq/bak/pages/deploy/old.md": "- old",
        },
        "a Logseq graph",
        ["logseq/bak/pages/deploy/old.md"],
    ),
    ".claude/projects/-home-u-app/memory": (
        {"MEMORY.md": "- deploys: see deploy.md", "deploy.md": "# Deploy\n\nRolled back to a828e60."},
        "the project memory of Claude Code",
        [],
    ),
    "docs repository": (
        {
            ".git/HEAD": "ref: refs/heads/main",
            ".gitignore": "build/\n",
            "README.md": "# App",
            "docs/ops/deploy.md": "# Deploy\n\nRolled back to a828e60.",
            "build/out.md": "# Generated",
        },
        "a repository with documentation",
        ["build/out.md"],
    ),
    "plain": ({"b.md": "# Deploy\n\nRolled back to a828e60.", "sub/c.md": "x"}, "a folder of Markdown", []),
}


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return Shell(monkeypatch, capsys)


def make(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_a_folder_of_any_kind_answers_after_init(shell: Shell, tmp_path: Path, name: str) -> None:
    files, kind, unread = KINDS[name]
    folder = make(tmp_path / name, files)
    before = sorted(folder.rglob("*"))

    ran = shell("init", str(folder), "--yes")

    assert (ran.status, ran.stderr) == (0, "")
    assert f"{folder} is {kind}:" in ran.stdout
    assert "$ memline search" in ran.stdout
    assert f"Claude Code  memline --workspace {shlex.quote(str(folder))} setup claude --write" in ran.stdout
    assert sorted(folder.rglob("*")) == before
    # In a new terminal, anywhere.
    (elsewhere := tmp_path / "without notes").mkdir()
    found = shell("search", "a828e60", "--json", cwd=elsewhere).json
    assert len(found["results"]) == 1
    status = shell("status", "--json").json[0]["status"]
    markdown = [path for path in files if path.endswith(".md")]
    assert (status["workspaceDir"], status["files"]) == (str(folder), len(markdown) - len(unread))
    again = shell("init", str(folder), "--yes")
    assert (again.status, "Kept " in again.stdout) == (0, True)
    assert shell("config", "path").stdout.strip() in again.stdout


def test_init_takes_the_current_folder_and_asks_on_a_terminal_only(shell: Shell, tmp_path: Path) -> None:
    folder = make(tmp_path / "notes", {"a.md": "One."})

    ran = shell("init", cwd=folder)

    assert (ran.status, "memline init" in ran.stderr) == (2, True)
    assert shell("init", "--yes").status == 0
    assert shell("init", str(tmp_path / "elsewhere"), "--yes").status == 1


@pytest.mark.parametrize("mark", [".obsidian/app.json", "logseq/config.edn"])
def test_init_takes_thousands_of_notes_of_a_vault_or_a_graph(shell: Shell, tmp_path: Path, mark: str) -> None:
    vault = make(tmp_path / "vault", {f"pages/{n}.md": f"Note {n}." for n in range(2_001)} | {mark: "{}"})

    ran = shell("init", str(vault), "--yes")

    assert (ran.status, "Indexed 2,001 files" in ran.stdout) == (0, True)


WIDE = {
    "a home directory": ({"a.md": "One.", "b.md": "Two."}, "is your home directory, with 2 Markdown files"),
    "thousands of files": (
        {f"{n // 100}/{n}.md": f"Note {n}." for n in range(2_001)},
        "has 2,001 Markdown files and is not a repository, vault or graph",
    ),
}


@pytest.mark.parametrize("name", WIDE)
def test_init_takes_a_home_or_thousands_of_files_only_when_told_to(
    shell: Shell, tmp_path: Path, home: Path, name: str
) -> None:
    files, words = WIDE[name]
    folder = make(home if "home" in name else tmp_path / "many", files)

    refused = shell("init", "--yes", cwd=folder)

    assert refused.status == 2
    assert f"{folder} {words}" in refused.stderr
    assert f"memline init {folder} --yes --anyway" in refused.stderr
    assert not workspaces.settings_file(folder, {"HOME": str(home)}).exists()
    with on_terminal("init") as terminal:
        terminal.until(lambda shown: "Index all of it?" in plain(shown), "the question")
        terminal.type("n\n")
        assert terminal.end() == 1
    assert not workspaces.settings_file(folder, {"HOME": str(home)}).exists()
    assert shell("init", "--yes", "--anyway").status == 0
    # It was told once.
    assert shell("init", "--yes").status == 0


@pytest.mark.parametrize("name", WIDE)
def test_add_takes_a_home_or_thousands_of_files_only_when_told_to(
    shell: Shell, tmp_path: Path, home: Path, name: str
) -> None:
    files, words = WIDE[name]
    folder = make(home if "home" in name else tmp_path / "many", files)
    notes = make(tmp_path / "notes", {"one.md": "One."})
    assert shell("init", "--yes", cwd=notes).status == 0

    refused = shell("add", str(folder))
    with on_terminal("add", str(folder)) as terminal:
        terminal.until(lambda shown: "Index all of it?" in plain(shown), "the question")
        terminal.type("n\n")
        declined = terminal.end()
    told = shell("add", str(folder), "--anyway")
    again = shell("add", str(folder), "--yes")

    assert (refused.status, declined, told.status, again.status) == (2, 1, 0, 0)
    assert f"{folder} {words}" in refused.stderr
    assert f"add {folder} --anyway" in refused.stderr
    assert "in extraPaths already" in again.stdout


def test_init_refuses_what_holds_the_home_and_takes_a_large_repository(
    shell: Shell, tmp_path: Path, home: Path
) -> None:
    make(home / "notes", {"a.md": "One."})
    many = make(tmp_path / "many", {f"docs/{n}.md": f"Note {n}." for n in range(2_001)})
    (many / ".git").mkdir()

    above = shell("init", str(home.parent), "--yes")
    repository = shell("init", str(many / "docs"), "--yes")

    assert (above.status, "holds your home directory" in above.stderr) == (2, True)
    assert repository.status == 0


def test_past_sessions_are_mentioned_and_not_read(shell: Shell, tmp_path: Path, home: Path) -> None:
    folder = make(tmp_path / "notes", {"a.md": "One."})
    project = home / ".claude/projects" / re.sub("[^A-Za-z0-9]", "-", str(folder))
    make(
        project, {"s.jsonl": json.dumps({"type": "user", "cwd": str(folder), "message": {"content": "two"}})}
    )

    for name in ("a", "b"):
        meta = {"type": "session_meta", "payload": {"cwd": str(folder / "sub")}}
        make(home / ".codex/sessions/2026/11/23", {f"rollout-{name}.jsonl": json.dumps(meta) + "\n"})

    ran = shell("init", str(folder), "--yes")

    assert "1 past session of Claude Code in this folder can be searched, too: " in ran.stdout
    assert "2 past sessions of Codex in this folder can be searched, too: " in ran.stdout
    assert "past session of" in ran.stdout and "of Gemini" not in ran.stdout
    assert shell("search", "two", "--json").json["results"] == []


def test_two_folders_are_kept_apart(shell: Shell, tmp_path: Path) -> None:
    one = make(tmp_path / "one", {"a.md": "Alpha here."})
    two = make(tmp_path / "two", {"deep/b.md": "Beta here."})
    for folder in (one, two):
        assert shell("init", str(folder), "--yes").status == 0

    for folder, word in ((one, "Alpha here."), (two / "deep", "Beta here.")):
        hits = shell("search", "alpha beta here", "--json", cwd=folder).json["results"]
        assert [hit["snippet"] for hit in hits] == [word]


def test_every_answer_names_its_workspace(shell: Shell, tmp_path: Path, home: Path) -> None:
    notes = make(home / "notes", {"a.md": "Alpha here."})
    (empty := tmp_path / "empty").mkdir()
    make(home / ".cache/x", {"b.md": "No note of the user."})
    shell("init", str(notes), "--yes")

    for folder, is_said in ((notes, False), (empty, True), (home, True)):
        for words in (("search", "alpha"), ("get", "a.md")):
            ran = shell(*words, cwd=folder)
            assert ran.status == 0, ran.stderr
            assert (f"The notes of {notes} (" in ran.stderr) == is_said
            assert shell(*words, "--json").json["workspace"] == str(notes)
        settings = load(Options()).settings
        with closing(MemoryTools(settings, ("main",))) as tools:
            caller = Caller(agent="main")
            assert tools.search(caller, {"query": "alpha"})["workspace"] == str(notes)
            assert tools.get(caller, {"path": "a.md"})["workspace"] == str(notes)


@pytest.mark.parametrize("where", ["b.md", "docs/deep/b.md"])
def test_a_folder_with_notes_of_its_own_is_not_answered_from_another(
    shell: Shell, tmp_path: Path, where: str
) -> None:
    notes = make(tmp_path / "notes", {"a.md": "Alpha here."})
    other = make(tmp_path / "other", {where: "Beta here."})
    shell("init", str(notes), "--yes")

    for words in (("search", "alpha"), ("get", "a.md"), ("mcp",), ("status",)):
        ran = shell(*words, cwd=other)
        assert (ran.status, ran.stdout) == (2, "")
        assert f"{other} has Markdown, and Memline was not initialised there" in ran.stderr
        assert "Try: memline init" in ran.stderr
    named = shell("--workspace", str(notes), "search", "alpha", "--json")
    assert len(named.json["results"]) == 1
    assert shell("init", "--yes").status == 0
    assert shell("search", "beta", "--json").json["workspace"] == str(other)


def test_folders_are_added_and_removed_and_comments_stay(shell: Shell, tmp_path: Path, home: Path) -> None:
    notes = make(tmp_path / "notes", {"a.md": "Alpha."})
    wiki = make(tmp_path / "wiki", {"w.md": "Wombat facts.", "MEMORY.md": "More."})
    shell("init", str(notes), "--yes")
    file = workspaces.settings_file(notes, {"HOME": str(home)})
    before = file.read_text()

    added = shell("add", "../wiki", cwd=notes)

    assert (added.status, f"Added {wiki}" in added.stdout) == (0, True)
    assert "2 files to index" in added.stdout
    assert f"Try: memline --workspace {notes} index" in added.stderr
    assert [hit["path"] for hit in shell("search", "wombat", "--json").json["results"]] == [f"{wiki}/w.md"]
    assert "in extraPaths already" in shell("add", str(wiki)).stdout
    assert file.read_text().count(str(wiki)) == 1
    assert shell("remove", str(wiki)).status == 0
    assert file.read_text() == before
    assert shell("search", "wombat", "--json").json["results"] == []
    failed = shell("remove", str(wiki))
    assert (failed.status, "is not in extraPaths" in failed.stderr) == (2, True)


def test_add_writes_nothing_for_what_is_read_already(shell: Shell, tmp_path: Path, home: Path) -> None:
    notes = make(tmp_path / "notes", {"a.md": "Alpha.", "d/b.md": "Beta.", "d/.hidden/c.md": "Gamma."})
    shell("init", "--yes", cwd=notes)
    file = workspaces.settings_file(notes, {"HOME": str(home)})
    before = file.read_text()

    for words in ("d", "a.md", "d/b.md"):
        ran = shell("add", words)
        assert (ran.status, ran.stderr) == (0, "")
        assert ran.stdout == f"{notes / words} is read already, as part of {notes}.\n"
    assert file.read_text() == before
    # What a walk leaves out unless it is named is not read.
    assert "1 file to index" in shell("add", "d/.hidden").stdout
    shell("remove", "d/.hidden")
    make(notes, {"memory/e.md": "Epsilon."})
    shell("remove", ".")
    assert shell("add", "memory").stdout == f"{notes}/memory is read already.\n"
    assert f"Added {notes}/d (" in shell("add", "d").stdout


def test_remove_says_what_is_searched_all_the_same(shell: Shell, tmp_path: Path) -> None:
    notes = make(tmp_path / "notes", {"a.md": "Alpha.", "d/b.md": "Beta."})
    shell("init", "--yes", cwd=notes)

    whole = shell("remove", ".")
    shell("add", "d")
    shell("add", ".")
    inner = shell("remove", "d")
    make(notes, {"MEMORY.md": "Gamma."})
    gone = shell("remove", ".")

    assert whole.stdout.startswith(f"Removed {notes} (") and whole.status == 0
    assert f"as part of {notes} without MEMORY.md and memory/, which is read as a whole.\n" in whole.stdout
    assert f"It is searched as before, as part of {notes}.\n" in inner.stdout
    for ran in (whole, inner):
        assert "Try: leave out what is not wanted by memorySearch.exclude (" in ran.stderr
    assert gone.stderr == f"Try: memline --workspace {notes} index\n"
    assert shell("search", "beta", "--json").json["results"] == []


def test_add_refuses_a_link_and_names_what_it_leads_to(shell: Shell, tmp_path: Path) -> None:
    notes = make(tmp_path / "notes", {"MEMORY.md": "Alpha.", "docs/.keep": ""})
    wiki = make(tmp_path / "wiki", {"w.md": "Wombat facts."})
    (notes / "w.md").symlink_to(wiki / "w.md")
    (notes / "wiki").symlink_to(wiki)
    before = shell("config", "show", cwd=notes).stdout

    for words, target in (("w.md", "/w.md"), ("wiki", ""), ("wiki/w.md", "/w.md")):
        refused = shell("add", words, cwd=notes)
        assert (refused.status, refused.stdout) == (1, "")
        assert "is a symbolic link, and these are never followed" in refused.stderr
        assert f"Try: memline --workspace {notes} add {wiki}{target}\n" in refused.stderr
    assert shell("config", "show").stdout == before
    assert "1 file to index" in shell("add", f"{wiki}/w.md").stdout


def test_the_file_that_configures_the_workspace_is_changed(shell: Shell, tmp_path: Path, home: Path) -> None:
    notes = make(tmp_path / "notes", {"MEMORY.md": "Alpha."})
    wiki = make(tmp_path / "wiki", {"w.md": "Wombat facts."})
    file = home / ".config/memline/config.json5"
    text = f"// mine\n{{ agents: {{ defaults: {{ workspace: {json.dumps(str(notes))}, /* here */ }} }} }}\n"
    make(file.parent, {file.name: text})

    assert shell("add", str(wiki)).status == 0

    assert "// mine\n" in file.read_text()
    assert "/* here */" in file.read_text()
    assert shell("search", "wombat", "--json").json["totalResults"] == 1
    assert os.stat(file).st_mode & 0o777 == 0o644
    assert shell("remove", str(wiki)).status == 0
    assert shell("search", "wombat", "--json").json["totalResults"] == 0


def test_init_counts_alike_and_shows_an_answer_as_a_search_does(shell: Shell, tmp_path: Path) -> None:
    words = " ".join(f"word{number}" for number in range(60))
    folder = make(
        tmp_path / "notes",
        {"a.md": "## --no-verify skips hooks\n\nOnce.", "b.md": f"# The valve below\n\n{words}", "c.md": ""},
    )
    (folder / "link.md").symlink_to("a.md")

    ran = shell("init", str(folder), "--yes")
    answer = shell("search", "The valve below", "--max-results", "2").stdout

    assert "a folder of Markdown: 3 Markdown files.\n" in ran.stdout
    assert "Indexed 3 files, 2 chunks, in " in ran.stdout
    assert f"Not read: 1 symlink (memline --workspace {folder} status --verbose).\n" in ran.stdout
    assert "$ memline search 'The valve below'\n" in ran.stdout
    shown = ran.stdout.partition("$ memline search")[2].partition("\n")[2].partition("\n\n")[0]
    assert shown and answer.startswith(f"{shown}\n")


def test_a_sample_question_never_begins_like_an_option(shell: Shell, tmp_path: Path) -> None:
    folder = make(tmp_path / "notes", {"a.md": "# --no-verify\n\nSkips hooks."})

    ran = shell("init", str(folder), "--yes")

    assert "$ memline search no-verify\n" in ran.stdout and "a.md#L1" in ran.stdout
