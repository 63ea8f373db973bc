"""The house around the code: what is written about commands, dependencies and processes is true."""

import re
import tomllib
from pathlib import Path

import click
import grimp
import pytest

from memline.producers.cli.root import COMMANDS, GROUPS, cli
from memline.shared.config.load import Options, load
from memline.shared.queue.routes import QUEUES

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]
)
#: A target of a link, but for other sites.
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")


def prose(page):
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    """The names under which a site shows the headings of a page."""
    headings = re.findall(r"^#+ (.*)", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def command(name):
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def requirements():
    """The names of all dependencies, those of the extras too; one may be in two of them."""
    groups = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    return [*dict.fromkeys(re.split(r"[\[<>=!~; ]", line)[0] for group in groups for line in group)]


def processes():
    """The lines of the Procfile: the words of each command, by the name of the process."""
    lines = (ROOT / "Procfile").read_text("utf-8").splitlines()
    named = (re.fullmatch(r"([a-z]+):\s+(.+)", line) for line in lines)
    return {match[1]: match[2].split() for match in named if match}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_an_example_and_its_line_in_the_list(name):
    found = command(name)

    assert found.epilog and re.search(rf"memline (.* )?{name}\b", found.epilog)
    assert found.help and found.help.split("\n\n")[0].endswith(".")
    # What `memline --help` shows without importing the command: short enough for one line.
    rows = {each: line for group in GROUPS.values() for each, _, line in group}
    assert name not in rows or (rows[name].endswith(".") and len(rows[name]) <= 60)


@pytest.mark.parametrize("name", requirements())
def test_every_dependency_says_what_it_is_for(name):
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")

    rows = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]

    assert len(rows) == 1
    assert len(rows[0].split("|")[2].strip()) > 5


def test_no_dependency_is_explained_that_is_not_there():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = page.partition("## What each dependency is for")[2].partition("\n## ")[0]

    explained = re.findall(r"^\| `([\w.-]+)` \|", section, re.MULTILINE)

    assert sorted(explained) == sorted(requirements())


def test_http_goes_out_through_one_module():
    owners = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "memline").rglob("*.py")
        if re.search(r"^\s*(?:import|from) httpx\b", path.read_text("utf-8"), re.MULTILINE)
    ]

    assert owners == ["memline/shared/embedders/http.py"]


def test_every_queue_has_a_process_of_its_own():
    roles = [words[2:] for words in processes().values() if words[:2] == ["memline", "worker"]]

    assert sorted(roles) == sorted([queue] for queue in QUEUES)


def test_processes_are_commands_that_exist():
    assert {words[0] for words in processes().values()} == {"memline"}
    assert {words[1] for words in processes().values()} == {"watch", "worker", "serve"} <= set(COMMANDS)


def test_the_sample_configuration_embeds_nothing_and_names_the_sample_notes(home):
    file = ROOT / "examples" / "config.json5"

    loaded = load(Options(config=file), {"HOME": str(home), "OPENAI_API_KEY": "k"})

    assert loaded.warnings == ()
    settings = loaded.agent()
    assert settings.memory.provider == "none"
    assert settings.workspace == ROOT / "examples" / "workspace"


def test_every_link_of_a_page_leads_to_a_file_and_a_heading():
    dead = []
    for page in PAGES:
        for link in LINK.findall(prose(page)):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                dead.append((page.name, link))

    assert dead == []


def test_no_modules_import_each_other_in_a_circle():
    """Late imports and those for types count too: such a circle works only as long as nothing moves."""
    graph = grimp.build_graph("memline", cache_dir=None)
    modules = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    # It names the public names of the package, for types alone; all modules are below it.
    modules["memline"] = set()

    # Take away what imports nothing that is left; what remains leads into a circle.
    while outer := {module for module, imported in modules.items() if not imported & modules.keys()}:
        modules = {module: imported for module, imported in modules.items() if module not in outer}

    assert sorted(modules) == []
