"""Read a table of this package: a TOML file beside the module that uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_table(module_file: str, name: str) -> dict[str, Any]:
    """Return what the file `name` beside a module (its `__file__`) says."""
    import tomllib

    return tomllib.loads(Path(module_file).with_name(name).read_text("utf-8"))
