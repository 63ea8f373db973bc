"""docs/config.md names every key with its default; each block of the documentation is a configuration."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from memline.shared.config import config_file, environment
from memline.shared.config.installation import Block
from memline.shared.config.load import Options, load
from memline.shared.config.schema import ConfigFile, MemorySearch

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "config.md").read_text("utf-8")
BLOCKS = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    for number, text in enumerate(re.findall(r"```json5\n(.*?)```", page.read_text("utf-8"), re.DOTALL), 1)
]

#: Keys whose default the page tells in words, and blocks that repeat or have tables of their own.
NO_DEFAULT = ("agents.defaults.workspace", "memory.scope", "memory.qmd.scope")
NO_LEAVES = ("memorySearch", "search", "list", "entries", "providers", "prices", "systemAgent")


def leaves(block, prefix=""):
    for field in msgspec.structs.fields(block):
        path = f"{prefix}{field.encode_name}"
        if isinstance(field.type, type) and issubclass(field.type, Block):
            if field.encode_name not in NO_LEAVES:
                yield from leaves(field.type, f"{path}.")
        elif field.encode_name not in NO_LEAVES:
            yield path, msgspec.to_builtins(field.default) if field.default is not msgspec.NODEFAULT else {}


def rows():
    cells = [re.split(r"\s*\|\s*", line.strip("| ")) for line in PAGE.splitlines()]
    return {row[0].strip("`"): row for row in cells if len(row) == 4 and row[0].startswith("`")}


def test_every_key_is_documented_with_its_default_and_no_other():
    documented = rows()

    for path, default in (*leaves(MemorySearch), *leaves(ConfigFile)):
        assert path in documented, path
        _, kind, written, effect = documented[path]
        assert kind and effect
        if path not in NO_DEFAULT:
            assert json.loads(written.strip("`")) == json.loads(json.dumps(default)), path
    others = re.compile(r"(agents|limits|memory|models|prices|queue|serve)\.")
    assert {key for key in documented if not others.match(key)} == {path for path, _ in leaves(MemorySearch)}


def test_every_variable_is_documented():
    own = [each for each in vars(environment).values() if re.fullmatch(r"MEMLINE_\w+", str(each))]

    for word in (*own, *sum(environment.PROVIDER_KEYS.values(), ())):
        assert f"`{word}`" in PAGE, word


@pytest.mark.parametrize("text", BLOCKS)
def test_every_block_of_the_documentation_is_a_configuration(text, tmp_path, home):
    assert isinstance(config_file.parse(text, where="documentation"), dict)

    (tmp_path / "c.json5").write_text(text, encoding="utf-8")
    env = {"HOME": str(home)} | {name: f"value-of-{name}" for name in re.findall(r"\$\{(\w+)\}", text)}
    assert load(Options(config=tmp_path / "c.json5"), env).warnings == ()
