"""Know the global options of the command line, and the folders that they and variables name."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import msgspec

from memline.shared.config import environment
from memline.shared.config.environment import Environment

#: A command in a hint, and the global options that it has.
_COMMAND = re.compile(r"\bmemline ((?:--[a-z]+ \S+ )*)(?=[a-z])")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The global options of the command line; None: not given."""

    config: Path | None = None
    home: Path | None = None
    workspace: Path | None = None
    agent: str | None = None
    #: Whether the process serves the configuration: with several agents, or a queue, the current folder is
    #: not asked which notes are meant.
    is_service: bool = False

    def given(self) -> list[str]:
        """Return the options that were given, as words of a command line."""
        named = ((name, getattr(self, name)) for name in ("config", "home", "workspace", "agent"))
        return [word for name, chosen in named if chosen is not None for word in (f"--{name}", str(chosen))]

    def as_typed(self, text: str) -> str:
        """Put these options into the commands of a hint, so that they work as typed.

        What a command names already stays.
        """
        given = self.given()

        def fill(match: re.Match[str]) -> str:
            named = match[1].split()
            pairs = zip(given[::2], given[1::2], strict=True)
            words = [f"{name} {shlex.quote(chosen)} " for name, chosen in pairs if name not in named]
            return f"memline {''.join(words)}{match[1]}"

        return _COMMAND.sub(fill, text)


class Place(NamedTuple):
    """A folder, and what says so: `<file>: <key>`, a variable, an option, or `default`."""

    path: Path
    origin: str


def folder_of(option: Path | None, name: str, variable: str, env: Environment) -> Place | None:
    """Return the folder of an option, else of a variable."""
    text, origin = (str(option), name) if option else (environment.read(env, variable), variable)
    return Place(Path(environment.expand_user(text, env)).absolute(), origin) if text else None


def home_of(options: Options, env: Environment) -> Path:
    """Return the folder of indexes and accounts."""
    named = folder_of(options.home, "--home", environment.HOME, env)
    return named.path if named else environment.xdg(env, "XDG_DATA_HOME", ".local/share")
