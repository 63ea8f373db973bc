"""Know the configurations of MCP clients: where each is, and what of it starts `memline mcp`."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table

from memline.shared.config import config_file, edit, environment
from memline.shared.config.environment import Environment
from memline.shared.config.transcript_programs import place_of
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


#: The members of a server's entry.
Entry = Mapping[str, Any]


def _plain(server: Server) -> Entry:
    return {"command": server.command, "args": list(server.args)}


@value
class Client:
    """One program that starts MCP servers."""

    title: str
    #: The files that may hold its servers: the first that exists, else the first.
    files: Callable[[Environment], Sequence[Path]]
    #: Where in the file they are.
    place: tuple[str, ...]
    #: The members of a server's entry, in the client's words.
    entry: Callable[[Server], Entry] = _plain
    is_toml: bool = False
    #: Its own command that adds a server; {name} and {line} are filled in.
    command: str = ""

    def file(self, env: Environment) -> Path:
        """Return the file of its servers."""
        files = self.files(env)
        return next((file for file in files if file.exists()), files[0])

    def values(self, server: Server) -> Entry:
        """Return the members of the server's entry."""
        values = dict(self.entry(server))
        if self.is_toml and server.key_variable:
            # Codex hands on only what is named here. Never the key itself.
            values[_FORWARDED] = [server.key_variable]
        return values

    def changed(self, text: str, name: str, values: Entry, *, where: str) -> str:
        """Return the text of its file with the server in it; what else is there stays. Raises ConfigError."""
        _check_name(name)
        mark, text = _parted(text)
        if self.is_toml:
            return mark + put_toml(text, (*self.place, name), values, grows=(_FORWARDED,), where=where)
        for member, each in values.items():
            text = edit.put(text, (*self.place, name, member), each, where=where)
        return mark + text

    def current(self, text: str, name: str, *, where: str) -> Entry | None:
        """Return the entry of a server as it stands in the text; None without one. Raises ConfigError."""
        _, text = _parted(text)
        try:
            node: Any = tomllib.loads(text) if self.is_toml else config_file.parse(text, where=where)
        except tomllib.TOMLDecodeError as error:
            raise _no_toml(where, error) from error
        for each in (*self.place, name):
            node = node.get(each) if isinstance(node, dict) else None
        return node if isinstance(node, dict) else None

    def removed(self, text: str, name: str, earlier: Sequence[str], *, where: str) -> str:
        """Return the text without the server. Raises ConfigError when it cannot be changed safely.

        When one of the `earlier` texts without it became this one by nothing but the entry, it is that one to
        the byte.
        """
        entry = self.current(text, name, where=where)
        if entry is None:
            return text
        for each in earlier:
            try:
                has_it = self.current(each, name, where=where) is not None
                if not has_it and self.changed(each, name, entry, where=where) == text:
                    return each
            except ConfigError:
                continue
        mark, text = _parted(text)
        if self.is_toml:
            return mark + remove_toml(text, (*self.place, name), where=where)
        return mark + edit.remove(text, self.place, name, where=where)

    def snippet(self, name: str, server: Server) -> str:
        """Write the part of its file that starts the server, as a whole file. Raises ConfigError."""
        _check_name(name)
        if self.is_toml:
            return self.changed("", name, self.values(server), where="")
        entry: Any = self.values(server)
        for each in reversed((*self.place, name)):
            entry = {each: entry}
        return json.dumps(entry, ensure_ascii=False, indent=2) + "\n"


def _check_name(name: str) -> None:
    """Raise ConfigError for what cannot be the name of a server."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be the name of a server", hint="use letters, digits, - and _")


def _parted(text: str) -> tuple[str, str]:
    """Return the mark with which some editors begin a file, if it is there, and the text behind it."""
    bare = text.removeprefix("\ufeff")
    return text[: len(text) - len(bare)], bare


def _vs_code_folder(env: Environment) -> Path:
    is_mac = sys.platform == "darwin"
    above = (
        environment.user_home(env) / "Library/Application Support"
        if is_mac
        else environment.client_settings(env)
    )
    return above / "Code" / "User"


#: By the name that `memline setup` takes.
CLIENTS: Mapping[str, Client] = {
    "claude": Client(
        title="Claude Code",
        files=lambda _: (Path.cwd() / ".mcp.json",),
        place=("mcpServers",),
        command="claude mcp add {name} -- {line}",
    ),
    "cursor": Client(
        title="Cursor",
        files=lambda env: (environment.user_home(env) / ".cursor" / "mcp.json",),
        place=("mcpServers",),
    ),
    "codex": Client(
        title="Codex",
        files=lambda env: (place_of("codex", env) / "config.toml",),
        place=("mcp_servers",),
        is_toml=True,
        command="codex mcp add {name} -- {line}",
    ),
    "gemini": Client(
        title="Gemini CLI",
        files=lambda env: (place_of("gemini", env) / "settings.json",),
        place=("mcpServers",),
        command="gemini mcp add --scope user {name} {line}",
    ),
    "opencode": Client(
        title="opencode",
        files=lambda env: [
            environment.client_settings(env) / "opencode" / name
            for name in ("opencode.json", "opencode.jsonc")
        ],
        place=("mcp",),
        entry=lambda server: {"type": "local", "command": [server.command, *server.args], "enabled": True},
    ),
    "windsurf": Client(
        title="Windsurf",
        # The second is where Devin Desktop, its name since June 2026, is said to look.
        files=lambda env: (
            environment.user_home(env) / ".codeium" / "windsurf" / "mcp_config.json",
            environment.client_settings(env) / "devin" / "mcp_config.json",
        ),
        place=("mcpServers",),
    ),
    "vscode": Client(
        title="VS Code",
        files=lambda env: (_vs_code_folder(env) / "mcp.json",),
        place=("servers",),
        entry=lambda server: {"type": "stdio", **_plain(server)},
    ),
    "zed": Client(
        title="Zed",
        files=lambda env: (environment.client_settings(env) / "zed" / "settings.json",),
        place=("context_servers",),
        entry=lambda server: {**_plain(server), "env": {}},
    ),
    "openclaw": Client(
        title="OpenClaw",
        files=lambda env: (environment.state_dir(env) / "openclaw.json",),
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
    values: Mapping[str, Any],
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
        raise _no_toml(where, error) from error
    edited, plain = _toml_table(document, table, where), _toml_table(wanted, table, where)
    is_new = not plain
    for name, given in values.items():
        old = plain.get(name)
        if name in grows and isinstance(old, list):
            given = [*old, *(new for new in given if new not in old)]
        if old != given:
            edited[name] = plain[name] = given
    # A new table stands at the end, clear of the comments of others, unless these tables stand on a line.
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    appended = [f"{text}{gap}[{'.'.join(table)}]\n{tomlkit.dumps(plain)}"] if is_new else []
    return _checked([*appended, tomlkit.dumps(document)], wanted, where)


def remove_toml(text: str, table: Sequence[str], *, where: str) -> str:
    """Return the text without the table of this name. Raises ConfigError when it cannot be changed safely."""
    try:
        wanted, document = tomllib.loads(text), tomlkit.parse(text)
        holders = [_toml_table(root, table[:-1], where) for root in (wanted, document)]
        for holder in holders:
            del holder[table[-1]]
        if not holders[0] and isinstance(holders[1], Table) and holders[1].is_super_table():
            # No line of its own names it.
            for root in (wanted, document):
                del _toml_table(root, table[:-2], where)[table[-2]]
    except (tomllib.TOMLDecodeError, TOMLKitError) as error:
        raise _no_toml(where, error) from error
    return _checked([tomlkit.dumps(document)], wanted, where)


def _no_toml(where: str, error: Exception) -> ConfigError:
    return ConfigError(f"{where}: {error}", hint=f"correct {where}: it is not TOML")


def _checked(texts: Iterable[str], wanted: dict[str, Any], where: str) -> str:
    """Return the first text that says what is wanted. Raises ConfigError when none does."""
    for text in texts:
        with suppress(tomllib.TOMLDecodeError):
            if tomllib.loads(text) == wanted:
                return text
    # Dotted keys beside tables are where the library has been wrong.
    raise ConfigError(f"{where}: not changed, its form is not understood", hint=f"edit {where} yourself")


def _toml_table(node: Any, names: Sequence[str], where: str) -> Any:
    """Return the table of these names, which is made when it is missing."""
    for number, name in enumerate(names, 1):
        if isinstance(node, dict):
            if name not in node:
                is_on_a_line = isinstance(node, InlineTable)
                is_last = number == len(names)
                node[name] = tomlkit.inline_table() if is_on_a_line else tomlkit.table(not is_last)
            node = node[name]
        if not isinstance(node, dict):
            raise ConfigError(f"{where}: {'.'.join(names)} is not a table", hint=f"edit {where} yourself")
    return node
