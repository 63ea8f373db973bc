"""Know the workspaces of a user: name each one's index, and find the one that a command is about.

    <config>/workspaces/<name>-<digest>.json5    settings of a workspace; `memline init` makes it
    <home>/memory/<agent>.sqlite                 index of the workspace that is configured for an agent
    <home>/memory/<agent>-<digest>.sqlite        index of any other workspace that the agent is used with
    <home>/memory/<the same>.workspace           beside an index: the path of its workspace

Settings are kept in the user's own folder, never in the workspace: a repository that was cloned could set an
address that every note is sent to.
"""

from __future__ import annotations

import os
import re

# Not from hashlib: loading OpenSSL costs a search 2.5 ms.
from _blake2 import blake2b
from collections.abc import Iterator
from pathlib import Path

from memline.shared.config import environment
from memline.shared.config.environment import Environment
from memline.shared.config.keys import Setting
from memline.shared.note_names import is_markdown

#: What a workspace has although it was never initialised.
_SIGNS = ("MEMORY.md", "MEMORY.MD", "memory")

#: Folders that hold no notes of a user's.
_NO_NOTES = ("node_modules", "venv", "__pycache__")

#: Names that are looked at for a note: 20 ms.
MOST_ENTRIES = 5_000

#: Letters of a digest: 48 bits, far more than a user's workspaces need.
_DIGEST_CHARS = 12

#: How a workspace was found, as `status` and `config show` say it.
ABOVE = "initialised folder at or above the current one"
SIGNED = "nearest folder with MEMORY.md or memory/"
ONLY = "the only workspace with an index"


def digest(workspace: str | Path) -> str:
    """Identify a workspace in the names of files, whatever links lead to it."""
    return blake2b(os.fsencode(os.path.realpath(workspace))).hexdigest()[:_DIGEST_CHARS]


def is_same(one: str | Path, other: str | Path) -> bool:
    """Tell whether two paths lead to one workspace."""
    return str(one) == str(other) or os.path.realpath(one) == os.path.realpath(other)


def settings_file(workspace: str | Path, env: Environment) -> Path:
    """Return the file with the settings of a workspace; it may not exist."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", os.path.basename(os.path.realpath(workspace))).strip("-")[:40]
    folder = environment.xdg(env, "XDG_CONFIG_HOME", ".config") / "workspaces"
    return folder / f"{name or 'root'}-{digest(workspace)}.json5"


def index_file(home: Path, agent: str, workspace: Path, configured: Path | None) -> Path:
    """Name the index of a workspace: its own unless it is the one that is configured for the agent."""
    own = home / "memory" / f"{agent}-{digest(workspace)}.sqlite"
    plain = home / "memory" / f"{agent}.sqlite"
    # It may have been indexed before it was configured, or while it was: what is paid for is used.
    if configured is not None and is_same(workspace, configured):
        return own if own.exists() and not plain.exists() else plain
    former = None if own.exists() else owner_of(plain)
    return plain if former and plain.exists() and is_same(workspace, former) else own


def owner_file(index: Path) -> Path:
    """Name the file beside an index that holds the path of its workspace."""
    return index.with_suffix(".workspace")


def owner_of(index: Path) -> Path | None:
    """Read in that file which workspace an index is of."""
    try:
        workspace = Path(owner_file(index).read_text("utf-8").rstrip("\n"))
    except (OSError, UnicodeDecodeError):
        return None
    return workspace if workspace.is_absolute() else None


def find_above(folder: Path, env: Environment) -> Setting | None:
    """Find the nearest folder upwards that was initialised, or has `MEMORY.md` or `memory/`."""
    for each in (folder, *folder.parents):
        if settings_file(each, env).exists():
            return Setting(value=each, origin=ABOVE)
        *names, folder_name = _SIGNS
        if any((each / name).is_file() for name in names) or (each / folder_name).is_dir():
            return Setting(value=each, origin=SIGNED)
    return None


def has_own_notes(folder: Path, env: Environment) -> bool:
    """Tell whether a folder has Markdown that is no other folder's: of a repository in it, of a workspace.

    In a user's home directory, and what holds it, only what lies there itself counts. Looks at `MOST_ENTRIES`
    names at most.
    """
    user = os.path.realpath(environment.user_home(env))
    is_wide = os.path.commonpath((user, os.path.realpath(folder))) == os.path.realpath(folder)
    left, todo = MOST_ENTRIES, [folder]
    while todo and left > 0:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    left -= 1
                    if entry.name.startswith(".") or entry.is_symlink():
                        continue
                    if is_markdown(entry.name) and entry.is_file():
                        return True
                    if entry.is_dir() and not is_wide and not _is_of_its_own(Path(entry.path), env):
                        todo.append(Path(entry.path))
        except OSError:
            continue
    return False


def _is_of_its_own(folder: Path, env: Environment) -> bool:
    return folder.name in _NO_NOTES or (folder / ".git").exists() or settings_file(folder, env).exists()


def indexed(home: Path, agent: str) -> list[Path]:
    """List the workspaces that an agent has an index of, and that are there."""
    found = {os.path.realpath(each): each for each, _ in _with_index(home, agent) if each.is_dir()}
    return sorted(found.values())


def gone(home: Path, agent: str, env: Environment) -> list[tuple[Path, Path]]:
    """List the folders with settings that are there no more, each with the agent's index of it."""
    found = _with_index(home, agent)
    return [each for each in found if not each[0].exists() and settings_file(each[0], env).exists()]


def _with_index(home: Path, agent: str) -> Iterator[tuple[Path, Path]]:
    """Yield the workspaces that an agent has an index of, each with the index."""
    for owner in _files(home, ".workspace"):
        index = owner.with_suffix(".sqlite")
        if _agent_of(owner) == agent and index.exists() and (workspace := owner_of(index)):
            yield workspace, index


def has_entries(folder: Path) -> bool:
    """Tell whether a folder has something in it: beside that a workspace was removed, and is not away."""
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def agents_with_index(home: Path) -> set[str]:
    """Return the ids of the agents that have an index."""
    return {_agent_of(index) for index in _files(home, ".sqlite")}


def _files(home: Path, suffix: str) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(home / "memory"))
    except OSError:
        return
    yield from (home / "memory" / name for name in names if name.endswith(suffix))


def _agent_of(file: Path) -> str:
    return re.sub(rf"-[0-9a-f]{{{_DIGEST_CHARS}}}$", "", file.stem)
