"""Which folders to watch so that every change of a memory is noticed, and no ignored folder costs a watch."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shared.config.schema import ExtraPath
from shared.sources.scope import Located, Scope, is_ignored_folder, is_markdown
from shared.sources.transcript_files import TranscriptScope
from shared.sources.transcript_names import is_transcript_name

#: Watches for one tree, each with a thread. A tree that would need more, because it has ignored folders in
#: very many places, is watched as a whole with them.
_MAX_SPLIT = 100


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Watched:
    """A folder to watch."""

    path: str
    #: Whether everything below is watched with it.
    recursive: bool


class WatchedFiles(Protocol):
    """Files whose changes are to be noticed: what belongs to them, and which folders tell of it."""

    @property
    def where(self) -> str:
        """For the log."""
        ...

    def folders(self) -> frozenset[Watched]:
        """The folders to watch, as they are on the disk now."""
        ...

    def locate(self, path: str) -> Located | None:
        """The file of an absolute path; None for one that does not belong to them."""
        ...

    def concerns_folder(self, absolute: str) -> bool:
        """Whether a folder that came, went or moved can change what belongs to them."""
        ...

    def looks_like_one(self, path: str) -> bool:
        """Whether a name that is not valid Unicode is otherwise that of one of them."""
        ...


class WatchedNotes:
    """The notes of a workspace and of `extraPaths`."""

    def __init__(self, workspace: Path, extra_paths: Sequence[ExtraPath] = ()) -> None:
        self._scope = Scope(workspace, extra_paths)
        self.where = self._scope.workspace
        self.locate = self._scope.locate
        self.concerns_folder = self._scope.concerns_folder

    def folders(self) -> frozenset[Watched]:
        return watched_folders(self._scope)

    def looks_like_one(self, path: str) -> bool:
        return is_markdown(path)


class WatchedTranscripts:
    """The transcripts of an agent: one folder, without those inside it."""

    def __init__(self, scope: TranscriptScope) -> None:
        self._scope = scope
        self.where = scope.folder
        self.locate = scope.locate
        self.concerns_folder = scope.concerns_folder

    def folders(self) -> frozenset[Watched]:
        folder = self._scope.folder
        # Of what does not exist, and of a link, the nearest folder above tells.
        path = folder if _is_folder(folder) else _nearest_folder(os.path.dirname(folder))
        return frozenset({Watched(path=path, recursive=False)})

    def looks_like_one(self, path: str) -> bool:
        return os.path.dirname(path) == self._scope.folder and is_transcript_name(os.path.basename(path))


def watched_folders(scope: Scope) -> frozenset[Watched]:
    """The folders to watch for a scope as it is on the disk now; links are not followed.

    A tree is watched as a whole where it holds no ignored folder (`node_modules`, `.git` …), else folder by
    folder. Of a file, and of what does not exist, the nearest folder above is watched: it tells of both.
    """
    chosen = {Watched(path=_nearest_folder(scope.workspace), recursive=False)}
    for root in (scope.memory, *scope.extras):
        if _is_folder(root.path):
            chosen.update(_tree(root.path))
        else:
            chosen.add(Watched(path=_nearest_folder(os.path.dirname(root.path)), recursive=False))
    whole = [watched.path for watched in chosen if watched.recursive]
    return frozenset(
        watched
        for watched in chosen
        if not any(_is_below(watched.path, tree) for tree in whole)
        and (watched.recursive or watched.path not in whole)
    )


def _tree(root: str) -> set[Watched]:
    folders: dict[str, list[str]] = {}
    todo = [root]
    #: Folders with an ignored one somewhere below.
    split: set[str] = set()
    while todo:
        folder = todo.pop()
        folders[folder] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        continue
                    if is_ignored_folder(entry.name):
                        split.add(folder)
                    else:
                        folders[folder].append(entry.path)
        except OSError:
            # Gone, or not to be listed: the walk of discovery reports it; there is nothing to watch in it.
            continue
        todo.extend(folders[folder])
    # Parents come before their children, so this hands the mark up from the deepest.
    for folder in reversed(folders):
        if not split.isdisjoint(folders[folder]):
            split.add(folder)
    chosen = set()
    todo = [root]
    while todo:
        folder = todo.pop()
        chosen.add(Watched(path=folder, recursive=folder not in split))
        if folder in split:
            todo.extend(folders[folder])
    return chosen if len(chosen) <= _MAX_SPLIT else {Watched(path=root, recursive=True)}


def _nearest_folder(path: str) -> str:
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def _is_below(path: str, tree: str) -> bool:
    return path.startswith(tree.rstrip(os.sep) + os.sep) and path != tree
