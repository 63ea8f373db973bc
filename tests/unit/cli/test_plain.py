"""The same command lines, read from the table of calls and by click: the same values, or click alone."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memline.producers.calls.memory_calls import MEMORY_CALLS
from memline.producers.calls.rows import CLI
from memline.producers.calls.table import CALLS
from memline.producers.cli import plain, run
from memline.producers.cli.command_list import COMMANDS, GLOBALS, PLAIN
from memline.producers.cli.invocation import Invocation
from memline.producers.cli.root import cli
from memline.producers.cli.table_commands import asks
from memline.shared.config.load import Options

Read = tuple[str, Options, dict[str, Any]]

#: Read without click.
PLAIN_LINES = [
    "search x",
    "search 'two words' --json",
    "search --json x",
    "search x -n3",
    "search x -n 1_0",
    "search x -n 3 --max-results=4",
    "search x --min-score .5 --source all",
    "search x --min-score=0.5 --source=sessions --path 'a/**' --exclude=b --since 30d --until 2026-01-02",
    "search --query x",
    "search --query=-x",
    "search --query x y",
    "search x --query y --query=z",
    "search -- -x",
    "search -- --json",
    "search x --",
    "search x --explain --full --format vimgrep --session-key agent:main:main",
    "search x --json --json",
    "search",
    "search --json",
    "get a.md",
    "get --from 3 a.md --lines=4",
    "get 'a.md#L5-L7' --around 200 --json",
    "status",
    "status --deep --index --verbose --json",
    "context --private --session-key=agent:main:main",
    "doctor --deep",
    "--agent a search x",
    "--agent=a --home /h search x --agent b --config=c --workspace /w",
    "--home /h status --home=/i",
    "search x --path a=b --path=c=d",
]

#: Left to click: what it refuses, what it alone answers, and what looks like an option.
LEFT_LINES = [
    "",
    "--agent",
    "--agent a",
    "--agent '' search x",
    "--agent ' ' search x",
    "--nothing search x",
    "--json search x",
    "-- search x",
    "sea x",
    "search x y",
    "search x --help",
    "search -h",
    "search ''",
    "search -",
    "search x -- y",
    "search x -n",
    "search x -n=3",
    "search x -n 0",
    "search x -n -3",
    "search x -n ' 3'",
    "search x -n 3.0",
    "search x -n x",
    "search x --max-results",
    "search x --max-result 3",
    "search x --min-score 2",
    "search x --min-score nan",
    "search x --min-score -1",
    "search x --source none",
    "search x --source ALL",
    "search x --json=1",
    "search x --explain=",
    "search x --path --json",
    "search x --path=",
    "search x -nj",
    "search x -jn3",
    "get",
    "get a b",
    "get a --around 201",
    "get a --from '²'",
    "status x",
    "status --agent",
    "status --agent=",
    "index",
    "jobs ls",
]


def by_click(args: list[str], monkeypatch: pytest.MonkeyPatch) -> Read | None:
    """What click calls the command's function with; None when it does not come to that."""
    seen: list[Read] = []

    def command(context: click.Context, name: str) -> click.Command | None:
        def note(invocation: Invocation, **arguments: Any) -> None:
            seen.append((name, invocation.options, arguments))

        return asks(CALLS[name])(note) if name in PLAIN else None

    with monkeypatch.context() as patch:
        patch.setattr(cli, "get_command", command)
        try:
            cli.main(args=list(args), prog_name="memline", standalone_mode=False)
        except click.ClickException:
            return None
    return seen[0] if seen else None


def without_click(args: list[str]) -> Read | None:
    line = plain.parse(args)
    return line and (line.name, Invocation.of(line.shared).options, line.arguments)


def words(line: str) -> list[str]:
    return shlex.split(line)


@pytest.mark.parametrize("line", PLAIN_LINES)
def test_a_plain_line_is_read_as_click_reads_it(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = without_click(words(line))

    assert read is not None
    assert read == by_click(words(line), monkeypatch)


@pytest.mark.parametrize("line", LEFT_LINES)
def test_what_is_not_plain_is_left_to_click(line: str) -> None:
    assert plain.parse(words(line)) is None


def tokens() -> st.SearchStrategy[str]:
    """Words of a command line: names of options and commands, values good and bad, some of them attached."""
    shown = [each for call in MEMORY_CALLS for each in call.parameters if CLI in each.faces]
    names = [*PLAIN, "--json", "--help", "-h", "--", "-", "-n", "--version"]
    names += [*(f"--{row[0]}" for row in GLOBALS), *(each.option for each in shown)]
    values = ["", " ", "x", "0", "3", "200", "201", "-1", ".5", "1e400", "nan", "1_0", "²", "all", "json"]
    attached = st.tuples(st.sampled_from(names), st.sampled_from(["", "="]), st.sampled_from(values))
    return st.sampled_from(names) | st.sampled_from(values) | attached.map("".join) | st.text(max_size=3)


@settings(max_examples=500, deadline=None)
@given(st.lists(tokens(), max_size=3), st.sampled_from(sorted(PLAIN)), st.lists(tokens(), max_size=6))
def test_no_line_is_read_in_another_way_than_by_click(before: list[str], name: str, after: list[str]) -> None:
    for args in ([name, *after], [*before, name, *after]):
        read = without_click(args)
        with pytest.MonkeyPatch.context() as patch:
            assert read is None or read == by_click(args, patch), args


def test_the_plain_commands_are_those_of_memory() -> None:
    assert {call.name for call in MEMORY_CALLS} & COMMANDS.keys() == PLAIN


@pytest.fixture
def place(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "notes" / "memory").mkdir(parents=True)
    (tmp_path / "notes" / "MEMORY.md").write_text("# Deploy\n\nThe deploy of Friday was rolled back.\n")
    options = ("--home", str(tmp_path / "home"), "--workspace", str(tmp_path / "notes"))
    assert run([*options, "index"]) == 0
    return options


@pytest.mark.parametrize(
    "line",
    [
        "search friday",
        "search friday --json",
        "search friday --format files",
        "search nothing-like-it",
        "search",
        "search x --json --format jsonl",
        "search friday --since then",
        "search friday --limit 3",
        "get MEMORY.md",
        "get MEMORY.md --json",
        "get ../secret.md",
        "get nothing.md",
        "context --private",
        "status",
        "status --json",
        "doctor",
        "--agent nobody status",
    ],
)
def test_a_command_prints_the_same_with_and_without_click(
    line: str, place: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def done() -> tuple[int, str, str]:
        capsys.readouterr()
        return run([*place, *words(line)]), *capsys.readouterr()

    without = done()
    monkeypatch.setattr(plain, "parse", lambda _: None)

    assert without == done()


def test_a_search_loads_no_click(place: tuple[str, ...]) -> None:
    code = (
        "import sys; from memline.producers.cli import run;"
        "assert all(run([*sys.argv[1:], *words]) == 0 for words in "
        "[['search', 'friday'], ['get', 'MEMORY.md'], ['context', '--private'], ['status']]);"
        "sys.exit(' '.join({'click', 'rich', 'httpx', 'redis'} & {*sys.modules}) or 0)"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    done = subprocess.run(
        [sys.executable, "-c", code, *place], env=env, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("search --no-verify", "memline search -- '--no-verify'"),
        ("search '--no-verify in hooks'", "memline search -- '--no-verify in hooks'"),
        ("search -5", "memline search -- '-5'"),
        ("search -n", "memline search -- '-n'"),
        ("search --query", "memline search -- '--query'"),
        ("search git log --path", "memline search -- 'git log --path'"),
        ("search '-no verify'", "memline search -- '-no verify'"),
        ("search --sorce", "memline search -- '--sorce'"),
        ("search git commit --no-verify", "memline search -- 'git commit --no-verify'"),
        ("search --no-verify -- now", "memline search -- '--no-verify now'"),
        (
            "--home /h search --json -n 3 --path=a --no-verify",
            "memline --home /h search --json -n 3 --path=a -- '--no-verify'",
        ),
        ("get --x", "memline get -- '--x'"),
    ],
)
def test_what_begins_like_an_option_can_be_asked_for(
    line: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run(shlex.split(line))

    assert status == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"Try: {hint}"
    read = plain.parse(shlex.split(hint)[1:])
    assert read is not None and read.arguments["query" if "search" in hint else "path"].count("-")


def test_several_words_are_to_be_quoted_and_a_misspelt_option_is_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["search", "-n", "3", "deploy", "plan"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "Try: memline search -n 3 'deploy plan'"
    assert run(["get", "my", "notes"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "Try: memline get 'my notes'"
    assert run(["get", "memory/a.md", "memory/b c.md"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "Try: memline get memory/a.md   (one note at a time)"
    assert run(["search", "deploy", "--max-result", "3"]) == 2
    assert "Did you mean '--max-results'?" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("line", ["search x --min-score a", "status --foo", "index --foo"])
def test_other_mistakes_are_not_taken_for_questions(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shlex.split(line)) == 2
    assert "Try: memline" not in capsys.readouterr().err
