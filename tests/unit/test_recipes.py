"""The recipes of CONTRIBUTING against the tree: every file they name is there, and no other is needed."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from memline.producers.bridges.clients import CLIENTS
from memline.producers.calls.memory_calls import SEARCH
from memline.producers.calls.rows import JSON
from memline.producers.calls.table import CALLS
from memline.shared.config.transcript_programs import TRANSCRIPT_PROGRAMS
from memline.shared.providers import PROVIDERS

ROOT = Path(__file__).parents[2]
RECIPES = {
    part.partition("\n")[0]: part
    for part in (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Recipes")[2].split("\n### ")[1:]
}
SOURCES = {
    path.relative_to(ROOT / "memline").as_posix(): path.read_text("utf-8")
    for path in (ROOT / "memline").rglob("*.py")
}


def files_of(recipe: str) -> set[str]:
    """The files and folders that a recipe names, as they are below the top level."""
    named = re.findall(r"`((?:producers|shared|workers|tests|docs|scripts)/[\w/.-]*)`", RECIPES[recipe])
    return {name.rstrip("/") for name in named}


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_file_of_a_recipe_is_there(recipe: str) -> None:
    assert [name for name in files_of(recipe) if not (ROOT / name).exists()] == []


@cache
def words_of(source: str) -> set[str]:
    """The names and texts of a module, without its comments and docstrings."""
    words: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name | ast.Attribute | ast.keyword | ast.arg):
            words.add(str(getattr(node, "id", None) or getattr(node, "attr", None) or node.arg))  # type: ignore[union-attr]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.add(node.value)
    return words


def test_a_search_parameter_stands_in_the_files_of_its_recipe_alone() -> None:
    """A face that named one would have to be changed for the next; a command that asks for one is a user."""
    allowed = files_of("A search parameter")
    rooms = ("producers/cli/", "producers/http/", "producers/agents/")
    faces = {name for name in SOURCES if name.startswith(rooms)} - allowed
    faces |= {"producers/memory.py", "producers/web/search_page.py"}
    faces |= {"shared/queue/replies.py", "workers/query.py"}
    asked = [each for each in SEARCH.parameters if JSON in each.faces and not each.is_required]
    # `path` and `exclude` alone say many things; an option, and a name of two words, only this.
    words = {
        word
        for each in asked
        for word in (each.name, each.key, each.option)
        if not word.islower() or "_" in word or word[0] == "-"
    }

    named = {f"{name}: {word}" for name in faces for word in words & words_of(SOURCES[name])}

    # Of `memline init`, whose first answer is short.
    assert named == {"producers/cli/init.py: max_results"}


def test_an_action_stands_in_the_files_of_its_recipe_alone() -> None:
    """Its function is named in its row and nowhere else: no face has a branch for it."""
    verbs = [call for call in CALLS.values() if call.run.startswith("memline.producers.actions.verbs:")]

    for call in verbs:
        _, _, function = call.run.partition(":")
        use = re.compile(rf"\bverbs(?:\.| import .*\b){function}\b")
        assert [name for name, source in SOURCES.items() if use.search(source)] == [], call.name
    assert len(verbs) > 10


def test_a_transcript_format_stands_in_the_files_of_its_recipe_alone() -> None:
    """But for OpenClaw's, from which settings are taken over, too."""
    row, modules = "shared/config/transcript_programs.py", "shared/sources/transcripts/"
    assert {row, modules.rstrip("/")} <= files_of("A transcript format")
    for name, program in TRANSCRIPT_PROGRAMS.items():
        place = program.place
        if place is None or name == "openclaw":
            continue
        # Memline's own data is below the same folder of the system.
        words = {place.variable, place.file_variable, program.module, name} - {"", "XDG_DATA_HOME"}
        # A client that is connected, and a provider, have the same name.
        words -= {*CLIENTS, *PROVIDERS}

        where = {path for path, source in SOURCES.items() if words & words_of(source)}

        assert words and where <= {row, f"{modules}{program.module}.py"}, (name, where)


def test_the_audit_line_is_written_in_one_place() -> None:
    writers = [name for name, source in SOURCES.items() if re.search(r"""\(\s*f?["']audit\.""", source)]

    # Logging in is no action of the table.
    assert sorted(writers) == ["producers/actions/perform.py", "producers/web/dashboard.py"]
