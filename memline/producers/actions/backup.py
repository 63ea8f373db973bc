"""Back up the indexes of agents into a folder, and put them back, while everything runs."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from memline.shared.clock import SystemClock
from memline.shared.config import workspaces
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import ConfigError, IndexCorrupt, IndexMissing, IndexTooOld
from memline.shared.figures import counters
from memline.shared.index import chunks, copies, driver, meta, vectors
from memline.shared.index.driver import faults, file_id, open_writer, refuse_foreign, transaction
from memline.shared.index.repair import move_aside
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import leases
from memline.shared.values import value

#: The ending of a backup: the file of an agent is `<agent>.sqlite`.
SUFFIX = ".sqlite"


@value
class Saved:
    """One agent's index in a backup, or the index that a backup is put back into."""

    agent: str
    path: Path
    files: int
    chunks: int
    vectors: int
    bytes: int = 0
    #: The workspace the index was made of.
    workspace: str = ""
    #: Texts that wait to be embedded, but for those of jobs that are paused or cancelled.
    wanted: int = 0
    #: What a person has paused of embedding: "all", or `<provider> <mode>` each.
    paused: tuple[str, ...] = ()


def back_up(agents: Sequence[AgentSettings], folder: Path, *, any_workspace: bool = False) -> list[Saved]:
    """Write the index of each agent that has one into `folder`, a file each; the folder is made.

    A file that is there is replaced when the new one is whole. Raises ConfigError where it is a backup of
    another workspace, unless `any_workspace`; IndexFaults, and IndexMissing when no agent has an index.
    """
    saved = []
    if folder.exists() and not folder.is_dir():
        raise ConfigError(
            f"{folder} is a file; a backup is a folder with a file for each agent", hint="name another"
        )
    for agent in agents:
        target = folder / f"{agent.agent}{SUFFIX}"
        if not agent.index_path.exists():
            continue
        if target.exists() and target.samefile(agent.index_path):
            raise ConfigError(f"{target} is the index itself", hint="name another folder")
        _refuse_other_files(target, None if any_workspace else agent)
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            size = copies.copy_out(agent.index_path, target)
        except BaseException:
            if is_new:
                with suppress(OSError):
                    folder.rmdir()
            raise
        saved.append(_summary(agent.agent, target, size))
        counters.put(agent.account_path, counters.BACKED_UP, time.time(), agent=agent.agent)
    if not saved:
        raise IndexMissing("there is no index to back up yet", hint="memline index")
    return saved


def backups_at(path: Path, agents: Sequence[AgentSettings], one: AgentSettings) -> list[Saved]:
    """List what can be put back from `path`: a folder of backups, or the file of the agent `one`.

    Raises IndexFaults for a file that is not a whole index of ours.
    """
    named = [(agent, path / f"{agent.agent}{SUFFIX}") for agent in agents] if path.is_dir() else [(one, path)]
    found = [(agent, file) for agent, file in named if file.is_file()]
    if not found:
        if not path.exists():
            raise ConfigError(
                f"{path} does not exist", hint="name a folder or file that `memline backup` made"
            )
        wanted = f"{SUFFIX}, ".join(agent.agent for agent in agents) + SUFFIX
        raise ConfigError(f"{path} has no backup of this configuration's agents ({wanted})")
    return [_summary(agent.agent, file, file.stat().st_size) for agent, file in found]


def refuse_other_workspace(saved: Saved, agent: AgentSettings) -> None:
    """Raise ConfigError for the backup of another workspace than the agent's that is still here."""
    hint = f"memline --workspace {shlex.quote(saved.workspace)} restore {shlex.quote(str(saved.path))}"
    _refuse_other_workspace(saved.path, saved.workspace, agent, hint=hint)


def restore(saved: Saved, agent: AgentSettings) -> Saved:
    """Put a backup in the place of an agent's index; other processes go on with what it holds.

    The backup is checked as a whole first. Vectors that were paid for since it was made are kept as cached
    ones, open batches stay open, what was forgotten since stays forgotten, and what a person has paused or
    cancelled stays so. Raises IndexFaults; then the index is as it was.
    """
    index = agent.index_path
    if index.exists() and index.samefile(saved.path):
        raise ConfigError(f"{saved.path} is the index itself", hint="name a backup")
    index.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with copies.alone(index), copies.staged(saved.path, index) as stage:
        found = file_id(index)
        try:
            live = open_writer(index)
        except IndexCorrupt:
            move_aside(index, SystemClock().now(), found)
            live = open_writer(index)
        with closing(live), closing(_writer_of_stage(stage, agent)) as writer:
            with writer.session() as (connection, _):
                copies.carry_over(connection, index)
                # On another machine the notes may be in another folder.
                meta.put(connection, meta.WORKSPACE, str(agent.workspace))
            writer.recover()
            # What others send or store in this moment would be gone with the index they have: they wait.
            with faults(index), transaction(live), writer.session() as (connection, _):
                copies.carry_over(connection, index, is_last=True)
                writer.recover()
            copies.put_in_place(writer.connection, live, index)
    return _summary(agent.agent, index, index.stat().st_size)


def _writer_of_stage(stage: Path, agent: AgentSettings) -> IndexWriter:
    writer = IndexWriter(
        stage,
        account_file=agent.account_path,
        clock=SystemClock(),
        lease_s=leases.lease_s(agent.memory.remote.timeout_seconds),
    )
    # Whether a Redis keeps its requests is the store worker's to know.
    writer.is_owner_alive = lambda owner: owner.startswith(leases.REDIS) or leases.is_owner_alive(owner)
    return writer


def _refuse_other_files(target: Path, agent: AgentSettings | None) -> None:
    """Raise where a backup would replace another program's file, or the backup of another workspace."""
    if target.exists() and target.stat().st_size:
        with copies.reading_raw(target, hint="name another folder") as connection:
            with suppress(IndexTooOld):
                refuse_foreign(connection, target)
            has_marks = driver.scalar(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'meta'")
            recorded = str(meta.get(connection, meta.WORKSPACE, "") or "") if has_marks else ""
        if agent is not None:
            _refuse_other_workspace(target, recorded, agent, hint="name another folder")


def _refuse_other_workspace(file: Path, recorded: str, agent: AgentSettings, *, hint: str) -> None:
    # One that is not here was moved, or is on another machine.
    if recorded and Path(recorded).is_dir() and not workspaces.is_same(recorded, agent.workspace):
        raise ConfigError(f"{file} is a backup of {recorded}, not of {agent.workspace}", hint=hint)


_COUNT_WANTED = (
    "SELECT count(*) FROM vectors WHERE state = 'wanted' AND state <> 'ready' AND active = 1"
    f" AND priority < {vectors.CANCELLED}"
)


def _summary(agent: str, path: Path, size: int) -> Saved:
    with copies.reading_raw(path) as connection:
        copies.check_marks(connection, path)
        return Saved(
            agent=agent,
            path=path,
            files=driver.scalar(connection, "SELECT count(*) FROM files WHERE outcome = 'indexed'"),
            chunks=chunks.count(connection),
            vectors=vectors.count_ready(connection),
            bytes=size,
            workspace=str(meta.get(connection, meta.WORKSPACE, "") or ""),
            wanted=driver.scalar(connection, _COUNT_WANTED),
            paused=tuple(
                ["all"] if meta.get(connection, meta.PAUSED) else meta.get(connection, meta.PAUSED_MODES, ())
            ),
        )
