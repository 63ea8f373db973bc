"""docs/agents.md: its examples run as they are written."""

import ast
import re

import pytest

from memline import Memory
from tests.support.process import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "agents.md").read_text(encoding="utf-8"), re.S)
#: Blocks for a library that is not installed here.
RECIPES = [block for block in BLOCKS if block.startswith("# recipe:")]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block not in RECIPES])
def test_an_example_runs(block, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "MEMORY.md").write_text("We chose Redis for its streams.\n")

    exec(compile(block, "docs/agents.md", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", RECIPES)
def test_a_recipe_uses_only_what_memory_has(block):
    tree = ast.parse(block)
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("memory")
    }

    assert used == {"search"}
    assert all(hasattr(Memory, name) for name in used)
