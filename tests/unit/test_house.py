"""The house around the code: what is written about commands, dependencies and processes is true."""

import ast
import re
import tomllib
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import click
import grimp
import pytest

from memline.producers.bridges.clients import CLIENTS
from memline.producers.cli.command_list import COMMANDS
from memline.producers.cli.root import cli
from memline.shared.config.load import Options, load
from memline.shared.config.transcript_programs import TRANSCRIPT_PROGRAMS
from memline.shared.queue.broker import in_process
from memline.shared.queue.routes import QUEUES
from tests.support.import_cost import LIST, REFERENCE, late_imports

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]
)
LINKS = [
    pytest.param(page, link, id=f"{page.relative_to(ROOT)}: {link}")
    for page in PAGES
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8"))
]


#: Names in code marks, such as `shared.queue.redis_limits` or `shared.errors.ProviderLater`.
NAMES = [
    pytest.param(name, id=f"{page.relative_to(ROOT)}: {name}")
    for page in PAGES
    for name in sorted(
        set(re.findall(r"`((?:shared|producers|workers)(?:\.\w+)+)`", page.read_text("utf-8")))
    )
]


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def requirements() -> list[str]:
    """The names of all dependencies, those of the extras too; one may be in two of them."""
    groups = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    return [*dict.fromkeys(re.split(r"[\[<>=!~; ]", line)[0] for group in groups for line in group)]


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
    owners = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "memline").rglob("*.py")
        if re.search(r"^\s*(?:import|from) httpx\b", path.read_text("utf-8"), re.MULTILINE)
    ]

    assert owners == ["memline/shared/embedders/http.py"]


def test_every_queue_has_a_process_of_its_own() -> None:
    roles = [words[2:] for words in processes().values() if words[:2] == ["memline", "worker"]]

    assert sorted(roles) == sorted([queue] for queue in QUEUES)


def test_processes_are_commands_that_exist() -> None:
    assert {words[0] for words in processes().values()} == {"memline"}
    assert {words[1] for words in processes().values()} == {"watch", "worker", "serve"} <= set(COMMANDS)


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


@pytest.mark.parametrize("name", NAMES)
def test_every_module_that_a_page_names_exists(name: str) -> None:
    parts = name.split(".")
    while not (path := ROOT.joinpath(*parts)).is_dir() and not path.with_suffix(".py").is_file():
        parts.pop()
    # Actors are bound to the broker that is there when they are imported.
    in_process()
    found = import_module("memline." + ".".join(parts))

    for attribute in name.split(".")[len(parts) :]:
        found = getattr(found, attribute)


@pytest.mark.parametrize("folder", ["shared", "producers"])
def test_the_floors_that_are_drawn_are_those_that_are_checked(folder: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == [f"memline.{folder}"])
    table = page.partition(f"floors of\n`{folder}`:")[2] or page.partition(f"floors of `{folder}`:")[2]

    drawn = re.findall(r"^\| (\d+) \| ([^|]+) \|", table.lstrip().partition("\n\n")[0], re.MULTILINE)

    assert [int(number) for number, _ in drawn] == list(reversed(range(len(layers))))
    for (_, packages), layer in zip(drawn, layers, strict=True):
        assert set(re.findall(r"`(\w+)(?:\.py)?`", packages)) == set(layer.split(" | "))


@pytest.mark.parametrize("folder", ["shared", "producers"])
def test_every_module_stands_on_a_floor(folder: str) -> None:
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == [f"memline.{folder}"])
    standing = {name for layer in layers for name in layer.split(" | ")}

    modules = {each.name for each in iter_modules([str(ROOT / "memline" / folder)])}

    assert (sorted(modules - standing), sorted(standing - modules)) == ([], [])


def test_the_late_imports_are_those_of_the_list() -> None:
    listed = tomllib.loads(LIST.read_text("utf-8")).keys() - {REFERENCE}

    assert late_imports().keys() - listed == set(), "put it at the top of its file, or write the list again"
    assert listed - late_imports().keys() == set(), "take its row out of the list"
    assert len(listed) <= 60, "too many: let one module do the import for two, or put a cheap one at the top"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Late imports and those for types count too: such a circle works only as long as nothing moves."""
    graph = grimp.build_graph("memline", cache_dir=None)
    modules = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    # It names the public names of the package, for types alone; all modules are below it.
    modules["memline"] = set()

    # Take away what imports nothing that is left; what remains leads into a circle.
    while outer := {module for module, imported in modules.items() if not imported & modules.keys()}:
        modules = {module: imported for module, imported in modules.items() if module not in outer}

    assert sorted(modules) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`((?:shared|producers|workers|tests)/[\w/.-]+)`", page.read_text("utf-8"))

    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_first_screen_names_every_client_and_every_past_that_is_read() -> None:
    screen = (ROOT / "README.md").read_text("utf-8").partition("## Try it")[0]
    pasts = [row.title for row in TRANSCRIPT_PROGRAMS.values()]

    assert [
        each for each in (*pasts, *(client.title for client in CLIENTS.values())) if each not in screen
    ] == []
    assert "claude.ai" in screen and len(screen.splitlines()) <= 30


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 170


def test_no_constant_is_given_a_second_value_further_down() -> None:
    twice = []
    for file in sorted((ROOT / "memline").rglob("*.py")):
        names: set[str] = set()
        for node in ast.parse(file.read_text("utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets += [node.target] if isinstance(node, ast.AnnAssign) else []
            for name in (each.id for each in targets if isinstance(each, ast.Name)):
                if name in names:
                    twice.append(f"{file.relative_to(ROOT)}: {name}")
                names.add(name)
    assert not twice
