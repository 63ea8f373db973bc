"""Find what is wrong with an installation or an agent's memory, and name the command that fixes each."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from memline.producers.reports.status import collect, retriable_provider
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexFault, IndexMissing, MemlineError
from memline.shared.flush import plan, request
from memline.shared.flush import state as flush_state
from memline.shared.index import chunks, driver

#: Free bytes below the index under which a backfill may fill the disk.
LOW_DISK_BYTES = 200 * 1024 * 1024

#: Watches that inotify must allow a user for a workspace of usual size.
MIN_WATCHES = 8_192


class Finding(NamedTuple):
    """Says how one thing is that was examined."""

    #: ok, warning (works, but not fully) or problem (something asked for does not work).
    level: str
    what: str
    #: The command or step that fixes it; empty when nothing is to be done.
    fix: str = ""


_ok, _warning, _problem = (partial(Finding, level) for level in ("ok", "warning", "problem"))


def examine_installation() -> Iterator[Finding]:
    """Examine this process and machine: SQLite, sqlite-vec, numpy, inotify."""
    library = driver.library()
    with closing(library.connect(":memory:")) as connection:
        name = f"SQLite {library.sqlite_version} through {library.__name__}"
        if no_fts := chunks.fts_missing(connection):
            yield _problem(f"{name} has no FTS5: {no_fts}; keyword search is off", "pip install sqlean.py")
        else:
            yield _ok(f"{name}, with full-text search (FTS5)")
        if no_vec := driver.load_vec(connection):
            yield _warning(
                f"sqlite-vec is missing: {no_vec}; vectors are searched without it",
                "pip install sqlean.py sqlite-vec==0.1.9",
            )
        else:
            yield _ok(f"sqlite-vec {connection.execute('SELECT vec_version()').fetchone()[0]}")
    if find_spec("numpy") is None:
        yield _warning("numpy is missing; long-lived processes search vectors slowly", "pip install numpy")
    try:
        watches = int(Path("/proc/sys/fs/inotify/max_user_watches").read_text())
    except (OSError, ValueError):
        return
    if watches < MIN_WATCHES:
        yield _warning(
            f"the system allows {watches} inotify watches; large workspaces will be polled",
            "sudo sysctl fs.inotify.max_user_watches=524288",
        )


def examine_agent(settings: AgentSettings) -> Iterator[Finding]:
    """Examine one agent: workspace, index, provider, and what is behind."""
    name = f"agent {settings.agent}"
    if not settings.workspace.is_dir():
        yield _problem(f"{name}: there is no folder {settings.workspace}", "memline --workspace DIR index")
        return
    workspace = ["--workspace", str(settings.workspace)] * (settings.workspace_origin == "--workspace")
    index_again = shlex.join(["memline", *workspace, "--agent", settings.agent, "index"])
    try:
        with driver.reading(settings.index_path) as reader:
            verdict = reader.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            yield _problem(f"{name}: the index is damaged: {verdict}", index_again)
    except IndexMissing:
        yield _warning(f"{name}: nothing is indexed yet, {settings.index_path} is missing", index_again)
    except IndexFault as error:
        yield _problem(f"{name}: {error.message}", error.hint or index_again)
        return
    status = collect(settings)
    body = status["status"]
    vector, behind = body["vector"], body["behind"]
    if body.get("error"):
        yield _problem(f"{name}: {body['error']}", body["action"])
        return
    yield from _disk(settings)
    counts = f"{body['files']} files, {body['chunks']} chunks, {vector['ready']} vectors"
    yield _ok(f"{name}: {counts} in {settings.index_path}")
    for issue in status["scan"]["issues"]:
        yield _warning(f"{name}: {issue}", "memline config show")
    if body["modelDiffers"]:
        yield _warning(f"{name}: {body['modelDiffers']}", index_again)
    elif body["dirty"]:
        late = f"{name}: {behind['files']} files and {behind['vectors']} vectors are behind"
        yield _warning(late, index_again)
    if vector["failed"]:
        yield _problem(f"{name}: {vector['failed']} texts got no vector", index_again)
    for each in body["loopErrors"]:
        what = f"{name}: memline up or watch cannot go on with its {each['part']}: {each['error']}"
        yield _problem(what, each["action"])
    yield from _breakers(name, body)
    yield from _flush(name, settings)
    if body["provider"] != "none":
        # While a fallback embeds, the warning above names it.
        if not (body["fallback"] and body["identity"]):
            yield _ok(f"{name}: embeds with {body['provider']} {body['model']}")
        return
    what = f"{name}: keyword search only: {body['providerReason']}"
    is_explicit = body["requestedProvider"] not in ("auto", "none")
    yield _problem(what, body["providerAction"]) if is_explicit else _ok(what)


def _flush(name: str, settings: AgentSettings) -> Iterator[Finding]:
    """Check that sessions are written down before they are compacted, where a flush is configured."""
    if not plan.is_on(settings):
        return
    folder = plan.folder_of(settings)
    try:
        if not settings.sessions.compaction.memory_flush.command:
            request.endpoint_of(settings)
        sessions = flush_state.read(folder).sessions
    except MemlineError as error:
        yield _problem(f"{name}: {error.message}", error.hint)
        return
    except OSError as error:
        yield _problem(f"{name}: memory flush: {folder}: {error}", f"ls -ld {folder}")
        return
    now = time.time()
    lost = [session for session in sessions.values() if plan.is_given_up(session, now)]
    if not lost:
        yield _ok(f"{name}: sessions are written down before they are compacted")
        return
    last = max(lost, key=lambda session: session.at)
    reason = last.reason
    if last.outcome == flush_state.ASKED:
        reason = "no worker took it; is memline up, or a worker of the queue flush, running?"
    yield _warning(f"{name}: {len(lost)} sessions were not written down; the last: {reason}", "memline flush")


def _breakers(name: str, body: dict[str, Any]) -> Iterator[Finding]:
    """Find what is not sent to a provider. With batches stopped, or with a fallback, all the work goes on."""
    fallback = body["fallback"]
    for each in body["breakers"]:
        if each["state"] == "closed" and not each["pausedByHand"]:
            continue
        is_batch = each["mode"] == "batch"
        what = f"{name}: no {each['mode']} to {each['provider']}{' (requests go on)' * is_batch}"
        finding = _warning if is_batch or fallback else _problem
        yield finding(f"{what}: {each['reason']}", each["action"])
    if fallback and body["identity"]:
        why, fix = f": {fallback['reason']}", "memline queue resume"
        if retriable := retriable_provider(body, time.time()):
            why, fix = ", which can be tried again", f"memline index   (switches back to {retriable})"
        embeds = f"{name}: the fallback {body['identity']['target']['provider']} embeds"
        yield _warning(f"{embeds} instead of {fallback['from']}{why}", fix)


def _disk(settings: AgentSettings) -> Iterator[Finding]:
    folder = settings.index_path.parent
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        yield _problem(f"{folder} is not writable", f"chmod u+w {folder}, or use --home DIR")
    status = os.statvfs(folder) if hasattr(os, "statvfs") else None
    if status and status.f_bavail * status.f_frsize < LOW_DISK_BYTES:
        free = status.f_bavail * status.f_frsize // 2**20
        yield _warning(f"only {free} MiB are free below {folder}", "free space, or use --home DIR")
