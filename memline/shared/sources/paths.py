"""Decide by names alone which paths are memory: notes, transcripts, globs; nothing is looked up on the disk.

A ledger path is relative to the workspace, with "/", when the file is inside it, else absolute. The trusted
`anchor` of a file is the folder that the configuration names; no link is followed below it.

The ledger path of a transcript is `sessions/<name>`, or `sessions/<format>/<name>`. No note can have it: none
has a name that ends like one.

    <session>.jsonl                                            the transcript of a session
    <session>.jsonl.reset.<time>, <session>.jsonl.deleted.<time>    its archives
    everything else in that folder                             not a transcript: locks, backups, checkpoints …
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import translate
from functools import lru_cache
from pathlib import Path

from memline.shared.config.schema import AgentSettings, ExtraPath
from memline.shared.config.transcript_programs import TRANSCRIPT_PROGRAMS
from memline.shared.note_names import ANY_MARKDOWN, MARKDOWN, is_markdown
from memline.shared.patterns import late
from memline.shared.sources.ignoring import Rules
from memline.shared.values import value

#: The two sources.
MEMORY, SESSIONS = "memory", "sessions"

#: Files of the workspace that are memory next to `memory/`: the long-term note, which is private. The second
#: spelling is the one of older workspaces. Not `Memory.md`: a page about memory has that name, and would hide
#: the notes around it.
LONG_TERM = ("MEMORY.md", "memory.md", "MEMORY.MD")

#: The folder of the workspace that is memory as a whole.
MEMORY_FOLDER = "memory"

#: Files that OpenClaw puts into a workspace beside the memory, and reads itself.
OPENCLAW_FILES = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "HEARTBEAT.md")

#: Folders that are never entered: packages, environments, caches, what a system keeps for itself. Every
#: hidden folder is one of them too (`.git`, `.venv`, `.obsidian`, `.trash`, `.stversions` …): tools keep
#: state, old versions and deleted notes there. To have one all the same, name it as an entry of `extraPaths`.
IGNORED_FOLDERS = frozenset(
    {
        *("node_modules", "bower_components", "venv", "site-packages", "__pycache__", "__pypackages__"),
        *("__MACOSX", "lost+found", "$RECYCLE.BIN", "System Volume Information", "@eaDir"),
    }
)

#: Folders of conversations that `memline import` wrote.
_IMPORTED = late(r"(?:^|/)imported/(?:chatgpt|claude)/")

#: What the ledger paths of transcripts begin with; those of other programs than OpenClaw have its name next.
TRANSCRIPT_PREFIX = "sessions/"
_TRANSCRIPT_FOLDERS = (TRANSCRIPT_PREFIX, *(f"{TRANSCRIPT_PREFIX}{name}/" for name in TRANSCRIPT_PROGRAMS))

_TRANSCRIPT = ".jsonl"
_ARCHIVES = (".jsonl.reset.", ".jsonl.deleted.")

#: Files next to a transcript that end like one: what other programs keep of the session.
_SIDE_FILES = (".trajectory", ".acp-stream", ".bak", ".backup", ".tmp", ".lock", ".old", ".orig")

#: Snapshots of a session that is still there.
_CHECKPOINT = ".checkpoint."

#: Endings of an archive that was put away once more, or is not an archive.
_NOT_ARCHIVES = (".bak", ".tmp", ".lock", ".part", ".gz", ".zst", "~", *MARKDOWN)

#: Of all Markdown, in any case: what is no Markdown is not matched at all.
_EVERYTHING = "**/*"

#: `{a,b}` doubles the pattern; more alternatives than this are a mistake, and the braces are taken literally.
_MAX_ALTERNATIVES = 64
_ALTERNATIVES = late(r"\{([^{}]*,[^{}]*)\}")

#: What `printable` makes of bytes that are not UTF-8, and of backslashes in the same name.
_ESCAPED = late(rb"\\x([0-9a-f]{2})|\\\\")


def is_ignored_folder(name: str) -> bool:
    """Tell whether a folder of this name is never entered."""
    return name.startswith(".") or name in IGNORED_FOLDERS


def is_storable(name: str) -> bool:
    """Tell whether the name is valid Unicode; others reach Python as lone surrogates and fit in no index."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(name: str) -> str:
    r"""Return the name in valid Unicode: bytes that are not UTF-8 become `\xNN`, backslashes then double."""
    if is_storable(name):
        return name
    return os.fsencode(name.replace("\\", "\\\\")).decode("utf-8", "backslashreplace")


def unprintable(path: str) -> str:
    """Return the name whose printable form is `path`, if it is one."""
    return os.fsdecode(
        _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()) if match[1] else b"\\", os.fsencode(path))
    )


def is_transcript_name(name: str) -> bool:
    """Tell whether a file of this name in a sessions folder is a transcript or the archive of one."""
    if name.endswith(_TRANSCRIPT):
        session = name.removesuffix(_TRANSCRIPT)
    else:
        for mark in _ARCHIVES:
            session, _, when = name.partition(mark)
            if when and not any(f"{ending}." in f"{when}." for ending in _NOT_ARCHIVES):
                break
        else:
            return False
    return (
        bool(session)
        and not session.startswith(".")
        and not session.endswith(_SIDE_FILES)
        and _CHECKPOINT not in session
        and not any(mark in session for mark in _ARCHIVES)
    )


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
    """Tell whether a ledger path is that of a long-term note or of a past conversation.

    A long-term note in any folder but those of daily ones: folders of `extraPaths` may lie inside of the
    workspace. A name in any spelling: there are file systems that ignore case.
    """
    folded = path.casefold()
    is_long_term = folded.rpartition("/")[2] == "memory.md" and not folded.startswith(f"{MEMORY_FOLDER}/")
    return is_long_term or is_transcript(path) or bool(_IMPORTED.search(folded))


def source_of(path: str) -> str:
    """Return the source that a ledger path belongs to."""
    return SESSIONS if is_transcript(path) else MEMORY


class Pattern:
    """Matches a glob against paths relative to a folder, with "/" between their parts.

    `*` and `?` stay within one part, `**` stands for any number of folders, `[a-z]` and `{md,markdown}` as in
    a shell. So `*.md` matches only the folder's own files, `**/*.md` files at any depth.

    `pathspec` was tried instead: a pattern with eight stars (`*a*a…`) took more than 18 s for a name of 60
    characters, it knows no braces, and its import adds 7.8 ms to a search.
    """

    __slots__ = ("_alternatives", "_at_any_depth", "is_any_name")

    def __init__(self, pattern: str) -> None:
        text = pattern.strip()
        self._alternatives = [_part_tests(each) for each in _expand_braces(text)]
        first = self._alternatives[0]
        is_plain = len(self._alternatives) == 1 and len(first) == 2 and first[0] is None
        #: The test of the name in `**/name`, the default: a walk asks for it with each file.
        self._at_any_depth = first[1] if is_plain else None
        #: Whether each file at any depth is meant.
        self.is_any_name = text == _EVERYTHING

    def matches(self, relative: str) -> bool:
        """Tell whether the file at this relative path is meant."""
        if self._at_any_depth is not None:
            return self._at_any_depth(relative.rpartition("/")[2]) is not None
        names = relative.split("/")
        return any(_matches_parts(tests, names) for tests in self._alternatives)

    def enters(self, depth: int, name: str) -> bool:
        """Tell whether a folder `depth` levels below the root (0: directly in it) can hold a match."""
        for tests in self._alternatives:
            if None in tests[: depth + 1]:
                return True
            if depth < len(tests) - 1 and (test := tests[depth]) and test(name):
                return True
        return False


#: Returns the compiled pattern; the same text is compiled once.
compile_pattern = lru_cache(maxsize=64)(Pattern)


#: Tests one part of a path; None is `**`.
_PartTest = Callable[[str], re.Match[str] | None] | None


def _part_tests(pattern: str) -> list[_PartTest]:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if pattern.endswith("/"):
        parts.append("**")
    if parts and parts[-1] == "**":
        # `notes/**` is everything in it, not the folder itself.
        parts.append("*")
    # fnmatch puts what is between two stars into an atomic group: twenty stars take no longer than two.
    return [None if part == "**" else re.compile(translate(part.replace("[^", "[!"))).match for part in parts]


def _matches_parts(tests: list[_PartTest], names: list[str]) -> bool:
    """Match part by part; what follows a `**` is tried one folder deeper after each failure."""
    test = name = 0
    retry: tuple[int, int] | None = None
    while name < len(names):
        accepts = tests[test] if test < len(tests) else None
        if test < len(tests) and accepts is None:
            test += 1
            retry = test, name
        elif accepts is not None and accepts(names[name]):
            test, name = test + 1, name + 1
        elif retry is not None:
            # The latest `**` alone: whatever an earlier one took, the parts between are found already.
            test, name = retry = retry[0], retry[1] + 1
        else:
            return False
    return test == len(tests)


def _expand_braces(pattern: str) -> list[str]:
    done, todo = [], [pattern]
    while todo:
        text = todo.pop()
        match = _ALTERNATIVES.search(text) if "{" in text else None
        if match is None:
            done.append(text)
        else:
            todo.extend(text[: match.start()] + each + text[match.end() :] for each in match[1].split(","))
        if len(done) + len(todo) > _MAX_ALTERNATIVES:
            return [pattern]
    return done


@value
class MemoryRoot:
    """A file or folder that the configuration, or the rule of the workspace, names."""

    path: str
    pattern: Pattern
    #: The words of the configuration; empty for the workspace's own.
    named: str = ""


@value
class FileLocation:
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
    ) -> None:
        """`exclude`: as in `.gitignore`; relative to the workspace, outside of it to the folder named."""
        self.workspace = os.path.abspath(os.path.expanduser(workspace))
        self._inside = folder_prefix(self.workspace)
        self.rules = Rules(self.workspace, exclude, uses_files=uses_ignore_files)
        self.extras = tuple(self._extra_roots(extra_paths))
        self._set_roots()

    @classmethod
    def of(cls, settings: AgentSettings) -> MemoryPaths:
        """Return the memory that an agent's settings name."""
        memory = settings.memory
        return cls(
            settings.workspace,
            memory.extra_paths,
            exclude=memory.exclude,
            uses_ignore_files=memory.ignore_files,
        )

    def _set_roots(self) -> None:
        everything = compile_pattern(_EVERYTHING)
        names = (*LONG_TERM, MEMORY_FOLDER)
        #: Whether all Markdown of the workspace is memory.
        is_there = map(os.path.lexists, (self._inside + name for name in names))
        self.is_whole = os.path.isdir(self.workspace) and not any(is_there)
        self.files = tuple(MemoryRoot(path=self._inside + name, pattern=everything) for name in LONG_TERM)
        self.memory = MemoryRoot(path=self._inside + MEMORY_FOLDER, pattern=everything)
        if self.is_whole:
            self.files = ()
            self.memory = MemoryRoot(path=self.workspace, pattern=everything)
        self._roots = (*self.files, self.memory, *self.extras)

    def refresh(self) -> bool:
        """Look again which rules and roots there are; True when the roots are others than before."""
        before = self.is_whole
        self.rules.refresh()
        self._set_roots()
        return self.is_whole != before

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

    def root_reading(self, path: str) -> MemoryRoot | None:
        """Return the root with which a file is read, or all Markdown below a folder; None when none does.

        Asked before one more root is made of it, or of what a link leads to: links in `path` are followed.
        """
        real = os.path.realpath(path)
        for root in (*self.extras, *self.files, self.memory):
            anchor = self.anchor(root.path)
            start = os.path.normpath(
                os.path.join(os.path.realpath(anchor), os.path.relpath(root.path, anchor))
            )
            if real != start and _below(start, real) is None:
                continue
            absolute = os.path.normpath(os.path.join(root.path, os.path.relpath(real, start)))
            if os.path.isdir(real):
                # With a pattern a folder is read in part.
                absolute = os.path.join(absolute, LONG_TERM[0]) if root.pattern.is_any_name else ""
            if absolute and self._is_read(root, absolute):
                return root
        return None

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
        taken = set()
        for extra in extra_paths:
            named = extra.path.strip()
            path = os.path.join(self.workspace, os.path.expanduser(named))
            key = (os.path.normpath(path), extra.pattern)
            if named and key not in taken:
                taken.add(key)
                pattern = _EVERYTHING if extra.pattern == ANY_MARKDOWN else extra.pattern
                yield MemoryRoot(path=key[0], pattern=compile_pattern(pattern), named=named)


def _below(root: str, absolute: str) -> str | None:
    """Return the path relative to `root`; None when it is not below it."""
    relative = absolute.removeprefix(folder_prefix(root))
    return relative if relative and relative != absolute else None


def folder_prefix(folder: str) -> str:
    return folder if folder.endswith("/") else folder + "/"
