"""What can be wrong with an installation or an agent's memory, each with the command that fixes it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from producers.status import collect
from shared.config.schema import AgentSettings
from shared.errors import IndexFault, IndexMissing, ProviderStop
from shared.flush import plan, turn
from shared.flush import state as flush_state
from shared.index import driver, fts

#: Free bytes below the index under which a backfill may fill the disk.
LOW_DISK_BYTES = 200 * 1024 * 1024

#: Watches that inotify must allow a user for a workspace of usual size.
MIN_WATCHES = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    #: ok, warning (works, but not fully) or problem (something asked for does not work).
    level: str
    what: str
    #: The command or step that fixes it; empty when nothing is to be done.
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        return {"level": self.level, "what": self.what, "fix": self.fix}


def examine_installation() -> Iterator[Finding]:
    """This process and machine: SQLite, sqlite-vec, numpy, the packages, inotify."""
    library = driver.library()
    with closing(library.connect(":memory:")) as connection:
        words = f"SQLite {library.sqlite_version} through {library.__name__}"
        no_fts = fts.missing(connection)
        if no_fts:
            yield Finding(
                level="problem",
                what=f"{words} has no FTS5: {no_fts}; keyword search is off",
                fix="pip install sqlean.py",
            )
        else:
            yield Finding(level="ok", what=f"{words}, with full-text search (FTS5)")
        problem = driver.load_vec(connection)
        if problem:
            yield Finding(
                level="warning",
                what=f"sqlite-vec is not there: {problem}; vectors are searched without it",
                fix="pip install sqlean.py sqlite-vec==0.1.9",
            )
        else:
            version = connection.execute("SELECT vec_version()").fetchone()[0]
            yield Finding(level="ok", what=f"sqlite-vec {version}")
    from importlib.util import find_spec

    if find_spec("numpy") is None:
        yield Finding(
            level="warning",
            what="numpy is not there; long-lived processes search vectors slowly",
            fix="pip install numpy",
        )
    yield from _packages()
    yield from _inotify()


def examine_agent(settings: AgentSettings) -> Iterator[Finding]:
    """One agent: workspace, index, provider, and what is behind."""
    name = f"agent {settings.agent}"
    if not settings.workspace.is_dir():
        yield Finding(
            level="problem",
            what=f"{name}: there is no folder {settings.workspace}",
            fix="memline --workspace DIR index",
        )
        return
    index_again = f"memline --agent {settings.agent} index"
    try:
        with driver.reading(settings.index_path) as reader:
            verdict = reader.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            yield Finding(level="problem", what=f"{name}: the index is damaged: {verdict}", fix=index_again)
    except IndexMissing:
        yield Finding(level="warning", what=f"{name}: nothing is indexed yet", fix=index_again)
    except IndexFault as error:
        yield Finding(level="problem", what=f"{name}: {error.message}", fix=error.hint or index_again)
        return
    status = collect(settings)
    body = status["status"]
    yield from _disk(settings)
    yield Finding(
        level="ok",
        what=f"{name}: {body['files']} files, {body['chunks']} chunks,"
        f" {body['vector']['ready']} vectors in {settings.index_path}",
    )
    for issue in status["scan"]["issues"]:
        yield Finding(level="warning", what=f"{name}: {issue}", fix="memline config show")
    if body["dirty"]:
        behind = body["behind"]
        yield Finding(
            level="warning",
            what=f"{name}: {behind['files']} files and {behind['vectors']} vectors are behind",
            fix=index_again,
        )
    if body["vector"]["failed"]:
        yield Finding(
            level="problem", what=f"{name}: {body['vector']['failed']} texts got no vector", fix=index_again
        )
    yield from _breakers(name, body)
    yield from _flush(name, settings)
    if body["provider"] == "none":
        explicit = body["requestedProvider"] not in ("auto", "none")
        yield Finding(
            level="problem" if explicit else "ok",
            what=f"{name}: keyword search only: {body['providerReason']}",
            fix=body["providerAction"] if explicit else "",
        )
    else:
        yield Finding(level="ok", what=f"{name}: embeds with {body['provider']} {body['model']}")


def _flush(name: str, settings: AgentSettings) -> Iterator[Finding]:
    """Whether sessions are written down before they are compacted, where somebody is set up to do it."""
    if not plan.is_on(settings):
        return
    folder = plan.folder_of(settings)
    try:
        if not settings.sessions.compaction.memory_flush.command:
            turn.endpoint_of(settings)
        sessions = flush_state.read(folder).sessions
    except ProviderStop as error:
        yield Finding(level="problem", what=f"{name}: {error.message}", fix=error.hint)
        return
    except OSError as error:
        yield Finding(
            level="problem", what=f"{name}: memory flush: {folder}: {error}", fix=f"ls -ld {folder}"
        )
        return
    now = time.time()
    lost = [each for each in sessions.values() if plan.is_given_up(each, now)]
    if not lost:
        yield Finding(level="ok", what=f"{name}: sessions are written down before they are compacted")
        return
    last = max(lost, key=lambda each: each.at)
    reason = last.reason
    if last.outcome == flush_state.ASKED:
        reason = "nobody took the turn; is memline up, or a worker on the queue flush, running?"
    yield Finding(
        level="warning",
        what=f"{name}: {len(lost)} sessions were not written down; the last: {reason}",
        fix="memline flush",
    )


def _breakers(name: str, body: dict[str, Any]) -> Iterator[Finding]:
    """What is not sent to a provider. With batches stopped, or with a fallback, all the work goes on."""
    for each in body["breakers"]:
        is_covered = each["mode"] == "batch" or bool(body["fallback"])
        if each["state"] != "closed" or each["pausedByHand"]:
            instead = " (requests go on)" if each["mode"] == "batch" else ""
            yield Finding(
                level="warning" if is_covered else "problem",
                what=f"{name}: no {each['mode']} to {each['provider']}{instead}: {each['reason']}",
                fix=each["action"],
            )
    was = body["fallback"]
    if was and body["identity"] and not any(each["provider"] == was["from"] for each in body["breakers"]):
        yield Finding(
            level="warning",
            what=f"{name}: the fallback {body['identity']['target']['provider']} stands in for"
            f" {was['from']}, which is well again",
            fix=f"memline index   (goes back to {was['from']})",
        )


def _disk(settings: AgentSettings) -> Iterator[Finding]:
    folder = settings.index_path.parent
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        yield Finding(
            level="problem", what=f"{folder} cannot be written", fix=f"chmod u+w {folder}, or use --home DIR"
        )
    status = os.statvfs(folder) if hasattr(os, "statvfs") else None
    if status and status.f_bavail * status.f_frsize < LOW_DISK_BYTES:
        free = status.f_bavail * status.f_frsize // 2**20
        yield Finding(
            level="warning",
            what=f"only {free} MiB are free below {folder}",
            fix="free space, or use --home DIR",
        )


def _packages() -> Iterator[Finding]:
    """The three packages have common names: another program's `shared` may come first on the path."""
    import producers
    import shared

    here = Path(producers.__file__).parent.parent
    found = Path(shared.__file__).parent.parent
    if here != found:
        yield Finding(
            level="problem",
            what=f"the package `shared` comes from {found}, not from Memline's own {here}",
            fix="install Memline in an environment of its own: pipx install memline",
        )


def _inotify() -> Iterator[Finding]:
    try:
        allowed = int(Path("/proc/sys/fs/inotify/max_user_watches").read_text())
    except (OSError, ValueError):
        return
    if allowed < MIN_WATCHES:
        yield Finding(
            level="warning",
            what=f"the system allows {allowed} inotify watches; large workspaces will be polled",
            fix="sudo sysctl fs.inotify.max_user_watches=524288",
        )
