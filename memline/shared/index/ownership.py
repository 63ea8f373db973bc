"""Keep one index a workspace: record whose it is, and give a file back to the workspace that it is of.

Files are renamed, never merged or removed. A file that another process has open stays where it is, and an
error says so: renamed under its writer it would lose what the writer adds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

from memline.shared.config import workspaces
from memline.shared.config.config_file import for_owner
from memline.shared.config.schema import AgentSettings
from memline.shared.digests import sha256
from memline.shared.errors import IndexFault, IndexMissing, IndexOfAnother
from memline.shared.index import driver, meta, repair

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection


#: Notes of an index that are compared, the largest first: one that is a page is not another's by chance.
MOST_COMPARED = 50

#: Bytes of a note up to which it is compared.
_MAX_BYTES = 1 << 20

_NOTES = """
SELECT path, size, hash FROM files WHERE source = 'memory' AND outcome = 'indexed' AND size <= ?
    AND path NOT LIKE '/%' ORDER BY size DESC, path LIMIT ?
"""


def of_another(connection: Connection, settings: AgentSettings) -> str:
    """Return the workspace that an index is of when it is not the agent's; else an empty text."""
    recorded = str(meta.get(connection, meta.WORKSPACE, "") or "")
    return "" if not recorded or workspaces.is_same(recorded, settings.workspace) else recorded


def refuse(settings: AgentSettings, recorded: str) -> None:
    """Raise IndexOfAnother when `recorded`, the workspace of the agent's index, is not the agent's."""
    if recorded and not workspaces.is_same(recorded, settings.workspace):
        raise IndexOfAnother(
            f"the index {settings.index_path} is of another workspace, {recorded};"
            f" nothing of it is used for {settings.workspace}",
            hint="memline index   (makes one for this workspace and keeps the other)"
            if _is_usual(settings)
            else f"give each workspace a store.path of its own, or: memline index --adopt {recorded}",
        )


def record(connection: Connection, settings: AgentSettings) -> None:
    """Write down whose the index is, in it and beside it."""
    workspace, owner = str(settings.workspace), workspaces.owner_file(settings.index_path)
    if meta.get(connection, meta.WORKSPACE) != workspace:
        with driver.transaction(connection):
            meta.put(connection, meta.WORKSPACE, workspace)
    elif owner.exists():
        return
    _write_owner(owner, workspace)


def give_back(settings: AgentSettings, recorded: str) -> Path:
    """Move an index at the agent's usual path to the name of its own workspace, and return that.

    If this workspace has had an index of its own, that one takes the place. Raises IndexOfAnother where the
    configuration names one file for both, and IndexFault when the file is in use.
    """
    path = settings.index_path
    if not _is_usual(settings):
        refuse(settings, recorded)
    kept = _own_name(path, settings.agent, recorded)
    _move(path, kept, recorded)
    own = _own_name(path, settings.agent, settings.workspace)
    if own.exists():
        _move(own, path, str(settings.workspace))
    return kept


def adopt(settings: AgentSettings, former: Path) -> None:
    """Let the agent's workspace have the index of `former`: the folder was moved. Raises IndexFault."""
    path = settings.index_path
    plain = path.with_name(f"{settings.agent}.sqlite")
    names = (_own_name(path, settings.agent, former), plain)
    former_path = next((name for name in names if name != path and _is_of(name, former)), path)
    if former_path == path and path.exists() and workspaces.is_same(_recorded(path), settings.workspace):
        words = f"there is no index of {former}, and {settings.workspace} has its own"
        raise IndexMissing(words, hint="memline index")
    if path.exists() and not workspaces.is_same(_recorded(path), former):
        if former_path == path or not _is_of_words_alone(path):
            raise IndexFault(
                f"{settings.workspace} has an index of its own, {path}", hint=f"move {path} away first"
            )
        # A search made it on its way, of the notes alone.
        aside = path.with_name(f".{path.name}.replaced")
        repair.move(path, aside)
        aside.unlink()
    if not path.exists():
        if former_path == path:
            raise IndexMissing(f"there is no index of {former}", hint="memline index")
        _move(former_path, path, str(settings.workspace))
    with closing(driver.open_writer(path)) as connection, driver.faults(path), driver.transaction(connection):
        meta.put(connection, meta.WORKSPACE, str(settings.workspace))
    _write_owner(workspaces.owner_file(path), str(settings.workspace))


def former_of(workspace: Path, gone: Iterable[tuple[Path, Path]]) -> Path | None:
    """Return the folder that `workspace` was before: at least half of the notes of its index are here.

    `gone`: folders that are there no more, each with its index. A note is the same by path and content.
    """
    return next((former for former, index in gone if _is_here(workspace, index)), None)


def _is_here(workspace: Path, index: Path) -> bool:
    with suppress(IndexFault), driver.reading(index) as reader:
        notes = reader.execute(_NOTES, (_MAX_BYTES, MOST_COMPARED)).fetchall()
        same = sum(_is_same(workspace / path, size, digest) for path, size, digest in notes)
        return 0 < len(notes) <= 2 * same
    return False


def _is_same(file: Path, size: int, digest: str) -> bool:
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(opened, "rb") as content:
        is_size = os.fstat(opened).st_size == size
        return is_size and sha256(content.read(size)).hexdigest() == digest


def _is_usual(settings: AgentSettings) -> bool:
    return settings.index_path == settings.home / "memory" / f"{settings.agent}.sqlite"


def _own_name(path: Path, agent: str, workspace: str | Path) -> Path:
    return path.with_name(f"{agent}-{workspaces.digest(workspace)}.sqlite")


def _recorded(path: Path) -> str:
    with driver.reading(path) as reader:
        return str(meta.get(reader, meta.WORKSPACE, "") or "")


def _is_of_words_alone(path: Path) -> bool:
    """Tell whether an index can be made again of the notes for nothing: nothing was paid for or forgotten."""
    with driver.reading(path) as reader:
        tables = ("vectors", "forgotten", "batches", "jobs")
        return all(driver.scalar(reader, f"SELECT 1 FROM {table} LIMIT 1") is None for table in tables)


def _is_of(path: Path, workspace: Path) -> bool:
    return path.exists() and workspaces.is_same(_recorded(path) or "/", workspace)


def _move(path: Path, target: Path, workspace: str) -> None:
    if target.exists():
        raise IndexFault(f"both {path} and {target} are of {workspace}", hint="move one of them away")
    repair.move(path, target)
    workspaces.owner_file(path).unlink(missing_ok=True)
    _write_owner(workspaces.owner_file(target), workspace)


def _write_owner(owner: Path, workspace: str) -> None:
    # What it says is in the index as well: a folder that takes no file costs nothing but a convenience.
    with suppress(OSError, UnicodeEncodeError):
        part = owner.with_name(f"{owner.name}.{os.getpid()}")
        with open(part, "w", encoding="utf-8", opener=for_owner) as opened:
            opened.write(f"{workspace}\n")
        os.replace(part, owner)
