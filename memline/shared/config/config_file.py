"""Find and read the configuration file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from memline.shared.config import environment
from memline.shared.config.environment import Environment
from memline.shared.errors import ConfigError
from memline.shared.patterns import late

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: A text that begins, after comments, with a key and a colon: the members of an object without its braces,
#: as they are often printed in documentation.
_BARE_MEMBERS = r"""(?>\s+|//[^\n]*\n|/\*.*?\*/)*+(?:[A-Za-z_$][\w$]*|"[^"\n]*"|'[^'\n]*')\s*:"""


#: A string of JSON; a string in single quotes that needs no escape; a comment.
_STRINGS_AND_COMMENTS = late(
    r"""("(?:[^"\\\r\n]|\\.)*+")|(?<!\\)'([^'"\\\r\n]*+)'|//[^\r\n\u2028\u2029]*+|/\*.*?\*/""", re.DOTALL
)
#: A string; a key without quotes; the comma behind the last value of an object or array.
_KEYS_AND_COMMAS = late(
    r"""("(?:[^"\\\r\n]|\\.)*+")|(?<![\\\w$])([A-Za-z_$][\w$]*+)(?=\s*:)"""
    r"""|(?<=["\]}\w])(\s*+),(?=\s*[}\]])""",
    re.DOTALL | re.ASCII,
)


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
    return environment.xdg(env, "XDG_CONFIG_HOME", ".config") / "config.json5", environment.state_dir(
        env
    ) / "openclaw.json"


def find(named: Path | None, env: Environment) -> Path | None:
    """Return the file of `--config` or `MEMLINE_CONFIG`, which has to exist, else the first default place."""
    named_by = "--config"
    if named is None and (variable := environment.value(env, environment.CONFIG)):
        named, named_by = Path(variable), environment.CONFIG
    if named is None:
        return next((place for place in default_places(env) if place.exists()), None)
    path = Path(environment.expand_user(str(named), env)).absolute()
    if not path.exists():
        raise ConfigError(
            f"{path}: no such configuration file (named by {named_by})",
            hint=f"create it, or leave {named_by} away: every key has a default",
        )
    return path


def read(path: Path, *, tell_twice: Callable[[str], object] | None = None) -> dict[str, Any]:
    """Return the object in the file; an empty file is an empty object. `tell_twice`: as in `parse`."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}", hint=f"check it: ls -ld {path}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not UTF-8 at byte {error.start}", hint="save the file as UTF-8"
        ) from error
    content = parse(text, where=str(path), tell_twice=tell_twice)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: the file has to hold an object", hint="write { … } around its content")
    return content


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
    # One of an earlier release.
    os.fchmod(opened, 0o600)
    return opened


def parse(text: str, *, where: str, tell_twice: Callable[[str], object] | None = None) -> Any:
    """Parse a JSON5 text; an empty one is an empty object, and the outermost braces may be missing.

    `tell_twice` is told the keys that an object has twice: the last counts.
    """
    if not text.strip():
        return {}

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if tell_twice and len(found) < len(pairs):
            names = [name for name, _ in pairs]
            for name in found:
                if names.count(name) > 1:
                    tell_twice(name)
        return found

    with suppress(ValueError, RecursionError):
        return json.loads(text, object_pairs_hook=object_of)
    before, after = ("{", "\n}") if re.match(_BARE_MEMBERS, text, re.DOTALL) else ("", "")
    # To import a JSON5 parser takes 9 ms of the 45 of a search.
    with suppress(ValueError, RecursionError):
        return json.loads(_as_json(f"{before}{text}{after}"), object_pairs_hook=object_of)
    return _parse_json5(text, before, after, where)


def _as_json(text: str) -> str:
    """Write a JSON5 text as JSON; what it does not know, or is wrong in the text, is none."""

    def without_comment(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[1]
        if match[2] is not None:
            return f'"{match[2]}"'
        # No string goes over the end of a line, with a comment in it neither.
        return "\n" if len(match[0].splitlines()) > 1 else " "

    def with_quotes(match: re.Match[str]) -> str:
        return f'"{match[2]}"' if match[2] else match[1] or match[3]

    return _KEYS_AND_COMMAS.sub(with_quotes, _STRINGS_AND_COMMENTS.sub(without_comment, text))


def _parse_json5(text: str, before: str, after: str, where: str) -> Any:
    import pyjson5

    try:
        return pyjson5.decode(f"{before}{text}{after}")
    except pyjson5.Json5Exception as error:
        message = str(error.args[0])
        if message.startswith("No JSON data found"):
            return {}
        position = re.search(r"near (\d+)", message)
        offset = int(position[1]) - 1 - len(before) if position else 0
        if offset < 0:
            # The brace that was added is the one that is not closed.
            message, offset = "", len(text)
        if isinstance(error, pyjson5.Json5ExtraData):
            # Its position is the end of the value, not the place of what follows.
            offset = max(offset, text.find(error.character or "", offset + 1))
        line = text.count("\n", 0, offset) + 1
        column = offset - text.rfind("\n", 0, offset)
        # Not the file of another program, which may take less.
        allowed = "; the file is JSON5, so comments and trailing commas are fine" * where.endswith(".json5")
        raise ConfigError(
            f"{where}: line {line}, column {column}: {_complaint(message, text, offset)}",
            hint=f"correct line {line}{allowed}",
        ) from None


def _complaint(message: str, text: str, offset: int) -> str:
    """Put the parser's message in plain words; it never quotes more than one character of the file."""
    if unclosed := re.search(r"Unclosed b'(\w+)'", message):
        return f"the {unclosed[1]} that starts here is not closed"
    if message.startswith("Maximum nesting"):
        return "nested too deep"
    found = repr(text[offset]) if offset < len(text) else "the end of the file"
    if message.startswith("Extra data"):
        return f"{found} after the end of the value"
    return f"{found} is not expected here"
