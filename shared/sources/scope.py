"""Which paths are memory, decided by names alone: nothing is looked up on the disk.

A ledger path is relative to the workspace, with "/", when the file is inside it, else absolute. The trusted
`anchor` of a file is the folder that the configuration names; no link is followed below it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from shared.config.schema import ExtraPath
from shared.sources.patterns import Pattern, compile_pattern
from shared.values import value

#: Files of the workspace that are memory beside `memory/`.
ROOT_FILES = ("MEMORY.md", "memory.md")

#: The folder of the workspace that is memory as a whole.
MEMORY_FOLDER = "memory"

#: Endings of a Markdown file; a default pattern takes the first alone.
MARKDOWN = (".md", ".markdown")

#: Folders that are never entered: packages, environments, caches, what a system keeps for itself. Every
#: hidden folder is one of them too (`.git`, `.venv`, `.obsidian`, `.trash`, `.stversions` …): tools keep
#: state, old versions and deleted notes there. To have one all the same, name it as an entry of `extraPaths`.
IGNORED_FOLDERS = frozenset(
    {
        "node_modules",
        "bower_components",
        "venv",
        "site-packages",
        "__pycache__",
        "__pypackages__",
        "__MACOSX",
        "lost+found",
        "$RECYCLE.BIN",
        "System Volume Information",
        "@eaDir",
    }
)

#: Hidden names of editors and systems that end like a note: Emacs' locks, macOS' resource forks.
_LITTER = (".#", "._")


def is_ignored_folder(name: str) -> bool:
    """Whether a folder of this name is never entered."""
    return name.startswith(".") or name in IGNORED_FOLDERS


def is_markdown(name: str) -> bool:
    """Whether a file of this name is Markdown."""
    return name.endswith(MARKDOWN) and not name.startswith(_LITTER)


def is_storable(name: str) -> bool:
    """Whether the name is valid Unicode; others reach Python as lone surrogates and fit in no index."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(name: str) -> str:
    r"""The name in valid Unicode: bytes that are not UTF-8 become `\xNN`, backslashes beside them double."""
    if is_storable(name):
        return name
    return os.fsencode(name.replace("\\", "\\\\")).decode("utf-8", "backslashreplace")


@value
class Root:
    """A file or folder that the configuration, or the rule of the workspace, names."""

    path: str
    pattern: Pattern
    #: The words of the configuration; empty for the workspace's own.
    named: str = ""


@value
class Located:
    """Where the file of a ledger path is."""

    path: str
    absolute: str
    #: The trusted folder: no link is followed below it.
    anchor: str


class Scope:
    """The memory of one agent: its workspace and the entries of `extraPaths`."""

    def __init__(self, workspace: Path, extra_paths: Sequence[ExtraPath] = ()) -> None:
        self.workspace = os.path.abspath(os.path.expanduser(workspace))
        self._inside = _folder_prefix(self.workspace)
        default = compile_pattern("**/*.md")
        self.files = tuple(Root(path=self._inside + name, pattern=default) for name in ROOT_FILES)
        self.memory = Root(path=self._inside + MEMORY_FOLDER, pattern=default)
        self.extras = tuple(self._extra_roots(extra_paths))
        self._roots = (*self.files, self.memory, *self.extras)

    def ledger_path(self, absolute: str) -> str:
        """The ledger path of an absolute path."""
        relative = absolute[len(self._inside) :] if absolute.startswith(self._inside) else absolute
        return relative if os.sep == "/" else relative.replace(os.sep, "/")

    def anchor(self, root: str) -> str:
        """The trusted folder of a file below `root`: the workspace, or the folder that holds the root."""
        return self.workspace if root.startswith(self._inside) else _parent(root)

    def locate(self, path: str) -> Located | None:
        """Where the file is, or None when it is no memory file by the rules of names; it may not exist.

        Takes ledger paths and absolute paths; `.` and `..` are resolved in the text.
        """
        if not path or "\0" in path or not is_storable(path):
            return None
        absolute = os.path.normpath(os.path.join(self.workspace, path))
        for root in self._roots:
            if _holds(root, absolute):
                anchor = self.workspace if absolute.startswith(self._inside) else self.anchor(root.path)
                return Located(path=self.ledger_path(absolute), absolute=absolute, anchor=anchor)
        return None

    def concerns_folder(self, absolute: str) -> bool:
        """Whether a folder that came, went or moved can change what belongs to the memory."""
        prefix = _folder_prefix(absolute)
        for root in self._roots:
            if (root.path + os.sep).startswith(prefix):
                return True
            below = _below(root.path, absolute)
            if below is not None and not any(is_ignored_folder(part) for part in below.split("/")):
                return True
        return False

    def _extra_roots(self, extra_paths: Sequence[ExtraPath]) -> Iterator[Root]:
        taken = set()
        for extra in extra_paths:
            named = extra.path.strip()
            path = os.path.join(self.workspace, os.path.expanduser(named))
            key = (os.path.normpath(path), extra.pattern)
            if named and key not in taken:
                taken.add(key)
                yield Root(path=key[0], pattern=compile_pattern(extra.pattern), named=named)


def _holds(root: Root, absolute: str) -> bool:
    if absolute == root.path:
        return is_markdown(os.path.basename(absolute))
    relative = _below(root.path, absolute)
    if relative is None or not root.pattern.matches(relative):
        return False
    *folders, name = relative.split("/")
    return is_markdown(name) and not any(is_ignored_folder(folder) for folder in folders)


def _below(root: str, absolute: str) -> str | None:
    """The path relative to `root`, with "/"; None when it is not below it."""
    prefix = _folder_prefix(root)
    if not absolute.startswith(prefix) or len(absolute) == len(prefix):
        return None
    return absolute[len(prefix) :].replace(os.sep, "/")


def _folder_prefix(folder: str) -> str:
    return folder if folder.endswith(os.sep) else folder + os.sep


def _parent(path: str) -> str:
    return os.path.dirname(path)
