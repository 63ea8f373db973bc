"""Any folder of Markdown is found and read, and `index` never ends well without a note where there is one."""

from pathlib import Path

import pytest

from memline.shared.config import workspaces
from tests.support.shell import Shell


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return Shell(monkeypatch, capsys)


def write(file: Path, text: str = "x\n") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def origin(shell: Shell, cwd: Path) -> tuple[str, str]:
    status = shell("status", "--json", cwd=cwd).json[0]["status"]
    return status["workspaceDir"], status["workspaceOrigin"]


def test_the_workspace_is_found_in_the_order_that_is_documented(
    shell: Shell, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, vault = tmp_path / "project", tmp_path / "vault"
    write(project / "MEMORY.md")
    (project / "src/deep").mkdir(parents=True)
    write(vault / "a.md")
    settings = workspaces.settings_file(vault, {"HOME": str(home)})
    elsewhere = tmp_path / "elsewhere"

    assert "no workspace is configured" in shell("status", cwd=elsewhere).stderr
    assert origin(shell, project / "src/deep") == (str(project), workspaces.SIGNED)
    write(settings, "{}")
    assert origin(shell, vault) == (str(vault), workspaces.ABOVE)
    shell("--workspace", str(vault), "index")
    assert origin(shell, elsewhere) == (str(vault), workspaces.ONLY)
    shell("--workspace", str(project), "index")
    assert f"these have an index: {project}, {vault}" in shell("status", cwd=elsewhere).stderr
    write(home / ".config/memline/config.json5", f'{{agents: {{defaults: {{workspace: "{vault}"}}}}}}')
    assert origin(shell, project)[0] == str(vault)
    monkeypatch.setenv("MEMLINE_WORKSPACE", str(project))
    assert origin(shell, vault) == (str(project), "MEMLINE_WORKSPACE")
    assert shell("--workspace", str(vault), "status", "--json").json[0]["status"]["workspaceOrigin"] == (
        "--workspace"
    )


def test_another_workspace_does_not_answer_for_one_that_is_not_mounted(
    shell: Shell, tmp_path: Path, home: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "disk/two"
    for folder in (one, two):
        write(folder / "a.md", f"Of {folder.name}.\n")
        shell("init", str(folder), "--yes", cwd=tmp_path)
    two.rename(tmp_path / "away")

    ran = shell("search", "two", cwd=tmp_path / "elsewhere")
    # One that was removed beside other things does not come back.
    write(tmp_path / "disk/x.txt")
    after = shell("search", "one", cwd=tmp_path / "elsewhere")

    assert ran.stdout == ""
    assert f"these have an index: {one}, {two} (not there now)" in ran.stderr
    assert "Of one." in after.stdout


@pytest.mark.parametrize(
    ("files", "words", "command"),
    [
        (("notes/a.md", "notes/b.md", "memory/.keep"), "2 Markdown files below", " add "),
        (("notes/a.md", ".gitignore"), "left out by .gitignore", " status --verbose"),
    ],
)
def test_an_index_without_a_note_says_where_the_markdown_is(
    shell: Shell, tmp_path: Path, files: tuple[str, ...], words: str, command: str
) -> None:
    folder = tmp_path / "folder"
    for name in files:
        write(folder / name, "*\n")

    ran = shell("--workspace", str(folder), "index")

    assert ran.status == 1
    assert words in ran.stderr
    assert f"Try: memline --workspace {folder}{command}" in ran.stderr


def test_the_settings_of_a_folder_are_named_and_checked_also_when_they_cannot_be_read(
    shell: Shell, tmp_path: Path, home: Path
) -> None:
    vault = tmp_path / "vault"
    write(vault / "a.md")
    shell("init", str(vault), "--yes")
    own = workspaces.settings_file(vault, {"HOME": str(home)})

    well = shell("config", "check", cwd=vault)
    assert (well.status, well.stdout) == (0, f"{own}: 2 keys\nNo problems.\n")
    assert f"settings of this folder: {own}\n" in shell("config", "show", "--changed", cwd=vault).stdout
    for text, problem in (("{memorySearch: {excluded: []}}", "unknown key"), ("{ bad", "is not closed")):
        write(own, text)
        checked = shell("config", "check", "--json", cwd=vault)

        assert shell("config", "path", cwd=vault).stdout == f"{own}\n"
        assert (checked.status, checked.json["path"]) == (1, str(own))
        assert problem in checked.json["problems"][0]["problem"]


def test_what_is_not_markdown_is_not_added_and_only_what_was_added_is_counted(
    shell: Shell, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    write(folder / "MEMORY.md", "The pump is blue.\n")
    shell("init", str(folder), "--yes")
    write(folder / "memory/new.md")
    write(tmp_path / "plan.txt")
    write(tmp_path / "other/one.md")

    refused = shell("add", str(tmp_path / "plan.txt"), cwd=folder)
    added = shell("add", str(tmp_path / "other"), cwd=folder)
    known = shell("add", str(folder / "MEMORY.md"), cwd=folder)

    assert (refused.status, refused.stdout) == (1, "")
    assert f"{tmp_path}/plan.txt is not Markdown" in refused.stderr
    assert added.stdout.endswith("1 file to index.\n")
    assert known.stdout == f"{folder}/MEMORY.md is read already.\n"


@pytest.mark.parametrize(
    "ending", [".md", ".markdown", ".mdown", ".mkd", ".mdx", ".qmd", ".MD", ".Markdown", ".QMD"]
)
def test_markdown_of_every_ending_is_read_everywhere(shell: Shell, tmp_path: Path, ending: str) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    write(folder / f"memory/plan{ending}", "# Steps\n\nWe turn the valve.\n")
    write(folder / f"MEMORY{'.MD' if ending == '.MD' else '.md'}", "The pump is blue.\n")
    write(other / f"wiki/sluice{ending}", "The gate is red.\n")
    at = ("--workspace", str(folder))
    shell(*at, "init", str(folder), "--yes")

    assert shell(*at, "add", str(other)).stdout.endswith("1 file to index.\n")
    indexed = shell(*at, "index", "--json").json[0]
    found = [shell(*at, "search", word, "--json").json["results"][0]["path"] for word in ("valve", "gate")]
    by_name = [shell(*at, "get", name, "--json").json["path"] for name in ("plan", "wiki/sluice")]

    assert indexed["files"]["seen"] == 3
    assert found == by_name == [f"memory/plan{ending}", f"{other}/wiki/sluice{ending}"]
    assert shell(*at, "get", found[0]).stdout.startswith("# Steps")
    assert shell(*at, "get", f"{found[1]}:1").stdout == "The gate is red.\n"
    assert shell(*at, "search", "sluice", "--json").json["results"][0]["path"] == found[1]
    assert shell(*at, "search", "which pump", "--json").json["results"][0]["path"].startswith("MEMORY.")


def test_what_is_left_out_is_named(shell: Shell, tmp_path: Path) -> None:
    write(tmp_path / "vault/a.md")
    write(tmp_path / "vault/Templates/day.md")
    write(tmp_path / "vault/.obsidian/app.json", "{}")

    ran = shell("--workspace", str(tmp_path / "vault"), "index")
    status = shell("--workspace", str(tmp_path / "vault"), "status", "--verbose")

    assert ran.status == 0
    assert "Left out:    1 by Obsidian's templates" in status.stdout
    assert "left out   Templates/  Obsidian's templates" in status.stdout


def test_notes_beside_the_memory_are_named_with_the_command_that_adds_them(
    shell: Shell, tmp_path: Path
) -> None:
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
    add = f"memline --workspace {folder} add {folder}/notes"

    assert f"{beside}Try: {add}\n" in begun.stdout
    assert unanswered.status == 0 and f"{beside}Try: {add}\n" in unanswered.stderr
    assert "Markdown" not in answered.stderr
    assert beside in status.stdout and "beside     notes/d.md" in status.stdout
    shell(*add.split()[1:])
    assert shell(*at, "search", "pump", "--json").json["results"][0]["path"] == "notes/a.md"
    assert "not read" not in shell(*at, "search", "nothing at all").stderr
