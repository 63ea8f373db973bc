"""Decide by names alone which paths are memory: notes, transcripts, globs; nothing is looked up on the disk.

A ledger path is relative to the workspace, with "/", when the file is inside it, else absolute; that of a
transcript is `sessions/<name>`, or `sessions/<format>/<name>`, and no note has such a name. The trusted
`anchor` of a file is the folder that the configuration names; no link is followed below it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from memline.shared.config.environment import PROGRAMS
from memline.shared.config.schema import AgentSettings, ExtraPath
from memline.shared.note_names import ANY_MARKDOWN, MARKDOWN, is_markdown
from memline.shared.sources.ignoring import Rules, is_safe

#: The two sources.
MEMORY, SESSIONS = "memory", "sessions"

#: The long-term note, which is private; the second spelling is that of older workspaces. Not `Memory.md`: a
#: page about memory has that name, and would hide the notes around it.
LONG_TERM = ("MEMORY.md", "memory.md", "MEMORY.MD")

#: The folder of the workspace that is memory as a whole.
MEMORY_FOLDER = "memory"

#: Files that OpenClaw puts into a workspace beside the memory, and reads itself.
OPENCLAW_FILES = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "HEARTBEAT.md")

#: Folders that are never entered, as are hidden ones: packages, caches, what a system keeps for itself. To
#: have one all the same, name it as an entry of `extraPaths`.
IGNORED_FOLDERS = frozenset(
    {
        *("node_modules", "bower_components", "venv", "site-packages", "__pycache__", "__pypackages__"),
        *("__MACOSX", "lost+found", "$RECYCLE.BIN", "System Volume Information", "@eaDir"),
    }
)

#: Folders of conversations that `memline import` wrote.
_IMPORTED = re.compile(r"(?:^|/)imported/(?:chatgpt|claude)/")

#: What the ledger paths of transcripts begin with; those of other programs than OpenClaw have its name next.
TRANSCRIPT_PREFIX = "sessions/"
_TRANSCRIPT_FOLDERS = (TRANSCRIPT_PREFIX, *(f"{TRANSCRIPT_PREFIX}{name}/" for name in PROGRAMS))

_TRANSCRIPT = ".jsonl"
#: A session, or its archive (`.reset.<time>`, `.deleted.<time>`); no snapshot, lock or backup of one.
_TRANSCRIPT_NAME = (
    r"(?!\.)(?!.*\.checkpoint\.)"
    r"(?!.*\.(?:trajectory|acp-stream|bak|backup|tmp|lock|old|orig)\.jsonl(?:\.(?:reset|deleted)\.|$))"
    r".+?\.jsonl(?:\.(?:reset|deleted)\."
    rf"(?!.*(?:\.(?:bak|tmp|lock|part|gz|zst)|~|{'|'.join(map(re.escape, MARKDOWN))})(?:\.|$)).+)?"
)

#: Of all Markdown, in any case: what is no Markdown is not matched at all.
_EVERYTHING = "**/*"

_SURROGATE = re.compile("[\ud800-\udfff]")


def is_ignored_folder(name: str) -> bool:
    """Tell whether a folder of this name is never entered."""
    return name.startswith(".") or name in IGNORED_FOLDERS


def is_storable(name: str) -> bool:
    """Tell whether the name is valid Unicode; others reach Python as lone surrogates and fit in no index."""
    return name.isascii() or not _SURROGATE.search(name)


def is_transcript_name(name: str) -> bool:
    """Tell whether a file of this name in a sessions folder is a transcript or the archive of one."""
    return re.fullmatch(_TRANSCRIPT_NAME, name) is not None


def is_transcript(path: str) -> bool:
    """Tell whether a ledger path is that of a transcript."""
    # First what is true of no note: each look asks it of each file.
    if not path.startswith(TRANSCRIPT_PREFIX):
        return False
    folder, _, name = path.rpartition("/")
    return f"{folder}/" in _TRANSCRIPT_FOLDERS and is_transcript_name(name)


def is_archive(path: str) -> bool:
    """Tell whether the path of a transcript is that of an archive: its session is over."""
    return not path.endswith(_TRANSCRIPT)


def is_private(path: str) -> bool:
    """Tell whether a ledger path is that of a past conversation, or of a long-term note outside `memory/`."""
    # In any spelling: there are file systems that ignore case.
    folded = path.casefold()
    is_long_term = folded.rpartition("/")[2] == "memory.md" and not folded.startswith(f"{MEMORY_FOLDER}/")
    return is_long_term or is_transcript(path) or bool(_IMPORTED.search(folded))


def source_of(path: str) -> str:
    """Return the source that a ledger path belongs to."""
    return SESSIONS if is_transcript(path) else MEMORY


class Pattern:
    """Matches a glob against paths relative to a folder, with "/" between their parts.

    `*` and `?` stay within one part, `**` stands for any number of folders, `[a-z]` and `{md,markdown}` as in
    a shell. So `*.md` matches only the folder's own files, `**/*.md` files at any depth. What is no pattern,
    or has so many stars that it could take minutes, is taken literally.
    """

    def __init__(self, pattern: str) -> None:
        text = "/".join(part for part in pattern.strip().split("/") if part not in ("", "."))
        text += "/**" if pattern.endswith("/") else ""
        try:
            self._regex = re.compile(_regex(text) if is_safe(text) else re.escape(text), re.DOTALL)
        except (re.error, OverflowError, RecursionError):
            self._regex = re.compile(re.escape(text))
        #: Folders below the root at most; any number with `**`.
        self._depth = 1_000_000 if "**" in text else text.count("/")

    def matches(self, relative: str) -> bool:
        """Tell whether the pattern matches the file at this relative path."""
        return self._regex.fullmatch(relative) is not None

    def enters(self, depth: int) -> bool:
        """Tell whether a folder `depth` levels below the root (0: directly in it) can hold a match."""
        return depth < self._depth


#: Returns the compiled pattern; the same text is compiled once.
compile_pattern = lru_cache(maxsize=64)(Pattern)

_TOKEN = r"(?:\*\*/)+|\*+|\?|\[([!^]?)(\]?[^]/]*)\]|[\s\S]"
_REGEX = {"*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")"}


def _regex(pattern: str) -> str:
    pieces, depth = [], 0
    for match in re.finditer(_TOKEN, pattern):
        token = match[0]
        depth += {"{": 1, "}": -1}.get(token, 0)
        if token.endswith("**/"):
            pieces.append("(?:[^/]+/)*")
        elif token == "**" and match.end() == len(pattern):
            pieces.append(".+")
        elif token[0] == "[" and match[2]:
            inside = re.escape(match[2]).replace(r"\-", "-")
            pieces.append(f"(?!/)[{'^' if match[1] else ''}{inside}]")
        elif token == "," and depth:
            pieces.append("|")
        else:
            pieces.append(_REGEX.get("*" if token[0] == "*" else token) or re.escape(token))
    return "".join(pieces)


class MemoryRoot(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder that the configuration, or the rule of the workspace, names."""

    path: str
    pattern: Pattern
    #: The words of the configuration; empty for the workspace's own.
    named: str = ""


class FileLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Where the file of a ledger path is."""

    path: str
    absolute: str
    #: The trusted folder: no link is followed below it.
    anchor: str


class MemoryPaths:
    """The memory of one agent: its workspace, the entries of `extraPaths`, and what is left out of both.

    A workspace that has neither `MEMORY.md` nor `memory/` is read as a whole.
    """

    def __init__(
        self,
        workspace: Path,
        extra_paths: Sequence[ExtraPath] = (),
        *,
        exclude: Sequence[str] = (),
        uses_ignore_files: bool = True,
        is_whole: bool = False,
    ) -> None:
        """`exclude`: as in `.gitignore`; relative to the workspace, outside of it to the folder named.

        `is_whole`: the workspace is read as a whole, whatever is in it.
        """
        self.workspace = os.path.abspath(os.path.expanduser(workspace))
        self._inside = folder_prefix(self.workspace)
        self.rules = Rules(self.workspace, exclude, uses_files=uses_ignore_files)
        self.extras = tuple(self._extra_roots(extra_paths))
        is_there = map(os.path.lexists, (self._inside + name for name in (*LONG_TERM, MEMORY_FOLDER)))
        everything = compile_pattern(_EVERYTHING)
        #: Whether all Markdown of the workspace is memory.
        self.is_whole = is_whole or (os.path.isdir(self.workspace) and not any(is_there))
        names = () if self.is_whole else LONG_TERM
        self.files = tuple(MemoryRoot(path=self._inside + name, pattern=everything) for name in names)
        folder = self.workspace if self.is_whole else self._inside + MEMORY_FOLDER
        self.memory = MemoryRoot(path=folder, pattern=everything)
        self._roots = (*self.files, self.memory, *self.extras)

    @classmethod
    def of(cls, settings: AgentSettings, *, is_whole: bool = False) -> MemoryPaths:
        """Return the memory that an agent's settings name; with `is_whole` with all of the workspace."""
        memory = settings.memory
        return cls(
            settings.workspace,
            memory.extra_paths,
            exclude=memory.exclude,
            uses_ignore_files=memory.ignore_files,
            is_whole=is_whole,
        )

    def ledger_path(self, absolute: str) -> str:
        """Return the ledger path of an absolute path."""
        return absolute.removeprefix(self._inside)

    def anchor(self, root: str) -> str:
        """Return the trusted folder of files below `root`: the workspace, or the folder that has the root."""
        is_inside = root == self.workspace or root.startswith(self._inside)
        return self.workspace if is_inside else os.path.dirname(root)

    def locate(self, path: str) -> FileLocation | None:
        """Return where the file is, or None when its name is not that of a memory file; it may not exist.

        Takes ledger paths and absolute paths; `.` and `..` are resolved in the text.
        """
        if not path or "\0" in path or not is_storable(path):
            return None
        absolute = os.path.normpath(os.path.join(self.workspace, path))
        for root in self._roots:
            if self._is_read(root, absolute):
                anchor = self.workspace if absolute.startswith(self._inside) else self.anchor(root.path)
                return FileLocation(path=self.ledger_path(absolute), absolute=absolute, anchor=anchor)
        return None

    def _is_read(self, root: MemoryRoot, absolute: str) -> bool:
        """Tell whether a file of this path is read with a root."""
        relative = _below(root.path, absolute)
        if relative is None or not root.pattern.matches(relative):
            is_memory = absolute == root.path and is_markdown(os.path.basename(absolute))
        else:
            *folders, name = relative.split("/")
            is_memory = is_markdown(name) and not any(map(is_ignored_folder, folders))
        return is_memory and not self.rules.reason(root.path, absolute)

    def concerns_folder(self, absolute: str) -> bool:
        """Tell whether a folder that was made, moved or removed can change what belongs to the memory."""
        for root in self._roots:
            below = _below(root.path, absolute)
            if below is not None and not any(map(is_ignored_folder, below.split("/"))):
                return True
            if folder_prefix(root.path).startswith(folder_prefix(absolute)):
                return True
        return False

    def _extra_roots(self, extra_paths: Sequence[ExtraPath]) -> Iterator[MemoryRoot]:
        for extra in extra_paths:
            if named := extra.path.strip():
                path = os.path.normpath(os.path.join(self.workspace, os.path.expanduser(named)))
                pattern = _EVERYTHING if extra.pattern == ANY_MARKDOWN else extra.pattern
                yield MemoryRoot(path=path, pattern=compile_pattern(pattern), named=named)


def _below(root: str, absolute: str) -> str | None:
    """Return the path relative to `root`; None when it is not below it."""
    relative = absolute.removeprefix(folder_prefix(root))
    return relative if relative and relative != absolute else None


def folder_prefix(folder: str) -> str:
    return folder if folder.endswith("/") else folder + "/"
