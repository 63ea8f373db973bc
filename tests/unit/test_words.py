"""The words of code and documentation are the field's: those that readers search for, in one meaning each."""

import re
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


def test_every_module_begins_with_a_docstring() -> None:
    first = {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8").split("\n", 1)[0]
        for path in (ROOT / "memline").rglob("*.py")
        if path.name != "__init__.py"
    }

    assert [name for name, line in first.items() if not re.match(r'r?""".+', line)] == []
