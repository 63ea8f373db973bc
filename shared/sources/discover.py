"""Which files are there: a walk over folders that looks at names, sizes and times and opens no file."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.config.schema import ExtraPath
from shared.sources.outcomes import LINKED, MISNAMED, SPECIAL, Problem, code, unreadable
from shared.sources.scope import (
    MARKDOWN,
    Root,
    Scope,
    is_ignored_folder,
    is_markdown,
    is_storable,
    printable,
)
from shared.sources.transcript_names import is_transcript
from shared.values import value

#: Stands among the folders that could not be listed for that of the transcripts.
TRANSCRIPTS = "sessions/*.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One file on disk, or one thing that cannot be indexed and why."""

    #: As in the ledger: relative to the workspace with "/" when inside it, else absolute.
    path: str
    absolute: str
    size: int
    mtime_ns: int
    #: None for a file to be read. A folder is listed only with a problem (a link, or not readable).
    problem: Problem | None = None


@value
class Discovery:
    """Everything a walk found, in the order workspace files, `memory/`, `extraPaths`; each path once."""

    found: tuple[Found, ...]
    #: What is wrong with the whole, in words for a user.
    issues: tuple[str, ...]
    #: Ledger paths of folders that could not be listed ("." is the workspace, TRANSCRIPTS the folder of the
    #: transcripts): of files below them nothing is known, so they are not taken for removed.
    unlisted: tuple[str, ...] = ()

    def is_unlisted(self, path: str) -> bool:
        """Whether the walk cannot tell if the file of this ledger path is there."""
        if is_transcript(path):
            return TRANSCRIPTS in self.unlisted
        return any(
            not os.path.isabs(path) if folder == "." else path.startswith(folder + "/")
            for folder in self.unlisted
        )

    def joined(self, other: Discovery) -> Discovery:
        """Both, as one."""
        return Discovery(
            found=(*self.found, *other.found),
            issues=(*self.issues, *other.issues),
            unlisted=(*self.unlisted, *other.unlisted),
        )


def discover(workspace: Path, extra_paths: Sequence[ExtraPath] = ()) -> Discovery:
    """All files that belong to the memory of a workspace, and all that look so but cannot be indexed."""
    return discover_scope(Scope(workspace, extra_paths))


def discover_scope(scope: Scope) -> Discovery:
    """The same for a scope that is there already."""
    walk = _Walk(scope)
    walk.workspace()
    for root in scope.extras:
        walk.extra(root)
    if not walk.found and not walk.issues:
        walk.issues.append(f"no memory files found in {scope.workspace}")
    return Discovery(
        found=tuple(walk.found.values()), issues=tuple(walk.issues), unlisted=tuple(walk.unlisted)
    )


class _Walk:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        #: By ledger path; a file that two entries name is listed once.
        self.found: dict[str, Found] = {}
        self.issues: list[str] = []
        self.unlisted: list[str] = []

    def workspace(self) -> None:
        workspace = self.scope.workspace
        try:
            os.scandir(workspace).close()
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            self.issues.append(
                f"workspace missing ({workspace})" if missing else f"{workspace} not readable ({code(error)})"
            )
            self.unlisted.append(".")
            return
        self._root_files()
        self._memory_folder()

    def extra(self, root: Root) -> None:
        try:
            link = self._first_link(root.path)
            status = os.lstat(root.path)
        except (FileNotFoundError, NotADirectoryError):
            self.issues.append(f"additional memory path missing ({root.named})")
            return
        except (OSError, ValueError) as error:
            reason = code(error) if isinstance(error, OSError) else str(error)
            self.issues.append(f"additional memory path not accessible ({root.named}): {reason}")
            self.unlisted.append(self.scope.ledger_path(root.path))
            return
        if link:
            self.issues.append(f"additional memory path is a symbolic link and not followed ({root.named})")
            self._add(link, os.lstat(link), LINKED)
        elif stat.S_ISDIR(status.st_mode):
            self._folder(root, "additional memory path not accessible")
        elif not root.path.endswith(MARKDOWN):
            self.issues.append(f"additional memory path is no Markdown file ({root.named})")
        else:
            self._file(root.path, status)

    def _root_files(self) -> None:
        seen = set()
        for root in self.scope.files:
            try:
                status = os.lstat(root.path)
            except OSError:
                continue
            # One file under two names: a file system that ignores case, or a hard link.
            if not stat.S_ISDIR(status.st_mode) and (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                self._file(root.path, status)

    def _memory_folder(self) -> None:
        folder = self.scope.memory.path
        try:
            status = os.lstat(folder)
        except FileNotFoundError:
            self.issues.append(f"memory directory missing ({folder})")
            return
        except OSError as error:
            self.issues.append(f"memory directory not accessible ({folder}): {code(error)}")
            self.unlisted.append(self.scope.ledger_path(folder))
            return
        if stat.S_ISLNK(status.st_mode):
            self.issues.append(f"memory directory is a symbolic link and not followed ({folder})")
            self._add(folder, status, LINKED)
        elif not stat.S_ISDIR(status.st_mode):
            self.issues.append(f"memory directory missing ({folder}): a file has its name")
        else:
            self._folder(self.scope.memory, "memory directory not accessible")

    def _first_link(self, path: str) -> str | None:
        """The first link among `path` and its parents below the trusted folder."""
        anchor = self.scope.anchor(path)
        current = anchor
        for part in os.path.relpath(path, anchor).split(os.sep):
            current = os.path.join(current, part)
            if stat.S_ISLNK(os.lstat(current).st_mode):
                return current
        return None

    def _folder(self, root: Root, words: str) -> None:
        """All files of a folder; `words` say what it means when the folder itself cannot be listed."""
        prefix = root.path if root.path.endswith(os.sep) else root.path + os.sep
        matches, enters = root.pattern.matches, root.pattern.enters
        todo = [(root.path, prefix, 0)]
        while todo:
            folder, inside, depth = todo.pop()
            try:
                with os.scandir(folder) as listing:
                    entries = sorted(listing, key=_by_name)
            except OSError as error:
                about = f"{words} ({root.named or folder}): {code(error)}" if folder == root.path else ""
                self._unlistable(folder, error, about)
                continue
            below = []
            for entry in entries:
                name = entry.name
                if entry.is_dir(follow_symlinks=False):
                    if not is_ignored_folder(name) and enters(depth, name):
                        if is_storable(name):
                            below.append((inside + name, inside + name + os.sep, depth + 1))
                        else:
                            self._entry(entry, inside + name, MISNAMED)
                elif is_markdown(name):
                    absolute = inside + name
                    relative = absolute[len(prefix) :]
                    if matches(relative if os.sep == "/" else relative.replace(os.sep, "/")):
                        self._entry(entry, absolute, None)
                elif entry.is_symlink() and not is_ignored_folder(name) and _leads_to_folder(entry):
                    self._entry(entry, inside + name, LINKED)
            todo.extend(reversed(below))

    def _entry(self, entry: os.DirEntry[str], absolute: str, problem: Problem | None) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError as error:
            self._keep(absolute, 0, 0, unreadable(error))
            return
        if problem is None:
            self._file(absolute, status)
        else:
            self._add(absolute, status, problem)

    def _file(self, absolute: str, status: os.stat_result) -> None:
        self._add(absolute, status, problem_of(absolute, status))

    def _add(self, absolute: str, status: os.stat_result, problem: Problem | None) -> None:
        self._keep(absolute, status.st_size, status.st_mtime_ns, problem)

    def _keep(self, absolute: str, size: int, mtime_ns: int, problem: Problem | None) -> None:
        path = printable(self.scope.ledger_path(absolute))
        if path not in self.found:
            self.found[path] = Found(
                path=path, absolute=absolute, size=size, mtime_ns=mtime_ns, problem=problem
            )

    def _unlistable(self, folder: str, error: OSError, about: str) -> None:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            # It went away since its parent was listed: so did its files.
            return
        problem = unreadable(error)
        self._keep(folder, 0, 0, problem)
        path = printable(self.scope.ledger_path(folder))
        self.unlisted.append(path)
        self.issues.append(about or f"{path} {problem.reason}")


def problem_of(absolute: str, status: os.stat_result) -> Problem | None:
    """Why what stands at a path of a file cannot be read, as far as its name and kind tell."""
    if not is_storable(absolute):
        return MISNAMED
    if stat.S_ISREG(status.st_mode):
        return None
    if stat.S_ISLNK(status.st_mode):
        return LINKED
    return Problem(outcome=SPECIAL, reason=f"no regular file ({_kind(status.st_mode)})")


def _by_name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _kind(mode: int) -> str:
    for test, name in ((stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket"), (stat.S_ISDIR, "folder")):
        if test(mode):
            return name
    return "device"
