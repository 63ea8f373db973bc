"""Find, read and write the configuration file."""

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from memline.shared.config import environment
from memline.shared.config.environment import Environment
from memline.shared.errors import ConfigError


class SettingsFile:
    """The configuration file of a process, as it was when the process read it."""

    def __init__(self, path: Path | None = None) -> None:
        """`path`: where the file is, or would be; None: there is none for this process."""
        self.path = path
        self.read_ns = changed_ns(path)

    def newer(self) -> str:
        """Return the file's name when it was changed since; else an empty text.

        Settings are read at the start of a process. It goes on with them while the file is away.
        """
        return "" if changed_ns(self.path) in (0, self.read_ns) else str(self.path)


def changed_ns(path: Path | None) -> int:
    """Return when a file was changed last (nanoseconds since the epoch); 0 when there is none."""
    try:
        return path.stat().st_mtime_ns if path else 0
    except OSError:
        return 0


def default_places(env: Environment) -> tuple[Path, ...]:
    """Return the places of the file when none is named; the first that exists counts."""
    own = environment.xdg(env, "XDG_CONFIG_HOME", ".config") / "config.json5"
    return own, environment.state_dir(env) / "openclaw.json"


def find(named: Path | None, env: Environment) -> Path | None:
    """Return the file of `--config` or `MEMLINE_CONFIG`, which has to exist, else the first default place."""
    variable = environment.read(env, environment.CONFIG)
    if named is None and not variable:
        return next((place for place in default_places(env) if place.exists()), None)
    named_by = environment.CONFIG if named is None else "--config"
    path = Path(environment.expand_user(str(named or variable), env)).absolute()
    if not path.exists():
        raise ConfigError(
            f"{path}: no such configuration file (named by {named_by})",
            hint=f"create it, or leave {named_by} away: every key has a default",
        )
    return path


def read(path: Path) -> dict[str, Any]:
    """Return the object in the file; an empty file is an empty object. Raises ConfigError."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        words = f"{path}: cannot be read: {error.strerror}"
        raise ConfigError(words, hint=f"check it: ls -ld {path}") from error
    except UnicodeDecodeError as error:
        words = f"{path}: not UTF-8 at byte {error.start}"
        raise ConfigError(words, hint="save the file as UTF-8") from error
    content = parse(text, where=str(path))
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: the file has to hold an object", hint="write { … } around its content")
    return content


def parse(text: str, *, where: str) -> Any:
    """Parse a JSON5 text; one without a value is an empty object. Raises ConfigError with the line."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    # With what it imports 8 ms, which no command pays whose file is plain JSON.
    import pyjson5

    try:
        return pyjson5.decode(text)
    except pyjson5.Json5Exception as error:
        message = str(error.args[0])
        if message.startswith("No JSON data found"):
            return {}
        position = re.search(r"near (\d+)", message)
        line = text.count("\n", 0, int(position[1]) - 1) + 1 if position else 1
        words = f"{where}: line {line}: this is not JSON5, or something is not closed"
        raise ConfigError(words, hint=f"correct the file at line {line}") from None


def write(file: Path, text: str) -> None:
    """Replace the file at once, so that no reader finds half of it; a link stays a link.

    A new one is for its owner alone.
    """
    target = Path(os.path.realpath(file))
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}")
    # Never readable to others, not for a moment either: settings may hold keys.
    try:
        with open(part, "w", encoding="utf-8", newline="", opener=for_owner) as opened:
            opened.write(text)
        if target.exists():
            os.chmod(part, target.stat().st_mode & 0o777)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def for_owner(path: str, flags: int) -> int:
    """Open a file that only its owner may read, made when it is missing; an opener of `open`."""
    opened = os.open(path, flags, 0o600)
    # One that was there before may have been readable to others.
    os.fchmod(opened, 0o600)
    return opened
