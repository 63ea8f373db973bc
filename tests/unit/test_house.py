"""The house around the code: what is written about commands, dependencies and processes is true."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import click
import pytest
from dramatiq.cli import make_argument_parser

from producers.cli import COMMANDS
from shared.config.load import Options, load
from shared.queue.broker import QUEUES

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")])
LINKS = [
    pytest.param(page, link, id=f"{page.relative_to(ROOT)}: {link}")
    for page in PAGES
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8"))
]


def command(name: str) -> click.Command:
    module, _, attribute = COMMANDS[name][0].partition(":")
    found: click.Command = getattr(import_module(module), attribute)
    return found


def requirements() -> list[str]:
    """The names of all dependencies, those of the extras too."""
    groups = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    return [re.split(r"[\[<>=!~; ]", line)[0] for group in groups for line in group]


def processes() -> dict[str, list[str]]:
    """The lines of the Procfile: the words of each command, by the name of the process."""
    lines = (ROOT / "Procfile").read_text("utf-8").splitlines()
    named = (re.fullmatch(r"([a-z]+):\s+(.+)", line) for line in lines)
    return {match[1]: match[2].split() for match in named if match}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_an_example_and_its_line_in_the_list(name: str) -> None:
    found = command(name)

    assert found.epilog and re.search(rf"memline (.* )?{name}\b", found.epilog)
    assert found.help and found.help.split("\n\n")[0].endswith(".")
    # What `memline --help` shows without importing the command: short enough for one line.
    assert COMMANDS[name][1].endswith(".") and len(COMMANDS[name][1]) <= 60


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")

    assert f"| `memline {name}` |" in readme


def test_no_command_is_documented_that_does_not_exist() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")

    documented = set(re.findall(r"^\| `memline ([a-z]+)` \|", readme, re.MULTILINE))

    assert documented == set(COMMANDS)


@pytest.mark.parametrize("name", requirements())
def test_every_dependency_says_what_it_is_for(name: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")

    rows = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]

    assert len(rows) == 1
    assert len(rows[0].split("|")[2].strip()) > 5


def test_no_dependency_is_explained_that_is_not_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = page.partition("## What each dependency is for")[2].partition("\n## ")[0]

    explained = re.findall(r"^\| `([\w.-]+)` \|", section, re.MULTILINE)

    assert sorted(explained) == sorted(requirements())


def test_http_goes_out_through_one_module() -> None:
    packages = [ROOT / name for name in ("producers", "shared", "workers")]
    owners = [
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in package.rglob("*.py")
        if re.search(r"^\s*(?:import|from) httpx\b", path.read_text("utf-8"), re.MULTILINE)
    ]

    assert owners == ["shared/embedders/connection.py"]


def test_every_queue_has_a_process_with_the_threads_and_flags_dramatiq_knows() -> None:
    served = []
    for words in processes().values():
        if words[0] == "dramatiq":
            arguments = make_argument_parser().parse_args(words[1:])
            assert (arguments.broker, arguments.processes) == ("workers", 1)
            served += arguments.queues

    assert sorted(served) == sorted(QUEUES)


def test_the_only_writer_is_one_process_with_one_thread() -> None:
    arguments = make_argument_parser().parse_args(processes()["store"][1:])

    assert (arguments.processes, arguments.threads) == (1, 1)


def test_processes_that_are_commands_of_ours_exist() -> None:
    ours = [words[1] for words in processes().values() if words[0] == "memline"]

    assert ours == ["watch", "serve"]
    assert set(ours) <= set(COMMANDS)


def test_the_sample_configuration_embeds_nothing_and_names_the_sample_notes(home: Path) -> None:
    file = ROOT / "examples" / "config.json5"

    loaded = load(Options(config=file), {"HOME": str(home), "OPENAI_API_KEY": "k"})

    assert loaded.warnings == ()
    settings = loaded.agent()
    assert settings.memory.provider == "none"
    assert settings.workspace == ROOT / "examples" / "workspace"


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_every_link_between_pages_leads_somewhere(page: Path, link: str) -> None:
    assert (page.parent / link).exists()
