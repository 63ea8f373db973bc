"""Run qmd for one agent in a home of its own, and say which of its files are files of the memory.

<home>/qmd/<agent>-<digest of the workspace>/
    xdg-config/qmd/index.yml      its collections
    xdg-cache/qmd/index.sqlite    its index; models are a link to those of the user
    sessions/<session>.md         exported transcripts
    state.json                    what was done last, and what failed
"""

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from memline.shared.config.agents import digest
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.provider_errors import redact_line
from memline.shared.errors import MemlineError
from memline.shared.note_names import ANY_MARKDOWN, MARKDOWN
from memline.shared.sources.paths import LONG_TERM, MEMORY, MEMORY_FOLDER, SESSIONS, MemoryPaths

#: How the path of an exported session begins: `qmd/sessions/<session>.md`.
PREFIX = "qmd/sessions/"

#: What qmd calls all Markdown: it minds the case of a mask.
_ANY = f"**/*.{{{','.join(end for each in MARKDOWN for end in (each[1:], each[1:].upper()))}}}"

_SLOW = "give it longer: memory.qmd.limits.timeoutMs, memory.qmd.update.*TimeoutMs"


class QmdFailed(MemlineError):
    """A command of qmd cannot be used: not installed, too slow, an error, or not an answer."""

    code = "qmd_failing"


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was done last, in seconds since the epoch, and what failed."""

    tried_at: float = 0.0
    #: When the last good update began and ended.
    started_at: float = 0.0
    updated_at: float = 0.0
    embedded_at: float = 0.0
    files: int = 0
    #: Name, folder and mask.
    collections: dict[str, tuple[str, str]] = {}
    #: What failed since the last good answer, what to do about it, and when a question or an update did.
    error: str = ""
    action: str = ""
    error_at: float = 0.0


class Collection(msgspec.Struct, frozen=True):
    """A folder that qmd searches, or files of it."""

    #: Absolute.
    root: str
    #: Glob of its files.
    mask: str
    source: str = MEMORY

    @property
    def is_there(self) -> bool:
        """Tell whether its folder, or its one note of the workspace, is there now."""
        note = os.path.join(self.root, self.mask) if self.mask in LONG_TERM else self.root
        return os.path.exists(note)


class QmdHome:
    """The folder of qmd for one agent and workspace, its commands and its collections."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings, self._qmd = settings, settings.content.memory.qmd
        home = settings.home if settings.home.is_absolute() else settings.index_path.parent
        self.folder = home / "qmd" / f"{settings.agent}-{digest(settings.workspace)}"
        named = os.path.expanduser(self._qmd.sessions.export_dir or self.folder / "sessions")
        self.exports = Path(os.path.join(settings.workspace, named))
        #: Says which files are memory by the rules that the builtin backend has.
        self.paths = MemoryPaths.of(settings)
        #: By the names that qmd knows.
        self.collections = self._named()
        #: What runs, and whether nothing is run any more.
        self._running = set[subprocess.Popen[str]]()
        self.is_stopped = False

    def make(self) -> None:
        """Make its folders, and link the models that the user has. Raises QmdFailed."""
        try:
            for name in ("xdg-config/qmd", "xdg-cache/qmd"):
                (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            caches = self._settings.program_environment.get("XDG_CACHE_HOME", "/nonexistent")
            models = Path(caches, "qmd", "models")
            if models.is_dir():
                with suppress(FileExistsError):
                    (self.folder / "xdg-cache/qmd/models").symlink_to(models)
        except OSError as error:
            raise QmdFailed(f"qmd's home {self.folder} cannot be made: {error.strerror}") from None

    def stop(self) -> None:
        """Kill what runs; nothing is run any more."""
        self.is_stopped = True
        for process in [*self._running]:
            _kill(process)

    def run(self, *args: str, timeout_ms: int) -> str:
        """Run `qmd ARGS` to a good end and return what it prints. Raises QmdFailed."""
        shown = args[0]
        config = self.folder / "xdg-config"
        env = {"XDG_CONFIG_HOME": str(config), "XDG_CACHE_HOME": str(self.folder / "xdg-cache")}
        # It wins over `XDG_CONFIG_HOME`.
        env |= {"QMD_CONFIG_DIR": str(config / "qmd"), "NO_COLOR": "1", "PWD": str(self.folder)}
        try:
            # Not in the workspace: qmd takes settings, commands among them, from a `.qmd` folder there. A
            # session of its own, so that what it started ends with it.
            process = subprocess.Popen(
                [self.program(), *args],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                env={**self._settings.program_environment, **env},
                cwd=self.folder,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise QmdFailed(f"qmd {shown} cannot be started: {error}") from None
        with process:
            self._running.add(process)
            try:
                if self.is_stopped:
                    raise QmdFailed(f"qmd {shown} was stopped")
                stdout, stderr = process.communicate(timeout=timeout_ms / 1000)
            except subprocess.TimeoutExpired:
                raise QmdFailed(f"qmd {shown} timed out after {timeout_ms}ms", hint=_SLOW) from None
            finally:
                _kill(process)
                # Its number may become that of another process.
                self._running.remove(process)
        if process.returncode:
            words = redact_line((stderr.strip() or stdout.strip())[-2_000:])
            raise QmdFailed(f"qmd {shown} failed (code {process.returncode}): {words}", hint="memline status")
        return stdout

    def program(self) -> str:
        """Return the path of the program: the first word of the command. Raises QmdFailed."""
        # The first word, which may be quoted.
        first = next(iter(re.findall(r"""'[^']*'|"[^"]*"|\S+""", self._qmd.command)), "qmd").strip("'\"")
        path = self._settings.program_environment.get("PATH", os.defpath)
        if (program := shutil.which(os.path.expanduser(first), path=path)) is None:
            raise QmdFailed(
                f"qmd cannot be run: there is no program {first!r}",
                hint="npm install -g @tobilu/qmd, or name the program in memory.qmd.command",
            )
        return os.path.abspath(program)

    @property
    def state(self) -> State:
        """Return what was done last; nothing when the file is not there or damaged."""
        try:
            return msgspec.json.decode((self.folder / "state.json").read_bytes(), type=State)
        except (OSError, msgspec.MsgspecError):
            return State()

    def save(self, **changes: Any) -> None:
        """Change some of the state; a file that cannot be written stays as it is."""
        part = self.folder / f".state.{os.getpid()}.{threading.get_ident()}"
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.write_bytes(msgspec.json.encode(msgspec.structs.replace(self.state, **changes)))
            part.replace(self.folder / "state.json")

    def located(self, uri: str) -> tuple[str, str] | None:
        """Return path and source of a hit; None unless it is a file of the memory."""
        name, _, relative = uri.removeprefix("qmd://").partition("/")
        if (collection := self.collections.get(name)) is None or "\0" in relative:
            return None
        absolute = os.path.normpath(os.path.join(collection.root, relative))
        root = os.path.realpath(collection.root).rstrip("/") + "/"
        # Reached without leaving the collection by a link.
        if not os.path.isfile(absolute) or not os.path.realpath(absolute).startswith(root):
            return None
        if collection.source == SESSIONS:
            return f"{PREFIX}{relative}", SESSIONS
        located = self.paths.locate(absolute)
        return (located.path, MEMORY) if located else None

    def _named(self) -> dict[str, Collection]:
        """Return every collection by a name of its own, each folder and mask once."""
        named = dict[str, Collection]()
        for base, collection in self._wanted():
            if collection not in named.values():
                name = f"{base}-{_plain(self._settings.agent)}"
                named[f"{name}-{len(named)}" if name in named else name] = collection
        return named

    def _wanted(self) -> Iterator[tuple[str, Collection]]:
        qmd, memory, workspace = self._qmd, self._settings.memory, self.paths.workspace
        if qmd.include_default_memory and MEMORY in memory.sources:
            for number, note in enumerate(() if self.paths.is_whole else LONG_TERM):
                yield "memory-alt" if number else "memory-root", Collection(workspace, note)
            folder = workspace if self.paths.is_whole else os.path.join(workspace, MEMORY_FOLDER)
            yield "memory-dir", Collection(folder, _ANY)
        # The settings add `memory.qmd.paths` to `extraPaths`; only there an entry has a name.
        extras = [(each.path, each.pattern, each.name) for each in qmd.paths]
        extras += [(each.path, each.pattern, "") for each in memory.extra_paths]
        for number, (named, pattern, title) in enumerate(extras, 1):
            path = os.path.normpath(os.path.join(workspace, os.path.expanduser(named.strip())))
            root, mask = os.path.split(path) if os.path.isfile(path) else (path, pattern)
            mask = _ANY if mask in ("", ANY_MARKDOWN) else mask
            yield _plain(title) or f"custom-{number}", Collection(root, mask)
        if qmd.sessions.enabled:
            yield "sessions", Collection(str(self.exports), "**/*.md", SESSIONS)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _plain(name: str) -> str:
    """Return a name in the letters that qmd takes: a-z, 0-9 and `-`."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
