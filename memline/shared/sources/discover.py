"""Find the files of a memory by walking over folders: read names, sizes and times, open no file."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from memline.shared.config.schema import AgentSettings
from memline.shared.note_names import is_markdown
from memline.shared.sources.ignoring import Level, why
from memline.shared.sources.outcomes import Problem, code, problem_of, unreadable
from memline.shared.sources.paths import (
    OPENCLAW_FILES,
    MemoryPaths,
    MemoryRoot,
    folder_prefix,
    is_ignored_folder,
    is_storable,
)

#: Names that are looked at for notes beside the memory: 20 ms.
MOST_BESIDE = 5_000


class DiscoveredFile(msgspec.Struct):
    """One file on disk, or one thing that cannot be indexed and why."""

    #: As in the ledger: relative to the workspace with "/" when inside it, else absolute.
    path: str
    absolute: str
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    #: None for a file to be read. A folder is listed only where it is a link.
    problem: Problem | None = None


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """What a walk found, in the order workspace files, `memory/`, `extraPaths`; each path once."""

    files: tuple[DiscoveredFile, ...] = ()
    #: What is wrong with the whole, in words for a user.
    issues: tuple[str, ...] = ()
    #: Ledger paths of folders that could not be listed ("." is the workspace; for transcripts a mark, or the
    #: path of one): of files below them nothing is known, so they are not taken for removed.
    unlisted: tuple[str, ...] = ()
    #: What rules leave out: (ledger path, that of a folder with "/" at its end; and why).
    left_out: tuple[tuple[str, str], ...] = ()

    def is_unlisted(self, path: str) -> bool:
        """Tell whether the walk cannot tell if the file of this ledger path is there."""
        return any(
            not os.path.isabs(path) if folder == "." else path.startswith(folder + "/")
            for folder in self.unlisted
        )

    def is_archived(self, path: str) -> bool:
        """Tell whether OpenClaw renamed a session: an archive, `<path>.reset.<time>`, stands beside it."""
        return any(file.path.startswith(f"{path}.") for file in self.files)

    def joined(self, other: Discovery) -> Discovery:
        """Return both, as one."""
        return Discovery(
            files=(*self.files, *other.files),
            issues=(*self.issues, *other.issues),
            unlisted=(*self.unlisted, *other.unlisted),
            left_out=(*self.left_out, *other.left_out),
        )


def discover(paths: MemoryPaths) -> Discovery:
    """Find all files that belong to a memory, and all that look so but cannot be indexed."""
    walk = _Walk(paths)
    walk.walk_workspace()
    for root in paths.extras:
        walk.walk_root(root, "additional memory path")
    if names := sorted({*walk.bad_names}):
        # One: from a zip of another system come hundreds.
        more = f" (and {len(names) - 1:,} more)" * (len(names) > 1)
        walk.issues.append(f"the name of {names[0]} is not valid UTF-8{more}")
    if not walk.files and not walk.issues:
        walk.issues.append(f"no memory files found in {paths.workspace}")
    return Discovery(
        files=tuple(walk.files.values()),
        issues=tuple(walk.issues),
        unlisted=tuple(walk.unlisted),
        left_out=tuple(sorted(walk.left_out.items())),
    )


def markdown_beside(settings: AgentSettings) -> list[str]:
    """List the Markdown of a workspace that is neither memory nor left out by a rule, by its ledger paths.

    What OpenClaw puts into its workspace is not in it: that is read at the start of each session. Of a large
    workspace it is what the first MOST_BESIDE names have.
    """
    paths = MemoryPaths.of(settings)
    if paths.is_whole:
        return []
    walk = _Walk(MemoryPaths.of(settings, is_whole=True), most=MOST_BESIDE)
    walk.walk_workspace()
    files = (each for each in walk.files.values() if each.problem is None and not paths.locate(each.absolute))
    return sorted({each.path for each in files}.difference(OPENCLAW_FILES))


class _Walk:
    def __init__(self, paths: MemoryPaths, *, most: float = math.inf) -> None:
        """`most`: names that are looked at, of whole folders."""
        self._paths, self._left = paths, most
        #: By ledger path; a file that two entries name is listed once.
        self.files: dict[str, DiscoveredFile] = {}
        self.issues: list[str] = []
        self.unlisted: list[str] = []
        self.left_out: dict[str, str] = {}
        self.bad_names: list[str] = []

    def walk_workspace(self) -> None:
        workspace = self._paths.workspace
        try:
            # The names as they are: on a disk that ignores case each of LONG_TERM would be there.
            names = os.listdir(workspace)
        except OSError as error:
            reason = "missing" if isinstance(error, FileNotFoundError) else f"not readable ({code(error)})"
            self.issues.append(f"workspace {reason} ({workspace})")
            self.unlisted.append(".")
            return
        for root in self._paths.files:
            is_file = os.path.basename(root.path) in names and (
                os.path.islink(root.path) or not os.path.isdir(root.path)
            )
            if is_file and not self._is_left_out(root):
                self._add(root.path)
        self.walk_root(self._paths.memory, "memory directory")

    def walk_root(self, root: MemoryRoot, kind: str) -> None:
        """Add what is at a root, in which no link is followed; `kind` is what an issue calls it."""
        name = root.named or root.path
        try:
            # Named by the user, the workspace may be a link.
            is_workspace = root.path == self._paths.workspace
            link = None if is_workspace else first_link(self._paths.anchor(root.path), root.path)
            mode = os.stat(root.path).st_mode if link is None else 0
        except (FileNotFoundError, NotADirectoryError):
            self.issues.append(f"{kind} missing ({name})")
            return
        except (OSError, ValueError) as error:
            reason = code(error) if isinstance(error, OSError) else str(error)
            self.issues.append(f"{kind} not accessible ({name}): {reason}")
            self.unlisted.append(self._paths.ledger_path(root.path))
            return
        if link:
            self.issues.append(f"{kind} is a symbolic link and not followed ({name})")
            self._add(link)
        elif self._is_left_out(root):
            pass
        elif stat.S_ISDIR(mode):
            self._walk_folder(root)
        elif not root.named or not is_markdown(os.path.basename(root.path)):
            self.issues.append(f"{kind} is not a {'Markdown file' if root.named else 'folder'} ({name})")
        else:
            self._add(root.path)

    def _is_left_out(self, root: MemoryRoot) -> bool:
        reason = self._paths.rules.reason(root.path, root.path)
        if reason:
            self.left_out[self._paths.ledger_path(root.path)] = reason
        return bool(reason)

    def _walk_folder(self, root: MemoryRoot) -> None:
        todo = [(root.path, 0)]
        while todo:
            folder, depth = todo.pop()
            try:
                with os.scandir(folder) as listing:
                    entries = sorted(listing, key=attrgetter("name"))
            except (FileNotFoundError, NotADirectoryError):
                # It was removed since its parent was listed, and so were its files.
                continue
            except OSError as error:
                path = self._paths.ledger_path(folder)
                self.unlisted.append(path)
                self.issues.append(f"the folder {path} is {unreadable(error).reason}")
                continue
            self._left -= len(entries)
            if self._left < 0:
                return
            rules = self._paths.rules.of(root.path, folder)
            below = [entry.path for entry in entries if self._add_entry(root, rules, entry, depth)]
            todo.extend((each, depth + 1) for each in reversed(below))

    def _add_entry(
        self, root: MemoryRoot, rules: Sequence[Level], entry: os.DirEntry[str], depth: int
    ) -> bool:
        """Add an entry of a folder `depth` levels below a root; True for a folder to walk."""
        name, path = entry.name, entry.path
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder:
            is_read = not is_ignored_folder(name) and root.pattern.enters(depth)
        elif is_markdown(name):
            is_read = root.pattern.matches(path[len(folder_prefix(root.path)) :])
        else:
            # A link to a folder is reported.
            is_read = not is_ignored_folder(name) and entry.is_symlink() and os.path.isdir(path)
        if is_read and not is_storable(name):
            self.bad_names.append(os.fsencode(path).decode("utf-8", "backslashreplace"))
        elif is_read and rules and (reason := why(rules, path, is_folder=is_folder)):
            self.left_out[self._paths.ledger_path(path) + ("/" if is_folder else "")] = reason
        elif is_read and not is_folder:
            self._add(path)
        else:
            return is_read
        return False

    def _add(self, absolute: str) -> None:
        """Add a file, or what cannot be read of it; nothing where it is gone."""
        path = self._paths.ledger_path(absolute)
        if path not in self.files and (file := discovered(path, absolute)):
            self.files[path] = file


def discovered(path: str, absolute: str) -> DiscoveredFile | None:
    """Return the file of a ledger path with what keeps it from being read; None where it is gone."""
    try:
        status = os.lstat(absolute)
    except FileNotFoundError:
        return None
    except OSError as error:
        return DiscoveredFile(path=path, absolute=absolute, problem=unreadable(error))
    problem = problem_of(status)
    return DiscoveredFile(path, absolute, status.st_size, status.st_mtime_ns, status.st_ctime_ns, problem)


def first_link(anchor: str, path: str) -> str | None:
    """Return the first link among `path` and its parents below the trusted folder. Raises OSError."""
    current = anchor
    for part in os.path.relpath(path, anchor).split(os.sep):
        current = os.path.join(current, part)
        if stat.S_ISLNK(os.lstat(current).st_mode):
            return current
    return None


def is_link_of(paths: MemoryPaths, path: str) -> bool:
    """Tell whether a ledger path is that of a link to a folder; nothing outside the memory is looked up."""
    absolute = os.path.normpath(os.path.join(paths.workspace, path))
    return paths.concerns_folder(absolute) and os.path.islink(absolute)
