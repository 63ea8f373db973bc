"""Copy an index, and what its home knows of provider accounts, into files; and bring such a copy back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from memline.shared.config.agents import is_same
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import ConfigError, IndexCorrupt, IndexFault, IndexMissing, IndexTooOld
from memline.shared.index import accounts, chunks, driver, maintenance, meta, vectors
from memline.shared.index_writer import IndexWriter
from memline.shared.sources.paths import SESSIONS

#: The ending of a backup, and that of the accounts beside it.
SUFFIX = ".sqlite"
_ACCOUNTS_SUFFIX = ".accounts"


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A backup of one agent's index."""

    agent: str
    path: Path
    files: int
    chunks: int
    vectors: int
    bytes: int
    #: The copy of the accounts; None where the home has none yet.
    accounts: Path | None


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a backup: it is the index now, or this one has its vectors as well."""

    agent: str
    path: Path
    is_index: bool
    #: Vectors that the index did not have before.
    vectors: int
    #: The folder of the notes of which it is a backup, where these are others, and are on this machine.
    other_workspace: str = ""
    #: The accounts that should be beside it, where they are not and sessions are searched.
    missing_accounts: Path | None = None


def back_up(agents: Sequence[AgentSettings], path: Path | None) -> list[Saved]:
    """Write the index of each agent that has one to a file, while everything runs.

    `path`: a file that ends in `.sqlite`, of one agent, or a folder, where it has the name of its index; None
    for `backups` in the home. Beside it comes a copy of the accounts. A file that is there is replaced when
    the new one is whole, if it is a backup. Raises ConfigError and IndexFaults (IndexMissing: no index yet).
    """
    found = [agent for agent in agents if agent.index_path.exists()]
    if not found:
        raise IndexMissing("there is no index to back up yet", hint="memline index")
    path = path or found[0].home / "backups"
    is_file = path.suffix == SUFFIX and not path.is_dir()
    if is_file and len(found) > 1:
        names = ", ".join(agent.agent for agent in found)
        raise ConfigError(f"{path} is one file, and {names} have an index each", hint="name a folder")
    folder = path.parent if is_file else path
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file", hint=f"name a folder, or a file that ends in {SUFFIX}")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    saved = []
    for agent in found:
        target = path if is_file else path / _name_of(agent)
        _refuse_other_files(target, agent)
        with driver.reading(agent.index_path) as source:
            maintenance.copy_out(source, target)
        with_accounts = _accounts_of(target) if agent.account_path.exists() else None
        if with_accounts:
            with closing(driver.open_reader(agent.account_path, kind=accounts.ACCOUNTS)) as source:
                maintenance.copy_out(source, with_accounts)
        with maintenance.opened(target) as copy:
            saved.append(
                Saved(
                    agent=agent.agent,
                    path=target,
                    files=driver.scalar(copy, "SELECT count(*) FROM files WHERE outcome = 'indexed'"),
                    chunks=chunks.count(copy),
                    vectors=vectors.count_ready(copy),
                    bytes=target.stat().st_size,
                    accounts=with_accounts,
                )
            )
    return saved


def workspace_of(path: Path) -> str:
    """Return the folder of the notes of which a file is a backup. Raises IndexFaults."""
    with maintenance.opened(path) as source:
        return str(meta.get(source, meta.WORKSPACE, "") or "")


def restore(agent: AgentSettings, path: Path) -> Restored:
    """Make a backup the index where that is missing or damaged; else take its vectors over.

    An index that is there keeps all that it has, and a vector serves every text that is the same. Safe to run
    again after a kill. Raises ConfigError and IndexFaults; then nothing was changed, or some vectors came.
    """
    index = agent.index_path
    with maintenance.opened(path) as source:
        if index.exists():
            if index.samefile(path):
                raise ConfigError(f"{path} is the index itself", hint="name a backup")
            found = driver.file_id(index)
            try:
                with suppress(IndexMissing):
                    driver.open_reader(index).close()
            except IndexCorrupt:
                maintenance.move_aside(index, time.time(), found)
        missing, recorded = None, str(meta.get(source, meta.WORKSPACE, "") or "")
        # A workspace that is not here was moved, or is on another machine.
        is_ours = not Path(recorded).is_dir() or is_same(recorded, agent.workspace)
        if is_ours and not index.exists():
            # First: a second run finds the index, and does not come here.
            saved = _accounts_of(path)
            if saved.is_file() and not agent.account_path.exists():
                with maintenance.opened(saved, accounts.ACCOUNTS) as copy:
                    maintenance.copy_out(copy, agent.account_path, replaces=False)
            elif SESSIONS in agent.memory.sources and not agent.account_path.exists():
                missing = saved
        is_index = is_ours and not index.exists() and maintenance.copy_out(source, index, replaces=False)
        if is_index:
            count = vectors.count_ready(source)
            # On another machine the notes may be in another folder.
            with closing(driver.open_writer(index)) as connection, driver.transaction(connection):
                meta.put(connection, meta.WORKSPACE, str(agent.workspace))
        else:
            with closing(IndexWriter.of(agent)) as writer:
                count = writer.take_vectors(source)
    return Restored(
        agent=agent.agent,
        path=path,
        is_index=is_index,
        vectors=count,
        other_workspace="" if is_ours else recorded,
        missing_accounts=missing,
    )


def _name_of(agent: AgentSettings) -> str:
    """Name a backup as its index, which tells folders apart; after its agent where that has another name."""
    name = agent.index_path.name
    is_of_agent = name == f"{agent.agent}{SUFFIX}" or name.startswith(f"{agent.agent}-")
    return name if is_of_agent else f"{agent.agent}{SUFFIX}"


def _accounts_of(backup: Path) -> Path:
    return backup.with_name(f"{backup.stem}{_ACCOUNTS_SUFFIX}{SUFFIX}")


def _refuse_other_files(target: Path, agent: AgentSettings) -> None:
    """Raise where a backup would replace a file that is none of this workspace."""
    if not target.exists() or not target.stat().st_size:
        return
    if target.samefile(agent.index_path):
        raise ConfigError(f"{target} is the index itself", hint="name another file")
    try:
        with maintenance.opened(target) as connection:
            recorded = str(meta.get(connection, meta.WORKSPACE, "") or "")
    except IndexTooOld:
        return
    except IndexFault as error:
        raise ConfigError(f"{target} is there and is no backup", hint="name another file") from error
    if recorded and Path(recorded).is_dir() and not is_same(recorded, agent.workspace):
        raise ConfigError(f"{target} is a backup of {recorded}", hint="name another file")
