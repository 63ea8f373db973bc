import importlib.metadata
import os
import subprocess
import sys

import pytest
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from memline.producers.cli import at_once, run
from memline.producers.cli.command_list import COMMANDS
from memline.producers.cli.root import cli
from memline.shared.version import own_version

SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("columns", ["80", "200", ""])
def test_the_help_is_that_of_click(
    option: str, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)

    theirs = cli.get_help(cli.make_context("memline", [], resilient_parsing=True))

    assert at_once.answer([option])

    assert capsys.readouterr().out == theirs + "\n"


def test_a_narrow_terminal_has_its_help_wrapped_by_click(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")

    assert not at_once.answer(["--help"])
    assert run(["--help"]) == 0

    assert max(map(len, capsys.readouterr().out.split("Examples:")[0].splitlines())) <= 60


@pytest.mark.parametrize(
    "args", [[], ["--help", "x"], ["--version", "x"], ["--agent", "a", "--help"], ["search"]]
)
def test_what_is_not_plain_is_left_to_click(args: list[str]) -> None:
    assert not at_once.answer(args)


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert own_version() == importlib.metadata.version("memline")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("words", "at"),
    [
        ("memline", 1),
        ("memline se", 1),
        ("memline search", 1),
        ("memline nothing", 1),
        ("memline --ag", 1),
        ("memline 'se", 1),
        ("memline search --ma", 2),
        ("memline jobs ", 2),
        ("memline --agent a se", 3),
    ],
)
def test_the_commands_that_a_shell_is_offered_are_those_of_click(
    shell: str, words: str, at: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = [*words.split(" "), ""][at]
    monkeypatch.setenv("_MEMLINE_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", typed if shell == "fish" else str(at))
    theirs = SHELLS[shell](cli, {}, "memline", "_MEMLINE_COMPLETE").complete()

    is_answered = at_once.answer([])

    ours = capsys.readouterr().out.strip()
    assert is_answered == ((bool(theirs) and at == 1 and typed.isalnum()) or words == "memline")
    if is_answered and shell == "bash":
        assert ours == theirs
    elif is_answered:
        # click cuts each command's description at 45 characters.
        kept = [line.replace("\t", "\n").split("\n")[0] for line in theirs.splitlines()]
        names = [
            line for line in ours.replace("\t", "\n").splitlines() if line.removeprefix("plain,") in COMMANDS
        ]
        assert names and [name for name in kept if name.removeprefix("plain,") in COMMANDS] == names


def test_neither_help_nor_version_nor_completion_load_click() -> None:
    code = (
        "import sys; from memline.producers.cli import run; run(['--version']); run(['--help']); run([]);"
        "sys.exit(' '.join({'click', 'typing', 'inspect', 'dataclasses', 're'} & {*sys.modules}) or 0)"
    )
    env = os.environ | {"_MEMLINE_COMPLETE": "bash_complete", "COMP_WORDS": "memline se", "COMP_CWORD": "1"}

    for settings in (env, env | {"_MEMLINE_COMPLETE": "zsh_complete"}):
        done = subprocess.run(
            [sys.executable, "-S", "-c", code],
            env=settings | {"PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        assert done.returncode == 0
