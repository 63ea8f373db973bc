"""Name the collections of an agent, say which files in them may be read, and write sessions as notes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from memline.producers.bridges.qmd.home import QmdHome
from memline.shared.clock import Clock
from memline.shared.config.installation import QmdPath
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import PathNotAllowed
from memline.shared.note_names import ANY_MARKDOWN, MARKDOWN, is_markdown
from memline.shared.sources.discover import DiscoveredFile
from memline.shared.sources.paths import LONG_TERM, MEMORY, SESSIONS, MemoryPaths
from memline.shared.sources.transcripts.formats import Transcripts, format_of, transcripts_of
from memline.shared.sources.transcripts.read_session import read_session
from memline.shared.values import value

#: How the path of a file outside of the workspace begins: `qmd/<collection>/<path in it>`.
PREFIX = "qmd/"

#: What qmd calls all Markdown: it minds the case of a mask.
_ANY = f"**/*.{{{','.join(end for each in MARKDOWN for end in (each[1:], each[1:].upper()))}}}"

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
            raise PathNotAllowed("invalid qmd path", hint="name it as a search does: qmd/<collection>/<path>")
        absolute = self.file(name, relative)
        collection = self._by_name[name]
        located = self.paths.locate(absolute) if collection.source == MEMORY else None
        if not is_markdown(os.path.basename(absolute)) or (collection.source == MEMORY and located is None):
            raise PathNotAllowed("path required", hint="name a Markdown file by the path that a search gives")
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
                yield "memory-dir", self.workspace, _ANY, MEMORY
            else:
                for number, note in enumerate(LONG_TERM):
                    yield "memory-alt" if number else "memory-root", self.workspace, note, MEMORY
                yield "memory-dir", os.path.join(self.workspace, "memory"), _ANY, MEMORY
        for number, extra in enumerate(extras, 1):
            path = os.path.normpath(os.path.join(self.workspace, extra.path))
            root, mask = (
                (os.path.dirname(path), os.path.basename(path))
                if os.path.isfile(path)
                else (path, extra.pattern)
            )
            mask = _ANY if mask == ANY_MARKDOWN else mask
            yield _plain(extra.name) or f"custom-{number}", root, mask, MEMORY
        if self._settings.qmd.sessions.enabled:
            yield "sessions", self.exports, "**/*.md", SESSIONS


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


_DAY_S = 86_400.0

#: The first line of an export, before the name of its session; a file without it is not ours to remove.
_TITLE = "# Session "


def export(settings: AgentSettings, folder: Path, *, clock: Clock) -> None:
    """Make `folder` agree with the transcripts: new and changed ones written, old and removed ones deleted.

    An export has the time of its transcript, so one that did not change is not written again. Raises OSError.
    """
    wanted: dict[str, DiscoveredFile] = {}
    source = transcripts_of(settings) if settings.qmd.sessions.enabled else None
    days = settings.qmd.sessions.retention_days
    for file in source.discover().files if source else ():
        is_old = days > 0 and file.mtime_ns / 1e9 < clock.now() - days * _DAY_S
        if file.problem is None and not is_old:
            wanted[f"{Path(file.absolute).name.removesuffix('.jsonl')}.md"] = file
    if wanted:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in folder.glob("*.md"):
        if path.name not in wanted and is_export(path):
            path.unlink(missing_ok=True)
    for name, file in wanted.items():
        with suppress(FileNotFoundError):
            if (folder / name).stat().st_mtime_ns == file.mtime_ns:
                continue
        if source is not None:
            _write(folder / name, source, file, clock)


def _write(path: Path, source: Transcripts, file: DiscoveredFile, clock: Clock) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as out:
            out.write(f"{_TITLE}{path.stem}\n\n")
            written = 0
            for text in _said(source, file.path, clock):
                out.write(text + "\n")
                written += 1
            if not written:
                out.write("(empty)\n")
        os.utime(part, ns=(file.mtime_ns, file.mtime_ns))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _said(source: Transcripts, path: str, clock: Clock) -> Iterator[str]:
    """Yield what was said in a transcript, as the builtin backend reads it."""
    read = read_session(
        partial(source.open, path),
        format=format_of(path),
        max_tokens=400,
        overlap_tokens=0,
        clock=clock,
    )
    for chunk in read.chunks:
        yield chunk.text


def is_export(path: Path) -> bool:
    """Tell whether a file is an export of ours, which may be deleted."""
    try:
        with path.open(encoding="utf-8", errors="replace") as opened:
            return opened.readline().rstrip("\n") == f"{_TITLE}{path.stem}"
    except OSError:
        return False
