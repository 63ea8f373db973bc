"""Find what is wrong with an agent's folder, disk and index file."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator

from memline.shared.errors import IndexCorrupt, IndexMissing, IndexTooNew, IndexUnwritable
from memline.shared.finding import NOTE, PROBLEM, WARNING
from memline.shared.findings import disk
from memline.shared.findings.facts import Facts
from memline.shared.findings.table import Seen, finding, met, seen
from memline.shared.index import ledger, meta
from memline.shared.note_names import is_markdown
from memline.shared.sources import outcomes
from memline.shared.sources.discover import (
    markdown_below,
    markdown_beside,
    misnamed_long_term,
    unlisted_issue,
)
from memline.shared.sources.paths import LONG_TERM, MEMORY, MemoryPaths, is_transcript
from memline.shared.words import counted

#: Faults that have a row of their own.
_FAULTS = {
    IndexCorrupt: "index_damaged",
    IndexTooNew: "index_newer",
    IndexUnwritable: "permissions",
    IndexMissing: "first_index_missing",
}


def _fault(facts: Facts, code: str) -> Iterator[Seen]:
    """Yield why the index cannot be used, if that is the matter of this row; and what reading met."""
    yield from met(facts.troubles, code)
    if facts.fault is not None and _FAULTS.get(type(facts.fault), "index_unusable") == code:
        yield seen(reason=facts.fault.message, action=facts.fault.hint or None)


@finding(
    PROBLEM,
    "there is no folder {folder}{kept}",
    action="memline --workspace DIR index",
)
def workspace_missing(facts: Facts) -> Iterator[Seen]:
    folder = facts.settings.workspace
    if not folder.is_dir():
        files = sum(count for _, count, _ in ledger.source_counts(facts.index)) if facts.index else 0
        if not files:
            origin = facts.settings.workspace_origin
            again = f"correct it ({origin}), or put the folder back, then: memline index"
            yield seen(folder=folder, kept="", action=again if ": agents" in origin else None)
            return
        kept = f"; answers come from what was indexed of it, {counted(files, 'file')}"
        action = "mount it or put it back; where it was moved: memline --workspace DIR index"
        yield seen(folder=folder, kept=kept, action=action)


@finding(
    WARNING,
    "{files} gone from {root}, which has none left, and kept in the index",
    action="put them back, or take them out of the index: memline index --accept-removals",
)
def root_emptied(facts: Facts) -> Iterator[Seen]:
    for each in facts.emptied:
        yield seen(files=counted(each.files, "file", "are"), root=each.root, subject=each.root)


@finding(
    WARNING,
    "memory search is disabled for this agent (memorySearch.enabled)",
    action="set memorySearch.enabled to true in the configuration, if the agent is to have a memory",
)
def memory_disabled(facts: Facts) -> Iterator[Seen]:
    if not facts.settings.memory.enabled:
        yield seen()


@finding(PROBLEM, "{reason}", action="memline index")
def index_damaged(facts: Facts) -> Iterator[Seen]:
    yield from _fault(facts, "index_damaged")


@finding(
    PROBLEM,
    "{reason}",
    action="install the newer release, or give this one a home of its own with --home DIR",
)
def index_newer(facts: Facts) -> Iterator[Seen]:
    yield from _fault(facts, "index_newer")


@finding(
    PROBLEM,
    "{reason}",
    action="memline doctor",
)
def index_unusable(facts: Facts) -> Iterator[Seen]:
    yield from _fault(facts, "index_unusable")


@finding(
    PROBLEM, "{reason}", action="give the user who runs Memline the right to write there, or use --home DIR"
)
def permissions(facts: Facts) -> Iterator[Seen]:
    yield from _fault(facts, "permissions")
    is_asked = facts.plan is not None and facts.fault is None and facts.settings.workspace.is_dir()
    if is_asked and (found := disk.trouble(facts.settings)):
        reason, action = found
        yield seen(reason=reason, action=action)


@finding(WARNING, "only {free} MiB are free below {folder}", action=disk.FREE_SPACE)
def disk_almost_full(facts: Facts) -> Iterator[Seen]:
    if facts.plan is None:
        return
    folder = disk.index_folder(facts.settings)
    free = disk.scarce_bytes(folder)
    if free is not None and not disk.is_full(free):
        yield seen(free=free // 2**20, folder=folder)


@finding(
    PROBLEM,
    "memline up or watch cannot go on with its {part}: {error}",
    action="memline doctor",
)
def following_fails(facts: Facts) -> Iterator[Seen]:
    errors = meta.get(facts.index, meta.LOOP_ERRORS, {}) if facts.index is not None else {}
    for part, entry in sorted(errors.items()):
        yield seen(part=part, error=entry["error"], action=entry["action"] or None)


@finding(
    WARNING,
    "nothing is indexed yet, {index} is missing",
    action="memline index",
)
def first_index_missing(facts: Facts) -> Iterator[Seen]:
    is_builtin = facts.settings.backend == "builtin" or facts.plan is not None
    is_missing = facts.index is None and (facts.fault is None or isinstance(facts.fault, IndexMissing))
    if is_missing and is_builtin and facts.settings.workspace.is_dir():
        found = seen(index=facts.settings.index_path)
        yield found.under_way() if facts.has_follower else found


@finding(PROBLEM, "{files} below {workspace} and no note: {why}")
def no_note_is_read(facts: Facts) -> Iterator[Seen]:
    if _has_notes(facts) or facts.plan is None:
        return
    workspace = str(facts.settings.workspace)
    if count := markdown_below(workspace):
        files = counted(count, "Markdown file")
        if left_out := sorted({reason for _, reason in facts.plan.discovery.left_out}):
            why = f"left out by {', '.join(left_out)}"
            action = shlex.join(["memline", "--workspace", workspace, "status", "--verbose"])
        else:
            why = "MEMORY.md and memory/ are read where there is one of them"
            action = _add(".")
        yield seen(files=files, workspace=workspace, why=why, action=action)


@finding(WARNING, "there is no Markdown in {workspace}", action="write a note: {note}")
def no_notes(facts: Facts) -> Iterator[Seen]:
    workspace = facts.settings.workspace
    if not _has_notes(facts) and workspace.is_dir() and not markdown_below(str(workspace)):
        yield seen(workspace=workspace, note=workspace / "MEMORY.md")


def _has_notes(facts: Facts) -> bool:
    """Tell whether notes are found, may be in a folder that cannot be listed, or are not looked for."""
    if facts.plan is None or MEMORY not in facts.settings.memory.sources:
        return True
    found = [each for each in facts.plan.discovery.files if not is_transcript(each.path)]
    return any(each.problem is None or each.problem.outcome == outcomes.UNREADABLE for each in found)


#: What to do about sessions of a program that are not there.
_OF_SESSIONS = "put them in their place, or change memorySearch.transcripts (memline config show)"


@finding(
    WARNING, "{issue}", action="put it in its place, or change memorySearch.extraPaths (memline config show)"
)
def source_missing(facts: Facts) -> Iterator[Seen]:
    if not facts.settings.workspace.is_dir():
        return
    if facts.plan is not None:
        issues = facts.plan.discovery.issues
    else:
        issues = tuple(unlisted_issue(each.path, each.reason) for each in facts.unread_folders)
    for issue in issues:
        # MEMORY.md may stand alone; that there is no note at all has a row of its own.
        if not issue.startswith(("no memory files found", "memory directory missing")):
            folder = re.match(r"the folder (.+) is not readable", issue)
            place = os.path.join(facts.settings.workspace, folder[1]) if folder else ""
            action = f"chmod u+rx {shlex.quote(place)}" if folder else None
            # A program that is searched and has no session yet.
            is_sessions = issue.startswith(("sessions of ", "sessions directory "))
            yield seen(issue=issue, action=_OF_SESSIONS if is_sessions else action)


def _add(path: str) -> str:
    return f"add {json.dumps(path, ensure_ascii=False)} to memorySearch.extraPaths (memline config path)"


@finding(
    NOTE,
    "beside MEMORY.md and memory/ {files} not read: {names}",
    action="name their folder in memorySearch.extraPaths (memline config path)",
)
def notes_beside(facts: Facts) -> Iterator[Seen]:
    # Of answers only one without a hit asks: the others do not pay for the walk.
    is_asked = any(each.code == "notes_beside" for each in facts.troubles)
    if MEMORY not in facts.settings.memory.sources or not (is_asked or (facts.plan and _has_notes(facts))):
        return
    paths = MemoryPaths.of(facts.settings)
    # What is meant to be the long-term note has a finding of its own, with another action.
    misnamed = misnamed_long_term(paths) if facts.plan else ""
    beside = markdown_beside(paths).without(misnamed)
    if beside.paths:
        workspace = str(facts.settings.workspace)
        yield seen(
            files="at least " * beside.is_cut + counted(len(beside.paths), "Markdown file", "are"),
            names=beside.names,
            action=_add(beside.folder(workspace)),
        )


@finding(
    NOTE,
    "{name} is not taken for the long-term note, which is called MEMORY.md",
    action="mv Memory.md MEMORY.md",
)
def long_term_misnamed(facts: Facts) -> Iterator[Seen]:
    if facts.plan is None or MEMORY not in facts.settings.memory.sources:
        return
    if name := misnamed_long_term(MemoryPaths.of(facts.settings)):
        old, new = (str(facts.settings.workspace / each) for each in (name, LONG_TERM[0]))
        yield seen(name=name, action=shlex.join(["mv", old, new]))


@finding(
    NOTE,
    "{links} not followed: {names}",
    action="put the files below the workspace, or name what the links lead to in memorySearch.extraPaths",
)
def links_skipped(facts: Facts) -> Iterator[Seen]:
    if facts.plan is None:
        return
    paths = MemoryPaths.of(facts.settings)
    links = [
        each
        for each in facts.plan.discovery.files
        if each.problem is not None
        and each.problem.outcome == outcomes.SYMLINK
        and os.path.exists(each.absolute)
        and paths.root_reading(each.absolute) is None
    ]
    if links:
        target = os.path.realpath(links[0].absolute)
        action = None
        if len(links) == 1 and (is_markdown(target) or os.path.isdir(target)):
            action = _add(target)
        names = ", ".join(each.path for each in links[:3]) + " …" * (len(links) > 3)
        yield seen(links=counted(len(links), "symbolic link", "are"), names=names, action=action)


@finding(
    NOTE,
    "an index that could not be used was moved aside, to {file}",
    action="delete it when nothing of it is wanted",
    subject="file",
)
def index_moved_aside(facts: Facts) -> Iterator[Seen]:
    is_complete = facts.index is not None and not facts.files_behind and not facts.model.missing
    if facts.plan is not None and not is_complete:
        path = facts.settings.index_path
        for file in sorted(path.parent.glob(f"{path.name}.corrupt-*")):
            if not file.name.endswith(("-wal", "-shm")):
                yield seen(file=file, subject=str(file))
