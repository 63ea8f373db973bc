import json
import re
from pathlib import Path
from typing import Any

import pytest

from memline.shared.config import config_file, environment
from memline.shared.config.check import HIGHEST
from memline.shared.config.installation import PriceEntry
from memline.shared.config.keys import Block, default_of, leaves
from memline.shared.config.load import Options, load
from memline.shared.config.openclaw import QMD_KEYS
from memline.shared.config.schema import WITHOUT_EFFECT, ConfigFile, MemorySearch, ProviderEntry

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "config.md"
BLOCKS = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    for number, text in enumerate(re.findall(r"```json5\n(.*?)```", page.read_text("utf-8"), re.DOTALL), 1)
]

#: Keys whose default the page tells in words.
HAVE_NO_DEFAULT = ("agents.defaults.workspace", "memory.scope", "memory.qmd.scope", "perMillion")


#: The type of a key -> what the page says of it.
KINDS = {"bool": "true or false", "int": "whole number, {}", "float": "number, {}"}


def limits_of(field: Any) -> str:
    low, high = field.metadata.get("low", 0), field.metadata.get("high", HIGHEST)
    return f"from {low}" if high == HIGHEST else f"{low} to {high}"


def rows() -> dict[str, list[str]]:
    """The tables of the page: the cells of each row, by key."""
    cells = [re.split(r"\s*\|\s*", line.strip("| ")) for line in PAGE.read_text("utf-8").splitlines()]
    return {row[0].strip("`"): row for row in cells if len(row) == 4 and row[0].startswith("`")}


@pytest.mark.parametrize(
    ("block", "prefix"),
    [
        (MemorySearch, ""),
        (ProviderEntry, "models.providers.<id>."),
        (ConfigFile, ""),
        (PriceEntry, "prices.<model>."),
    ],
)
def test_every_key_is_documented_with_its_default(block: type[Block], prefix: str) -> None:
    documented = rows()

    for path, field in leaves(block):
        assert prefix + path in documented, path
        _, kind, default, effect = documented[prefix + path]
        expected: Any = default_of(field)
        if path not in HAVE_NO_DEFAULT:
            assert json.loads(default.strip("`")) == (
                list(expected) if isinstance(expected, tuple) else expected
            )
        assert kind and effect
        assert field.type not in KINDS or kind == KINDS[field.type].format(limits_of(field)), path
        for word in field.metadata.get("choices", ()):
            assert f"`{word}`" in kind, path


def test_no_key_is_documented_that_does_not_exist() -> None:
    known = {path for path, _ in leaves(MemorySearch)}

    documented = {
        key for key in rows() if not re.match(r"(agents|limits|memory|models|prices|queue|serve)\.", key)
    }

    assert documented == known


def test_every_variable_and_every_key_without_effect_is_documented() -> None:
    text = PAGE.read_text("utf-8")
    variables = [
        value
        for name, value in vars(environment).items()
        if name.isupper() and isinstance(value, str) and not (name.startswith("_") or value.startswith("_"))
    ]

    for word in (*variables, *sum(environment.PROVIDER_KEYS.values(), ()), *WITHOUT_EFFECT, *QMD_KEYS):
        assert f"`{word}`" in text, word


@pytest.mark.parametrize("text", BLOCKS)
def test_every_block_of_the_documentation_is_a_configuration(text: str, tmp_path: Path, home: Path) -> None:
    assert isinstance(config_file.parse(text, where="documentation"), dict)

    (tmp_path / "c.json5").write_text(text, encoding="utf-8")
    env = {"HOME": str(home)} | {name: f"value-of-{name}" for name in re.findall(r"\$\{(\w+)\}", text)}
    loaded = load(Options(config=tmp_path / "c.json5"), env)
    # Some blocks show the whole of OpenClaw's file; what of it comes later is told, all else has its effect.
    assert [text for text in loaded.warnings if "comes with a later release" not in text] == []
