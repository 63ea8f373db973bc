"""Find what is wrong with an agent's folder, disk, index file and files."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator

from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexMissing
from memline.shared.finding import NOTE, WARNING, Finding, note, of_error, problem, warning
from memline.shared.findings.facts import MOST_NAMED, Facts, disk_trouble
from memline.shared.index import ledger, meta
from memline.shared.index.hold import has_follower
from memline.shared.scheduling import jobs
from memline.shared.sources import outcomes
from memline.shared.sources.discover import (
    markdown_beside,
)
from memline.shared.sources.paths import MEMORY, is_transcript
from memline.shared.words import counted

DISABLED = warning(
    "memory_disabled",
    "memory search is disabled for this agent (memorySearch.enabled)",
    "set memorySearch.enabled to true in the configuration, if the agent is to have a memory",
)


def workspace_missing(facts: Facts) -> Iterator[Finding]:
    """The folder of the notes is not there."""
    if facts.has_workspace:
        return
    what = f"there is no folder {facts.settings.workspace}"
    if files := sum(count for _, count, _ in ledger.source_counts(facts.index)):
        what += f"; answers come from what was indexed of it, {counted(files, 'file')}"
    named = f"correct {facts.settings.workspace_origin}" if facts.settings.workspace_origin else "name it"
    yield problem("workspace_missing", what, f"put it back, or {named}, then: memline index")


def root_emptied(facts: Facts) -> Iterator[Finding]:
    """A root that had files has none: they stay in the index until a person accepts that."""
    for each in facts.on_disk.emptied:
        what = f"{counted(each.files, 'file', 'are')} gone from {each.root}, which has none left, and kept in"
        action = "put them back, or take them out of the index: memline index --accept-removals"
        yield warning("root_emptied", f"{what} the index", action, each.root)


def index_unusable(facts: Facts) -> Iterator[Finding]:
    """The index is damaged, newer than this release, or of another program; or one was moved aside."""
    if facts.fault is not None and not isinstance(facts.fault, IndexMissing):
        yield of_error(facts.fault)
    is_complete = facts.has_index and not facts.on_disk.files_behind and not facts.model.missing
    path = facts.settings.index_path
    for file in sorted(path.parent.glob(f"{path.name}.corrupt-*")) if facts.plan and not is_complete else ():
        if not file.name.endswith(("-wal", "-shm")):
            what = f"an index that could not be used was moved aside, to {file}"
            yield note("index_unusable", what, "delete it when nothing of it is needed", str(file))


def not_writable(facts: Facts) -> Iterator[Finding]:
    """Nothing can be stored: no right, or no room."""
    is_known = facts.fault is not None and facts.fault.code == "not_writable"
    if facts.plan is not None and facts.has_workspace and not is_known:
        yield from filter(None, (disk_trouble(facts.settings),))


def port_taken(facts: Facts) -> Iterator[Finding]:
    """`memline up --serve` cannot have its address, and tries again."""
    if fault := meta.get(facts.index, meta.SERVER_FAULT):
        what = f"memline up works and serves no HTTP: {fault['error']}"
        yield problem("port_taken", what, fault["action"], "HTTP server")


def memory_disabled(facts: Facts) -> Iterator[Finding]:
    """The agent is to have no memory."""
    if not facts.settings.memory.enabled:
        yield DISABLED


def first_index_missing(facts: Facts) -> Iterator[Finding]:
    """Nothing has been indexed yet."""
    is_missing = not facts.has_index and (facts.fault is None or isinstance(facts.fault, IndexMissing))
    is_asked = facts.settings.content.memory.backend == "builtin" or facts.plan is not None
    if is_missing and is_asked and facts.has_workspace:
        what = f"nothing is indexed yet, {facts.settings.index_path} is missing"
        yield _to_index("first_index_missing", what, facts)


def no_notes(facts: Facts) -> Iterator[Finding]:
    """There is no note, or notes are there that are not read."""
    if facts.plan is None or not facts.has_workspace or MEMORY not in facts.settings.memory.sources:
        return
    workspace = facts.settings.workspace
    if has_notes(facts):
        yield from notes_beside(facts.settings)
    elif unread := unread_notes(facts):
        what = f"{counted(unread, 'Markdown file')} below {workspace} and no note:"
        what += " MEMORY.md and memory/ are read where there is one of them"
        action = _add(".")
        if left_out := sorted({reason for _, reason in facts.plan.discovery.left_out}):
            what = f"no Markdown in {workspace} is read: some is left out by {', '.join(left_out)}"
            action = shlex.join(["memline", "--workspace", str(workspace), "status", "--verbose"])
        yield problem("no_notes", what, action)
    else:
        what = f"there is no Markdown in {workspace}"
        yield warning("no_notes", what, f"write a note: {workspace / 'MEMORY.md'}")


def has_notes(facts: Facts) -> bool:
    """Tell whether notes are read, may be in a folder that cannot be listed, or are not looked for."""
    if facts.plan is None or MEMORY not in facts.settings.memory.sources:
        return True
    files, unlisted = facts.plan.discovery.files, facts.plan.discovery.unlisted
    are_read = any(each.problem is None and not is_transcript(each.path) for each in files)
    return are_read or bool(unlisted)


def unread_notes(facts: Facts) -> int:
    """Count what could be notes of the workspace, or is left out by rules, while no note is read."""
    if facts.plan is None or has_notes(facts):
        return 0
    return len(facts.plan.discovery.left_out or markdown_beside(facts.settings))


def notes_beside(settings: AgentSettings) -> Iterator[Finding]:
    """Notes lie beside MEMORY.md and memory/."""
    workspace = settings.workspace
    if MEMORY not in settings.memory.sources:
        return
    if beside := markdown_beside(settings):
        names = ", ".join(beside[:MOST_NAMED]) + " …" * (len(beside) > MOST_NAMED)
        files = counted(len(beside), "Markdown file", "are")
        folder = os.path.commonpath([os.path.join(workspace, path) for path in beside])
        yield note("no_notes", f"beside MEMORY.md and memory/ {files} not read: {names}", _add(folder))


def _add(path: str) -> str:
    return f"add {json.dumps(path, ensure_ascii=False)} to memorySearch.extraPaths (memline config check)"


def source_missing(facts: Facts) -> Iterator[Finding]:
    """A folder, file or program that the configuration names is not there, or cannot be listed."""
    if not facts.has_workspace:
        return
    for issue in facts.plan.discovery.issues if facts.plan else ():
        # MEMORY.md may stand alone; that there is no note at all is said by `no_notes`.
        if not issue.startswith(("no memory files found", "memory directory missing")):
            key = "transcripts" if issue.startswith("sessions of ") else "extraPaths"
            action = f"put it in its place, or let it be read; or change memorySearch.{key}"
            if issue.startswith("the name "):
                action = "rename it"
            yield warning("source_missing", issue, action)


def files_failed(facts: Facts) -> Iterator[Finding]:
    """Files could not be read or split."""
    if failed := ledger.problems(facts.index):
        first, is_more = failed[0], len(failed) > MOST_NAMED
        names = "; ".join(f"{each.path}: {each.reason or each.outcome}" for each in failed[:MOST_NAMED])
        what = f"{counted(len(failed), 'file')} could not be read: {names}{' …' * is_more}"
        # Another program writes transcripts, and no rule leaves one out.
        mend = f"mend or remove {first.path}"
        if not is_transcript(first.path):
            mend = outcomes.mending(first.outcome, first.path)
        mend += "   (memline status --verbose lists all)" * is_more
        yield warning("files_failed", what, mend, first.path)


def files_behind(facts: Facts) -> Iterator[Finding]:
    """Files changed that the index does not have yet, or still has."""
    # `memline index` leaves the files of a paused job to it, and `job_paused` says how it goes on.
    held, has_index = (
        jobs.count_waiting(facts.index, state=jobs.PAUSED),
        facts.has_index or facts.plan is None,
    )
    behind = max(0, facts.on_disk.files_behind - held)
    if behind and has_index and facts.has_workspace:
        removed = min(facts.on_disk.removed, behind)
        added = f"{counted(behind - removed, 'file', 'are')} not in the index yet" if behind > removed else ""
        gone = f"{counted(removed, 'removed file', 'are')} still in it" if removed else ""
        yield _to_index("files_behind", ", and ".join(filter(None, (added, gone))), facts)


def _to_index(code: str, what: str, facts: Facts) -> Finding:
    """Return the finding that something is to be indexed: a note where a process does that."""
    level, action = (NOTE, "") if has_follower(facts.settings.index_path) else (WARNING, facts.catch_up)
    return Finding(code=code, level=level, what=what, action=action)
