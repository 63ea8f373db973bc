"""Read TOML: a table of this package, a file beside the module that uses it, and what a note has of it.

And take what others wrote, in whatever form, for what it should be: one of another kind is empty.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_table(module_file: str, name: str) -> dict[str, Any]:
    """Return what the file `name` beside a module (its `__file__`) says."""
    return read_toml(Path(module_file).with_name(name).read_text("utf-8"))


def read_toml(text: str) -> dict[str, Any]:
    """Read a text in TOML. Raises ValueError, and RecursionError for a list in a thousand others."""
    import tomllib

    return tomllib.loads(text)


def as_dict(content: object) -> dict[str, Any]:
    """Return what should be an object; an empty one when it is something else."""
    return content if isinstance(content, dict) else {}


def as_list(content: object) -> list[Any]:
    """Return what should be a list; an empty one when it is something else."""
    return content if isinstance(content, list) else []


def as_text(content: object) -> str:
    """Return what should be text; an empty one when it is something else."""
    return content if isinstance(content, str) else ""
