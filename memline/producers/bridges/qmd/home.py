"""Run qmd for one agent: in a home of its own, with no key in its environment, and bounded in everything.

<home>/qmd/<agent>-<digest of the workspace>/
    xdg-config/qmd/index.yml      its collections
    xdg-cache/qmd/index.sqlite    its index; models are a link to those of the user
    sessions/<session>.md         exported transcripts
    update.json, embed.json, failed.json    what was done last, and what failed
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from memline.shared import programs
from memline.shared.config import workspaces
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.provider_errors import redact_line
from memline.shared.errors import MemlineError
from memline.shared.tables import as_dict

#: Bytes that a command may write; the answer to a question has a few thousand.
MAX_OUTPUT_BYTES = 1 << 20

#: Bytes of data of each of its processes. Models are files in memory and do not count; what is computed with
#: them does: 2 GiB with qmd's own three.
MAX_MEMORY_BYTES = 8 << 30

#: What the original's command is called in texts, whatever the program's path.
QMD = "qmd"


class QmdFailed(MemlineError):
    """A command of qmd cannot be used: not installed, too slow, too long, an error, or not an answer."""


class QmdHome:
    """The folder of qmd for one agent and workspace, and its commands."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        home = settings.home if settings.home.is_absolute() else settings.index_path.parent
        self.folder = home / "qmd" / f"{settings.agent}-{workspaces.digest(settings.workspace)}"
        self.index_path = self.folder / "xdg-cache" / "qmd" / "index.sqlite"
        named = settings.qmd.sessions.export_dir
        self.exports = Path(
            os.path.join(settings.workspace, os.path.expanduser(named or self.folder / "sessions"))
        )

    def make(self) -> None:
        """Make its folders, and link the models that the user has. Raises QmdFailed."""
        try:
            for name in ("xdg-config/qmd", "xdg-cache/qmd"):
                (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            models = Path(
                self._settings.program_environment.get("XDG_CACHE_HOME", "/nonexistent"), "qmd", "models"
            )
            own = self.folder / "xdg-cache" / "qmd" / "models"
            if models.is_dir() and not os.path.lexists(own):
                with suppress(FileExistsError):
                    own.symlink_to(models)
        except OSError as error:
            raise QmdFailed(f"qmd's home {self.folder} cannot be made: {error.strerror}") from None

    def run(
        self,
        *args: str,
        timeout_ms: int,
        keep_open: Sequence[int] = (),
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> programs.Ran:
        """Run `qmd ARGS` to a good end. Raises QmdFailed."""
        shown = " ".join(args[:1] if args[0] in ("query", "search", "vsearch") else args)
        ran = programs.run_program(
            [self.program(), *args],
            timeout_s=timeout_ms / 1000,
            max_bytes=MAX_OUTPUT_BYTES,
            env=self.environment(),
            # Not the workspace: qmd takes settings, commands among them, from a `.qmd` folder there.
            cwd=str(self.folder),
            max_memory=MAX_MEMORY_BYTES,
            keep_open=keep_open,
            is_stopped=is_stopped,
        )
        words = redact_line(ran.stderr.strip() or ran.stdout.strip()[-2_000:])
        if ran.problem == programs.TOO_LONG:
            raise QmdFailed(
                f"qmd {shown} timed out after {timeout_ms}ms{f': {words}' if words else ''}",
                hint="give it longer: memory.qmd.limits.timeoutMs, memory.qmd.update.*TimeoutMs",
            )
        if ran.problem == programs.TOO_MUCH:
            raise QmdFailed(f"qmd {shown} wrote more than {MAX_OUTPUT_BYTES} bytes")
        if ran.problem:
            raise QmdFailed(f"qmd {shown} was not run to its end: {ran.reason or ran.problem}")
        if ran.status:
            raise QmdFailed(
                f"qmd {shown} failed (code {ran.status}): {words}", hint="memline status shows its home"
            )
        return ran

    def environment(self) -> dict[str, str]:
        """Return the variables of its processes: nothing that holds a key, and its own folders."""
        config = self.folder / "xdg-config"
        return {
            **self._settings.program_environment,
            "XDG_CONFIG_HOME": str(config),
            # Versions before 1.0 know this one alone.
            "QMD_CONFIG_DIR": str(config / "qmd"),
            "XDG_CACHE_HOME": str(self.folder / "xdg-cache"),
            "NO_COLOR": "1",
            "PWD": str(self.folder),
        }

    def program(self) -> str:
        """Return the path of the program: the first word of the command. Raises QmdFailed."""
        command = self._settings.qmd.command
        try:
            first = next(iter(shlex.split(command)), QMD)
        except ValueError:
            # A quote that is not closed.
            first = command
        name = os.path.expanduser(first)
        path = self._settings.program_environment.get("PATH", os.defpath)
        found = shutil.which(name, path=path)
        if found is None:
            where = "no such program" if "/" in name else "not on the PATH"
            raise QmdFailed(
                f"qmd cannot be run: {first!r} is {where}"
                if "/" not in name
                else f"qmd cannot be run: {where}: {first}",
                hint="npm install -g @tobilu/qmd, or name the program in memory.qmd.command",
            )
        return os.path.abspath(found)

    def read(self, name: str) -> dict[str, Any]:
        """Return what a file of the home says; empty when there is none, or nothing to be understood."""
        try:
            return as_dict(json.loads((self.folder / name).read_text("utf-8")))
        except (OSError, ValueError, RecursionError):
            return {}

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Replace a file of the home as a whole; one that cannot be written stays as it is."""
        path = self.folder / name
        part = path.with_suffix(f".{os.getpid()}.tmp")
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.write_text(json.dumps(content), encoding="utf-8")
            part.replace(path)

    def remove(self, name: str) -> None:
        """Remove a file of the home, if it is there and can be removed."""
        with suppress(OSError):
            (self.folder / name).unlink()
