"""The words of code and documentation are the field's: those that readers search for, in one meaning each."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Words that say nothing about who acts, and names of an earlier private language. `docs/glossary.md` has the
#: words to use.
AVOIDED = (
    *("nobody", "somebody", "whoever"),
    *("bell", "doorkeeper", "misfit", "patience", "roster", "stand-in", "take-up", "withdrawn"),
)

#: `X is no Y` where users expect `X is not a valid Y`.
_IS_NO = re.compile(
    r"(?<!there )\bis no (URL|JSON|number|list|name|date|path|address|table|object|text)\b", re.IGNORECASE
)

FILES = [
    path
    for folder in ("memline", "docs", "deploy")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".md", ".html", ".toml", ".json", ".yaml", ".yml")
]


@pytest.mark.parametrize("word", AVOIDED)
def test_no_file_uses_a_word_that_the_glossary_replaced(word: str) -> None:
    whole = re.compile(rf"\b{word}\b", re.IGNORECASE)

    assert [f"{path.relative_to(ROOT)}" for path in FILES if whole.search(path.read_text("utf-8"))] == []


def test_no_text_says_is_no_where_it_means_is_not_a_valid() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in FILES
        for match in _IS_NO.finditer(path.read_text("utf-8"))
    ]

    assert found == []


#: How texts begin that name no next thing to do.
_NO_ADVICE = re.compile(
    r"(?:an?|the|this|that|these|it|is|one of|at (?:least|most)|such as|did you|letters|digits) |-|\\S+ is "
)


def hints() -> Iterator[tuple[str, str]]:
    """Yield where a hint of an error is written, and how it begins."""
    for path in sorted((ROOT / "memline").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            is_problem = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("issues.problem")
            given = [each.value for each in getattr(node, "keywords", ()) if each.arg == "hint"]
            given += node.args[1:] if is_problem and isinstance(node, ast.Call) else []
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "hint":
                given.append(node.value)
            for value in given:
                choices = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
                for choice in choices:
                    yield f"{path.relative_to(ROOT)}:{choice.lineno}", ast.unparse(choice).lstrip("f'\"")


def test_every_hint_begins_with_what_to_do() -> None:
    found = [(place, hint) for place, hint in hints() if _NO_ADVICE.match(hint)]

    assert found == []
    assert len([*hints()]) > 200


def test_every_module_begins_with_a_docstring() -> None:
    first = {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8").split("\n", 1)[0]
        for path in (ROOT / "memline").rglob("*.py")
        if path.name != "__init__.py"
    }

    assert [name for name, line in first.items() if not re.match(r'r?""".+', line)] == []
