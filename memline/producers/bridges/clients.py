"""Know the configurations of MCP clients: where each is, and what of it starts `memline mcp`."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from memline.shared.config import environment
from memline.shared.config.environment import Environment
from memline.shared.errors import ConfigError

#: What a client may call the server: a name of a table and of tools.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Server(msgspec.Struct, frozen=True, kw_only=True):
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


class Client(msgspec.Struct, frozen=True, kw_only=True):
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

    def add_command(self, name: str, server: Server) -> list[str]:
        """Return the client's own command that adds the server; empty where there is none that works."""
        needs_key = self.is_toml and server.key_variable
        words = shlex.split(self.command.format(name=name, line=server.line))
        return words if words and not needs_key and shutil.which(words[0]) else []

    def plain_content(self, file: Path) -> dict[str, Any] | None:
        """Return the content of its file, empty when that is missing; None where it is not plain JSON."""
        if self.is_toml:
            return None
        try:
            content = json.loads(file.read_text("utf-8") or "{}")
        except FileNotFoundError:
            return {}
        except ValueError:
            return None
        return content if isinstance(content, dict) else None

    def with_server(self, content: Mapping[str, Any], name: str, server: Server) -> str:
        """Return the text of its file with the server in it. Raises ConfigError."""
        changed: dict[str, Any] = {**content}
        node = changed
        for each in self.place:
            inner = node.get(each, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{'.'.join(self.place)} is not an object", hint="edit the file yourself")
            node[each] = {**inner}
            node = node[each]
        node[name] = self.entry(server)
        return json.dumps(changed, ensure_ascii=False, indent=2) + "\n"

    def snippet(self, name: str, server: Server) -> str:
        """Write the part of its file that starts the server, as a whole file. Raises ConfigError."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} cannot be the name of a server", hint="use letters, digits, - and _")
        if not self.is_toml:
            return self.with_server({}, name, server)
        values = dict(self.entry(server))
        if server.key_variable:
            # Codex hands on only what is named here. Never the key itself.
            values["env_vars"] = [server.key_variable]
        lines = [f"{key} = {json.dumps(each, ensure_ascii=False)}" for key, each in values.items()]
        return "\n".join([f"[{'.'.join((*self.place, name))}]", *lines, ""])


def _vs_code_folder(env: Environment) -> Path:
    is_mac = sys.platform == "darwin"
    above = (
        environment.user_home(env) / "Library/Application Support"
        if is_mac
        else environment.folder(env, "XDG_CONFIG_HOME", ".config")
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
        files=lambda env: (environment.place_of("codex", env) / "config.toml",),
        place=("mcp_servers",),
        is_toml=True,
        command="codex mcp add {name} -- {line}",
    ),
    "gemini": Client(
        title="Gemini CLI",
        files=lambda env: (environment.place_of("gemini", env) / "settings.json",),
        place=("mcpServers",),
        command="gemini mcp add --scope user {name} {line}",
    ),
    "opencode": Client(
        title="opencode",
        files=lambda env: [
            environment.folder(env, "XDG_CONFIG_HOME", ".config") / "opencode" / name
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
            environment.folder(env, "XDG_CONFIG_HOME", ".config") / "devin" / "mcp_config.json",
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
        files=lambda env: (environment.folder(env, "XDG_CONFIG_HOME", ".config") / "zed" / "settings.json",),
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
