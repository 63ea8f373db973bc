"""Name the collections of an agent, find the files in them, and say which may be read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from memline.producers.bridges.qmd.home import QmdHome
from memline.shared.config.installation import ANY_MARKDOWN, QmdPath
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import PathNotAllowed
from memline.shared.sources.paths import LONG_TERM, MEMORY, SESSIONS, MemoryPaths
from memline.shared.values import value

#: How the path of a file outside of the workspace begins: `qmd/<collection>/<path in it>`.
PREFIX = "qmd/"

#: Files of a collection that are looked through for one whose name qmd has changed.
_MAX_FILES = 50_000


@value
class Collection:
    """A folder that qmd searches, or files of it."""

    name: str
    #: Absolute.
    root: str
    #: Glob of its files.
    mask: str
    source: str = MEMORY


class Collections:
    """The collections of one agent: workspace, `memory.qmd.paths`, `extraPaths`, exported sessions."""

    def __init__(self, settings: AgentSettings, home: QmdHome) -> None:
        self._settings = settings
        self.exports = str(home.exports)
        self.workspace = os.path.abspath(settings.workspace)
        memory, extras = settings.memory, self._extras()
        #: Says which files are memory by the rules that the builtin backend has.
        self.paths = MemoryPaths(
            settings.workspace, extras, exclude=memory.exclude, uses_ignore_files=memory.ignore_files
        )
        self.all = tuple(self._named(extras))
        self._by_name = {each.name: each for each in self.all}

    def present(self) -> tuple[Collection, ...]:
        """Return those whose folder, or file, is there now."""
        return tuple(
            each
            for each in self.all
            if os.path.isdir(each.root)
            and (
                each.mask not in LONG_TERM
                or each.mask in os.listdir(each.root)
                or each.root != self.workspace
            )
        )

    def file(self, name: str, relative: str) -> str:
        """Return the absolute path of a file in a collection. Raises PathNotAllowed; it may not exist."""
        collection = self._by_name.get(name)
        if collection is None:
            raise PathNotAllowed(
                f"unknown qmd collection: {name[:80]}", hint="use a path as a search gives it"
            )
        absolute = os.path.normpath(os.path.join(collection.root, relative))
        is_below = absolute.startswith(collection.root.rstrip("/") + "/")
        if "\0" in relative or not is_below or os.path.isabs(relative):
            raise PathNotAllowed("qmd path escapes collection", hint="use a path as a search gives it")
        return absolute

    def found(self, name: str, relative: str) -> tuple[Collection, str] | None:
        """Return collection and absolute path of a hit; None unless it is a file of the memory."""
        try:
            absolute = self.file(name, relative)
        except PathNotAllowed:
            return None
        collection = self._by_name[name]
        if not os.path.isfile(absolute):
            absolute = self._renamed(collection, relative)
        if not absolute or not self._is_memory(collection, absolute):
            return None
        return collection, absolute

    def shown(self, collection: Collection, absolute: str) -> str:
        """Return the path of a file as hits show it, and as `get` takes it."""
        inside = absolute.removeprefix(self.workspace + "/")
        if inside != absolute and collection.source == MEMORY:
            return inside
        return f"{PREFIX}{collection.name}/{os.path.relpath(absolute, collection.root)}"

    def readable(self, path: str) -> tuple[str, str, str]:
        """Return trusted folder, absolute and ledger path of `qmd/<collection>/<path>`.

        Raises PathNotAllowed.
        """
        name, _, relative = path.removeprefix(PREFIX).partition("/")
        if not name or not relative:
            raise PathNotAllowed("invalid qmd path", hint="qmd/<collection>/<path>, as a search gives it")
        absolute = self.file(name, relative)
        collection = self._by_name[name]
        located = self.paths.locate(absolute) if collection.source == MEMORY else None
        if not absolute.endswith(".md") or (collection.source == MEMORY and located is None):
            raise PathNotAllowed("path required", hint="a Markdown file, by the path that a search gives")
        return collection.root, absolute, located.path if located else path

    def _is_memory(self, collection: Collection, absolute: str) -> bool:
        """Tell whether a file is one of the memory, and reached without leaving the collection by a link."""
        root = os.path.realpath(collection.root).rstrip("/") + "/"
        if not os.path.realpath(absolute).startswith(root):
            return False
        return collection.source == SESSIONS or self.paths.locate(absolute) is not None

    def _renamed(self, collection: Collection, relative: str) -> str:
        """Return the file whose name some versions of qmd write like this; empty for none."""
        seen = 0
        for folder, folders, names in os.walk(collection.root):
            folders[:] = [each for each in folders if not each.startswith(".")]
            for name in names:
                absolute = os.path.join(folder, name)
                if plain_name(os.path.relpath(absolute, collection.root)) == relative:
                    return absolute
                seen += 1
                if seen > _MAX_FILES:
                    return ""
        return ""

    def _extras(self) -> tuple[QmdPath, ...]:
        """Join the two lists of more files; what both name counts once, with its name."""
        named = list(self._settings.qmd.paths)
        known = {(os.path.expanduser(each.path), each.pattern or ANY_MARKDOWN) for each in named}
        for each in self._settings.memory.extra_paths:
            if (each.path, each.pattern) not in known:
                named.append(QmdPath(path=each.path, pattern=each.pattern))
        return tuple(
            QmdPath(path=os.path.expanduser(each.path), pattern=each.pattern or ANY_MARKDOWN, name=each.name)
            for each in named
            if each.path.strip()
        )

    def _named(self, extras: tuple[QmdPath, ...]) -> Iterator[Collection]:
        """Yield every collection under a name of its own, each folder and mask once."""
        agent, taken, seen = _plain(self._settings.agent), set[str](), set[tuple[str, str]]()
        for base, root, mask, source in self._wanted(extras):
            if (root, mask) in seen:
                continue
            seen.add((root, mask))
            name, number = f"{base}-{agent}", 2
            while name in taken:
                name, number = f"{base}-{agent}-{number}", number + 1
            taken.add(name)
            yield Collection(name=name, root=root, mask=mask, source=source)

    def _wanted(self, extras: tuple[QmdPath, ...]) -> Iterator[tuple[str, str, str, str]]:
        if self._settings.qmd.include_default_memory and MEMORY in self._settings.memory.sources:
            if self.paths.is_whole:
                yield "memory-dir", self.workspace, ANY_MARKDOWN, MEMORY
            else:
                yield "memory-root", self.workspace, LONG_TERM[0], MEMORY
                yield "memory-alt", self.workspace, LONG_TERM[1], MEMORY
                yield "memory-dir", os.path.join(self.workspace, "memory"), ANY_MARKDOWN, MEMORY
        for number, extra in enumerate(extras, 1):
            path = os.path.normpath(os.path.join(self.workspace, extra.path))
            root, mask = (
                (os.path.dirname(path), os.path.basename(path))
                if os.path.isfile(path)
                else (path, extra.pattern)
            )
            yield _plain(extra.name) or f"custom-{number}", root, mask, MEMORY
        if self._settings.qmd.sessions.enabled:
            yield "sessions", self.exports, ANY_MARKDOWN, SESSIONS


def _plain(name: str) -> str:
    """Return a name in the letters that qmd takes: a-z, 0-9 and `-`."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")


def plain_name(relative: str) -> str:
    """Write a path as versions of qmd before 2.0 do: lower case, `-` for all but letters and digits."""
    *folders, name = relative.replace("___", "/").lower().split("/")
    stem, dot, ending = name.rpartition(".")
    if not dot or not re.fullmatch(r"[a-z0-9]+", ending):
        stem, ending = name, ""
    parts = [re.sub(r"(?:[^\w$]|_)+", "-", part).strip("-") for part in (*folders, stem)]
    with suppress(IndexError):
        parts[-1] += f".{ending}" if ending else ""
    return "/".join(filter(None, parts))
