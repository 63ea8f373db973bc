"""Any folder of Markdown is found and read, and `index` never ends well without a note where there is one."""

import json

import pytest

from memline.shared.config.agents import digest
from memline.shared.config.load import Options, load
from tests.support.shell import Shell


@pytest.fixture
def shell(monkeypatch, capsys, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return Shell(monkeypatch, capsys)


def write(file, text="x\n"):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def origin(shell, cwd):
    status = shell("status", "--json", cwd=cwd).json[0]["status"]
    return status["workspaceDir"], status["workspaceOrigin"]


def test_the_workspace_is_found_in_the_order_that_is_documented(shell, tmp_path, home, monkeypatch):
    project, vault, elsewhere = tmp_path / "project", tmp_path / "vault", tmp_path / "elsewhere"
    write(project / "src/deep/b.md")
    write(vault / "a.md")
    config = home / ".config/memline/config.json5"

    nothing = shell("status", cwd=project)
    shell("init", "--yes", cwd=project)
    inside = origin(shell, project / "src/deep")
    outside = shell("search", "x", cwd=elsewhere)
    write(
        config, f'{{agents: {{defaults: {{workspace: "{vault}"}}, list: [{{id: "main"}}, {{id: "work"}}]}}}}'
    )
    configured = origin(shell, elsewhere)
    nearest = origin(shell, project)
    of_agent = shell("--agent", "main", "status", "--json").json[0]["status"]
    monkeypatch.setenv("MEMLINE_WORKSPACE", str(project))
    by_variable = origin(shell, elsewhere)
    agent_first = shell("--agent", "main", "status", "--json").json[0]["status"]
    by_option = shell("--agent", "main", "--workspace", str(project), "status", "--json").json[0]["status"]

    assert (nothing.status, "memline init" in nothing.stderr) == (2, True)
    assert inside == (str(project), "nearest folder with an index")
    assert (outside.status, "no workspace is configured" in outside.stderr) == (2, True)
    assert configured == (str(vault), f"{config}: agents.defaults.workspace")
    assert nearest == inside and of_agent["workspaceDir"] == str(vault)
    assert by_variable == (str(project), "MEMLINE_WORKSPACE")
    assert agent_first["workspaceDir"] == str(vault) and by_option["workspaceDir"] == str(project)
    assert by_option["dbPath"].endswith(f"main-{digest(project)}.sqlite")
    assert of_agent["dbPath"].endswith("/main.sqlite")


def test_a_process_that_serves_several_agents_does_not_take_the_current_folder(shell, tmp_path, home):
    project, vault = tmp_path / "project", tmp_path / "vault"
    write(project / "b.md")
    write(vault / "a.md")
    shell("init", "--yes", cwd=project)
    agents = '{id: "main"}, {id: "work"}'
    config = home / ".config/memline/config.json5"

    write(config, f'{{agents: {{defaults: {{workspace: "{vault}"}}, list: [{agents}]}}}}')
    several = load(Options(is_service=True)).agent().workspace
    write(
        config, f'{{agents: {{defaults: {{workspace: "{vault}"}}}}, queue: {{url: "redis://127.0.0.1:1"}}}}'
    )
    queued = load(Options(is_service=True)).agent().workspace
    write(config, f'{{agents: {{defaults: {{workspace: "{vault}"}}}}}}')
    alone = load(Options(is_service=True)).agent().workspace

    assert (several, queued, alone) == (vault, vault, project)


@pytest.mark.parametrize(
    ("files", "words", "command"),
    [
        (
            ("notes/a.md", "notes/b.md", "memory/.keep"),
            "2 Markdown files are not read",
            "memorySearch.extraPaths",
        ),
        (("notes/a.md", ".gitignore"), "left out by .gitignore", "status --verbose"),
    ],
)
def test_an_index_without_a_note_says_where_the_markdown_is(shell, tmp_path, files, words, command):
    folder = tmp_path / "folder"
    for name in files:
        write(folder / name, "*\n")

    ran = shell("--workspace", str(folder), "index")

    assert ran.status == 1
    assert words in ran.stderr
    assert command in ran.stderr.partition("Try: ")[2]


@pytest.mark.parametrize(
    "ending", [".md", ".markdown", ".mdown", ".mkd", ".mdx", ".qmd", ".MD", ".Markdown", ".QMD"]
)
def test_markdown_of_every_ending_is_read_everywhere(shell, tmp_path, ending):
    folder, other = tmp_path / "folder", tmp_path / "other"
    write(folder / f"memory/plan{ending}", "# Steps\n\nWe turn the valve.\n")
    write(folder / f"MEMORY{'.MD' if ending == '.MD' else '.md'}", "The pump is blue.\n")
    write(other / f"wiki/sluice{ending}", "The gate is red.\n")
    at = ("--workspace", str(folder))
    paths = json.dumps({"memorySearch": {"extraPaths": [str(other)]}})
    write(tmp_path / "config.json5", paths)
    shell.setenv("MEMLINE_CONFIG", str(tmp_path / "config.json5"))

    indexed = shell(*at, "index", "--json").json[0]
    found = [shell(*at, "search", word, "--json").json["results"][0]["path"] for word in ("valve", "gate")]
    by_name = [shell(*at, "get", name, "--json").json["path"] for name in ("plan", "wiki/sluice")]

    assert indexed["files"]["seen"] == 3
    assert found == by_name == [f"memory/plan{ending}", f"{other}/wiki/sluice{ending}"]
    assert shell(*at, "get", found[0]).stdout.startswith("# Steps")
    assert shell(*at, "get", f"{found[1]}:1").stdout == "The gate is red.\n"
    assert shell(*at, "search", "sluice", "--json").json["results"][0]["path"] == found[1]
    assert shell(*at, "search", "which pump", "--json").json["results"][0]["path"].startswith("MEMORY.")


def test_what_is_left_out_is_named(shell, tmp_path):
    write(tmp_path / "vault/a.md")
    write(tmp_path / "vault/Templates/day.md")
    write(tmp_path / "vault/.ignore", "/Templates/")

    ran = shell("--workspace", str(tmp_path / "vault"), "index")
    status = shell("--workspace", str(tmp_path / "vault"), "status", "--verbose")

    assert ran.status == 0
    assert "Left out:    1 by .ignore" in status.stdout
    assert "left out   Templates/  .ignore" in status.stdout


def test_notes_beside_the_memory_are_named_with_the_command_that_adds_them(shell, tmp_path):
    folder = tmp_path / "folder"
    write(folder / "MEMORY.md", "# The valve\n\nIt is blue.\n")
    for name in "abcd":
        write(folder / f"notes/{name}.md", "The pump is red.\n")
    at = ("--workspace", str(folder))
    beside = "4 Markdown files are not read: notes/a.md, notes/b.md, notes/c.md …\n"

    begun = shell("init", str(folder), "--yes")
    unanswered = shell(*at, "search", "pump")
    answered = shell(*at, "search", "valve")
    status = shell(*at, "status", "--verbose")
    add = (
        f'Try: add "{folder}/notes" to memorySearch.extraPaths (memline --workspace {folder} config check)\n'
    )

    assert f"{beside}{add}" in begun.stderr
    assert unanswered.status == 0 and beside in unanswered.stderr
    assert "Markdown" not in answered.stderr
    assert beside in status.stdout and "beside     notes/d.md" in status.stdout
