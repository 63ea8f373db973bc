"""Find what is wrong with an installation or an agent's memory, and name the command that fixes each."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from memline.producers.reports.status import collect, retriable_provider
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import IndexFault, IndexMissing, MemlineError, QueueError
from memline.shared.flush import flush_plan, flush_request
from memline.shared.flush import state as flush_state
from memline.shared.index import driver
from memline.shared.packages import install_command
from memline.shared.providers import LOCAL
from memline.shared.sources.discover import markdown_below
from memline.shared.words import counted

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
    try:
        library = driver.library()
    except IndexFault as error:
        yield _problem(error.message, error.hint)
        return
    with closing(library.connect(":memory:")) as connection:
        yield _ok(f"SQLite {library.sqlite_version} through {library.__name__}, with full-text search (FTS5)")
        if no_vec := driver.load_vec(connection):
            yield _warning(
                f"sqlite-vec is missing: {no_vec}; vectors are searched without it",
                install_command("sqlean.py", "sqlite-vec==0.1.9"),
            )
        else:
            yield _ok(f"sqlite-vec {connection.execute('SELECT vec_version()').fetchone()[0]}")
    if find_spec("numpy") is None:
        yield _warning(
            "numpy is missing; long-lived processes search vectors slowly", install_command("numpy")
        )
    try:
        watches = int(Path("/proc/sys/fs/inotify/max_user_watches").read_text())
    except (OSError, ValueError):
        return
    if watches < MIN_WATCHES:
        yield _warning(
            f"the system allows {watches} inotify watches; large workspaces will be polled",
            "sudo sysctl fs.inotify.max_user_watches=524288",
        )


def examine_fleet(settings: Settings, agents: Sequence[AgentSettings]) -> Iterator[Finding]:
    """Examine Redis, the workers that these agents need, and the dead messages; nothing without a queue."""
    if not settings.queue.url:
        return
    # 90 ms of imports, most of them redis, which only a fleet pays.
    from memline.shared.queue import depth
    from memline.shared.queue.processes import commands

    try:
        fleet = depth.read(settings.queue.address)
    except QueueError as error:
        yield _problem(f"queue: {error.message}", error.hint)
        return
    expected = commands(list(agents), with_api=False)
    queues = [queue for queue in fleet.queues if queue.role in expected]
    missing = [queue for queue in queues if not fleet.is_served(queue)]
    if len(missing) == len(queues):
        yield _warning("queue: no worker is alive", "memline fleet")
    else:
        for queue in missing:
            what = f"queue: no worker takes messages from {queue.name}"
            yield _warning(
                what, f"memline worker {queue.role}{f'   (on {queue.host})' if queue.host else ''}"
            )
        if not missing:
            yield _ok(f"queue: {counted(len(fleet.workers), 'worker')} in Redis, every queue is served")
    if fleet.worker_failure:
        yield _warning(
            f"queue: a worker ended in the last ten minutes: {fleet.worker_failure}", "see its log"
        )
    if dead := sum(queue.dead for queue in fleet.queues):
        yield _warning(f"queue: {counted(dead, 'message')} failed for good", "memline queue dead")


def examine_agent(settings: AgentSettings, *, deep: bool = False) -> Iterator[Finding]:
    """Examine one agent: workspace, index, provider, and what is behind.

    `deep` asks the provider for one vector, which may cost a little.
    """
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
    status = collect(settings, deep=deep)
    body = status["status"]
    vector, behind = body["vector"], body["behind"]
    if body.get("error"):
        yield _problem(f"{name}: {body['error']}", body["action"])
        return
    yield from _disk(settings)
    counts = f"{counted(body['files'], 'file')}, {counted(body['chunks'], 'chunk')}"
    counts += f", {counted(vector['ready'], 'vector')}"
    yield _ok(f"{name}: {counts} in {settings.index_path}")
    for issue in status["scan"]["issues"]:
        yield _warning(f"{name}: {issue}", "memline config show")
    if not status["scan"]["totalFiles"]:
        yield _no_notes(name, settings)
    if vector["enabled"] and settings.memory.store.vector.extension_path and vector["loadError"]:
        what = f"{name}: store.vector.extensionPath cannot be loaded: {vector['loadError']}"
        yield _problem(what, "memline config show; without extensionPath the one of Memline is used")
    if moving := body["moving"]:
        finding = _problem if moving["left"] else _warning
        yield finding(f"{name}: {moving['reason']}", moving["action"])
    if reached := body["ceiling"]:
        yield _warning(f"{name}: {reached['reason']}", reached["action"])
    if body["modelDiffers"]:
        yield _warning(f"{name}: {body['modelDiffers']}", index_again)
    elif body["dirty"]:
        late = f"{name}: {counted(behind['files'], 'file')} and {counted(behind['vectors'], 'vector')} behind"
        yield _warning(late, index_again)
    if vector["failed"]:
        yield _problem(f"{name}: {counted(vector['failed'], 'text')} got no vector", index_again)
    for each in body["loopErrors"]:
        what = f"{name}: memline up or watch cannot go on with its {each['part']}: {each['error']}"
        yield _problem(what, each["action"])
    yield from _breakers(name, body)
    yield from _flush(name, settings)
    yield from _provider(name, settings, status)
    if reranker := body["reranker"]:
        if reranker["error"]:
            yield _problem(f"{name}: hits are not reranked: {reranker['error']}", reranker["action"])
        else:
            yield _ok(f"{name}: reranks with {reranker['model']} by {reranker['engine']}")


def _provider(name: str, settings: AgentSettings, status: dict[str, Any]) -> Iterator[Finding]:
    """Say what embeds, whether it was asked, and which key is of no use."""
    body = status["status"]
    engine = body["engine"]
    if engine and engine["error"]:
        yield _problem(f"{name}: {engine['error']}", engine["action"])
        if LOCAL in (body["provider"], body["requestedProvider"]):
            return
    if body["provider"] != "none":
        probe = status.get("embeddingProbe")
        if probe and not probe["ok"]:
            yield _problem(f"{name}: {body['provider']} does not embed: {probe['error']}", probe["action"])
        # While a fallback embeds, the warning above names it.
        elif not (body["fallback"] and body["identity"]):
            asked = "asked for one vector" if probe else "not asked (memline doctor --deep)"
            by = f" by {engine['version']}" if engine else ""
            yield _ok(f"{name}: embeds with {body['provider']} {body['model']}{by}, {asked}")
        return
    what = f"{name}: keyword search only: {body['providerReason']}"
    is_explicit = body["requestedProvider"] not in ("auto", "none")
    if is_explicit:
        yield _problem(what, body["providerAction"])
    elif unused := sorted(key for key, text in settings.environment_keys.items() if text.strip()):
        keys = f"a key of {', '.join(unused)} is set and not used"
        yield _warning(f"{what}, and {keys}", "set memorySearch.provider to auto, or unset the key")
    else:
        yield _ok(what)


def _no_notes(name: str, settings: AgentSettings) -> Finding:
    """Say that there is nothing to search, and where Markdown is."""
    workspace = str(settings.workspace)
    if count := markdown_below(workspace):
        what = f"{name}: {counted(count, 'Markdown file')} below {workspace}, and none is read"
        return _problem(what, shlex.join(["memline", "--workspace", workspace, "add", workspace]))
    note = shlex.quote(str(settings.workspace / "MEMORY.md"))
    return _warning(f"{name}: there is no Markdown in {workspace}", f"echo 'A note.' > {note}")


def _flush(name: str, settings: AgentSettings) -> Iterator[Finding]:
    """Check that sessions are written down before they are compacted, where a flush is configured."""
    if not flush_plan.is_on(settings):
        return
    folder = flush_plan.folder_of(settings)
    try:
        if not settings.sessions.compaction.memory_flush.command:
            flush_request.endpoint_of(settings)
        sessions = flush_state.read(folder).sessions
    except MemlineError as error:
        yield _problem(f"{name}: {error.message}", error.hint)
        return
    except OSError as error:
        yield _problem(f"{name}: memory flush: {folder}: {error}", f"ls -ld {folder}")
        return
    now = time.time()
    lost = [session for session in sessions.values() if flush_plan.is_given_up(session, now)]
    if not lost:
        yield _ok(f"{name}: sessions are written down before they are compacted")
        return
    last = max(lost, key=lambda session: session.at)
    reason = last.reason
    if last.outcome == flush_state.ASKED:
        reason = "no worker took it; is memline up, or a worker of the queue flush, running?"
    yield _warning(
        f"{name}: {counted(len(lost), 'session')} not written down; the last: {reason}", "memline flush"
    )


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
