"""Know the configurations of MCP clients: where each is, and what of it starts `memline mcp`."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from memline.shared.config import edit, environment
from memline.shared.config.environment import Environment
from memline.shared.errors import ConfigError
from memline.shared.values import value

#: What a client may call the server: a name of a table and of tools.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

#: Where Codex has the names of variables that a server gets.
_FORWARDED = "env_vars"


@value
class Server:
    """How a client starts the server."""

    command: str
    args: tuple[str, ...]
    #: The variable of the key that embeds questions; empty without one.
    key_variable: str = ""

    @property
    def line(self) -> str:
        """The same as it is typed."""
        return shlex.join((self.command, *self.args))


@value
class Client:
    """One program that starts MCP servers."""

    title: str
    #: The file of its servers.
    file: Callable[[Environment], Path]
    #: Where in the file they are.
    place: tuple[str, ...]
    is_toml: bool = False
    #: Its own command that adds a server; {name} and {line} are filled in.
    command: str = ""

    def values(self, server: Server) -> dict[str, str | list[str]]:
        """Return the members of the server's entry."""
        values: dict[str, str | list[str]] = {"command": server.command, "args": list(server.args)}
        if self.is_toml and server.key_variable:
            # Codex hands on only what is named here. Never the key itself.
            values[_FORWARDED] = [server.key_variable]
        return values

    def changed(self, text: str, name: str, server: Server, *, where: str) -> str:
        """Return the text of its file with the server in it; what else is there stays. Raises ConfigError."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} cannot be the name of a server", hint="letters, digits, - and _")
        if self.is_toml:
            return put_toml(text, (*self.place, name), self.values(server), grows=(_FORWARDED,), where=where)
        for member, entry in self.values(server).items():
            text = edit.put(text, (*self.place, name, member), entry, where=where)
        return text

    def snippet(self, name: str, server: Server) -> str:
        """Write the part of its file that starts the server, as a whole file."""
        if self.is_toml:
            return self.changed("", name, server, where="")
        entry: Any = self.values(server)
        for each in reversed((*self.place, name)):
            entry = {each: entry}
        return json.dumps(entry, ensure_ascii=False, indent=2) + "\n"


#: By the name that `memline setup` takes.
CLIENTS: Mapping[str, Client] = {
    "claude": Client(
        title="Claude Code",
        file=lambda _: Path.cwd() / ".mcp.json",
        place=("mcpServers",),
        command="claude mcp add {name} -- {line}",
    ),
    "cursor": Client(
        title="Cursor",
        file=lambda env: environment.user_home(env) / ".cursor" / "mcp.json",
        place=("mcpServers",),
    ),
    "codex": Client(
        title="Codex",
        file=lambda env: environment.codex_home(env) / "config.toml",
        place=("mcp_servers",),
        is_toml=True,
        command="codex mcp add {name} -- {line}",
    ),
    "openclaw": Client(
        title="OpenClaw",
        file=lambda env: environment.state_dir(env) / "openclaw.json",
        place=("mcp", "servers"),
    ),
}


def own_command() -> str:
    """Return the path of this installation's command; a client has another PATH, or none."""
    started = Path(os.path.abspath(sys.argv[0]))
    # Links are kept: that of pipx stays the same through an upgrade, what it leads to does not.
    for path in (started, Path(sys.executable).with_name("memline")):
        if path.name == "memline" and os.access(path, os.X_OK) and path.is_file():
            return str(path)
    return shutil.which("memline") or "memline"


def put_toml(
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
    edited, plain = _toml_table(document, table, where), _toml_table(wanted, table, where)
    for name, given in values.items():
        old = plain.get(name)
        if name in grows and isinstance(old, list):
            given = [*old, *(new for new in given if new not in old)]
        if old != given:
            edited[name] = plain[name] = given
    try:
        changed = tomlkit.dumps(document)
        is_right = tomllib.loads(changed) == wanted
    except (tomllib.TOMLDecodeError, TOMLKitError):
        is_right = False
    if not is_right:
        # Dotted keys beside tables are where the library has been wrong.
        raise ConfigError(f"{where}: not changed, its form is not understood", hint=f"edit {where} yourself")
    return changed


def _toml_table(node: Any, names: Sequence[str], where: str) -> Any:
    """Return the table of these names, which is made when it is missing."""
    for number, name in enumerate(names, 1):
        if isinstance(node, dict):
            if name not in node:
                node[name] = tomlkit.table(is_super_table=number < len(names))
            node = node[name]
        if not isinstance(node, dict):
            raise ConfigError(f"{where}: {'.'.join(names)} is not a table", hint=f"edit {where} yourself")
    return node
