"""Leave files out: what `exclude` and ignore files name.

The rules are those of git. An ignore file counts in the folder that is read and below it, never above: a
project that keeps `memory/` out of its repository still has it as its memory.
"""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

#: Names of ignore files, the stronger one of a folder first.
IGNORE_FILES = (".ignore", ".gitignore")

#: What a rule of the configuration is called.
EXCLUDE = "exclude"

#: A larger ignore file is not read.
_MAX_BYTES = 1 << 20

#: Stars in one part of a pattern, and `**` in all of it; with eight, a name of 60 characters takes seconds.
_MAX_STARS = 4


class Rules:
    """Says why a path is left out; reads each ignore file once. `refresh` forgets what was read."""

    def __init__(self, workspace: str, exclude: Sequence[str], *, uses_files: bool) -> None:
        self._workspace = workspace
        self._exclude = tuple(exclude)
        self._uses_files = uses_files
        self._levels: dict[tuple[str, str], tuple[Level, ...]] = {}

    def refresh(self) -> None:
        """Read the ignore files anew."""
        self._levels.clear()

    def of(self, root: str, folder: str) -> tuple[Level, ...]:
        """Return the rules in force in a folder at or below a root, the strongest first; often none."""
        key = (root, folder)
        if key not in self._levels:
            above = self.of(root, os.path.dirname(folder)) if folder != root else self._of_exclude(root)
            excluded = 1 if self._exclude_spec else 0
            self._levels[key] = (*above[:excluded], *self._of_folder(folder), *above[excluded:])
        return self._levels[key]

    def reason(self, root: str, absolute: str) -> str:
        """Return why the path, or a folder above it within the root, is left out; empty when it is not.

        The root itself is named by the configuration: nothing but `exclude` leaves it out.
        """
        levels = self._of_exclude(root) if root != self._workspace else ()
        if reason := why(levels, root, is_folder=absolute != root):
            return reason
        folder, parts = root, absolute[len(root.rstrip("/")) + 1 :].split("/")
        for number, part in enumerate(parts, 1) if absolute != root else ():
            path = os.path.join(folder, part)
            if reason := why(self.of(root, folder), path, is_folder=number < len(parts)):
                return reason
            folder = path
        return ""

    def _of_exclude(self, root: str) -> tuple[Level, ...]:
        is_inside = root == self._workspace or root.startswith(self._workspace + os.sep)
        spec = self._exclude_spec
        return (Level(self._workspace if is_inside else root, spec, EXCLUDE),) if spec else ()

    @cached_property
    def _exclude_spec(self) -> Any:
        return _spec(self._exclude)

    def _of_folder(self, folder: str) -> Iterable[Level]:
        for name in IGNORE_FILES if self._uses_files else ():
            if (text := _read(os.path.join(folder, name))) and (spec := _spec(text.splitlines())):
                yield Level(folder, spec, name)


class Level(NamedTuple):
    """The patterns of one source, for paths below `base`."""

    base: str
    spec: Any
    source: str


def why(levels: Iterable[Level], absolute: str, *, is_folder: bool) -> str:
    """Return the source of the first rule about a path, when it leaves the path out; else an empty text."""
    for level in levels:
        relative = absolute[len(level.base.rstrip("/")) + 1 :]
        is_out = level.spec.check_file(f"{relative}/" if is_folder else relative).include
        if is_out is not None:
            return level.source if is_out else ""
    return ""


def _spec(lines: Iterable[str]) -> Any:
    written = (line for line in lines if line.strip() and not line.startswith("#"))
    usable = [line for line in written if is_safe(line)]
    if not usable:
        return None
    # Its import takes 8 ms, which a search without rules does not pay.
    from pathspec import GitIgnoreSpec

    # It leaves a set such as `[[]` to Python, which reads it as git does and warns that it may not for ever.
    warnings.filterwarnings("ignore", "Possible ", FutureWarning, r"pathspec\b")
    rules: list[Any] = []
    for line in usable:
        # One that git does not understand either is passed over.
        with suppress(ValueError, re.error):
            rules += GitIgnoreSpec.from_lines([line]).patterns
    return GitIgnoreSpec(rules) if rules else None


def is_safe(pattern: str) -> bool:
    """Tell whether a pattern has few enough stars to be matched at once."""
    parts = pattern.strip().split("/")
    stars = (part.count("*") for part in parts if part != "**")
    return max(stars, default=0) <= _MAX_STARS and parts.count("**") <= _MAX_STARS


def _read(path: str) -> str:
    """Return the text of a small regular file; empty when there is none. No link is followed."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_BYTES:
                # With the mark that Windows puts in front the first rule would be another one.
                return file.read(_MAX_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        pass
    return ""
