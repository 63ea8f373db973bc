"""Set values of one table in a TOML text; all else stays, comments too."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from memline.shared.errors import ConfigError


def put(
    text: str,
    table: Sequence[str],
    values: Mapping[str, str | list[str]],
    *,
    grows: Sequence[str] = (),
    where: str,
) -> str:
    """Return the text with these values in the table of this name, which is made when it is missing.

    A list named in `grows` keeps what it holds. Raises ConfigError when the text cannot be changed safely;
    `where` names the file.
    """
    try:
        wanted, document = tomllib.loads(text), tomlkit.parse(text)
    except (tomllib.TOMLDecodeError, TOMLKitError) as error:
        raise ConfigError(f"{where}: {error}", hint=f"correct {where}: it is not TOML") from error
    edited, plain = _table(document, table, where), _table(wanted, table, where)
    for name, value in values.items():
        old = plain.get(name)
        if name in grows and isinstance(old, list):
            value = [*old, *(new for new in value if new not in old)]
        if old != value:
            edited[name] = plain[name] = value
    try:
        changed = tomlkit.dumps(document)
        is_right = tomllib.loads(changed) == wanted
    except (tomllib.TOMLDecodeError, TOMLKitError):
        is_right = False
    if not is_right:
        # Dotted keys beside tables are where the library has been wrong.
        raise ConfigError(f"{where}: not changed, its form is not understood", hint=f"edit {where} yourself")
    return changed


def _table(node: Any, names: Sequence[str], where: str) -> Any:
    """Return the table of these names, which is made when it is missing."""
    for number, name in enumerate(names, 1):
        if isinstance(node, dict):
            if name not in node:
                node[name] = tomlkit.table(is_super_table=number < len(names))
            node = node[name]
        if not isinstance(node, dict):
            raise ConfigError(f"{where}: {'.'.join(names)} is not a table", hint=f"edit {where} yourself")
    return node
