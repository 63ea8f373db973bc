"""Know the configurations of MCP clients: where each is, and what of it starts `memline mcp`."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from memline.shared.config import environment
from memline.shared.config.environment import Environment
from memline.shared.errors import ConfigError
from memline.shared.values import read_table

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


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """One program that starts MCP servers: a row of `clients.toml`, which says what each member means."""

    title: str
    files: tuple[str, ...]
    place: tuple[str, ...]
    more: dict[str, Any] = {}
    is_joined: bool = False
    command: str = ""

    @property
    def is_toml(self) -> bool:
        """Whether its file is TOML; else JSON, perhaps with comments."""
        return self.files[0].endswith(".toml")

    @property
    def is_of_folder(self) -> bool:
        """Whether its file is that of the current folder, and not of its user."""
        return self.files[0].startswith("{here}")

    def file(self, env: Environment) -> Path:
        """Return the file of its servers."""
        folders = _folders(env)
        files = [Path(each.format_map(folders)) for each in self.files]
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

    def with_server(self, content: dict[str, Any], name: str, server: Server) -> str:
        """Put the server into the content of its file, and return the text of that. Raises ConfigError."""
        node = content
        for each in self.place:
            node = node.setdefault(each, {})
            if not isinstance(node, dict):
                raise ConfigError(f"{'.'.join(self.place)} is not an object", hint="edit the file yourself")
        node[name] = self._entry(server)
        return json.dumps(content, ensure_ascii=False, indent=2) + "\n"

    def snippet(self, name: str, server: Server) -> str:
        """Write the part of its file that starts the server, as a whole file. Raises ConfigError."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} cannot be the name of a server", hint="use letters, digits, - and _")
        if not self.is_toml:
            return self.with_server({}, name, server)
        values = self._entry(server)
        if server.key_variable:
            # Codex hands on only what is named here. Never the key itself.
            values["env_vars"] = [server.key_variable]
        lines = [f"{key} = {json.dumps(each, ensure_ascii=False)}" for key, each in values.items()]
        return "\n".join([f"[{'.'.join((*self.place, name))}]", *lines, ""])

    def _entry(self, server: Server) -> dict[str, Any]:
        if self.is_joined:
            return {**self.more, "command": [server.command, *server.args]}
        return {**self.more, "command": server.command, "args": list(server.args)}


def _folders(env: Environment) -> Mapping[str, Path]:
    home, config = environment.user_home(env), environment.folder(env, "XDG_CONFIG_HOME", ".config")
    return {
        "here": Path.cwd(),
        "home": home,
        "config": config,
        "programs": home / "Library/Application Support" if sys.platform == "darwin" else config,
        "codex": environment.place_of("codex", env),
        "gemini": environment.place_of("gemini", env),
        "state": environment.state_dir(env),
    }


CLIENTS = msgspec.convert(read_table(__file__, "clients.toml"), dict[str, Client])


def own_command() -> str:
    """Return the path of this installation's command; a client has another PATH, or none."""
    started = Path(os.path.abspath(sys.argv[0]))
    # Links are kept: that of pipx stays the same through an upgrade, what it leads to does not.
    for path in (started, Path(sys.executable).with_name("memline")):
        if path.name == "memline" and os.access(path, os.X_OK) and path.is_file():
            return str(path)
    return shutil.which("memline") or "memline"
