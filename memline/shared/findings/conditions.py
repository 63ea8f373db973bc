"""Find what is wrong with an agent's memory: a function for each code, which yields whole findings."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import NONE
from memline.shared.errors import IndexMissing
from memline.shared.finding import PROBLEM, Finding, note, of_error, problem, warning
from memline.shared.findings.facts import MOST_NAMED, Facts, sending
from memline.shared.index import ledger, meta
from memline.shared.index.hold import has_follower
from memline.shared.scheduling import health, jobs
from memline.shared.sources import outcomes
from memline.shared.sources.discover import markdown_beside
from memline.shared.sources.paths import MEMORY, is_transcript
from memline.shared.words import because, counted, span

DISABLED = warning(
    "memory_disabled",
    "memory search is disabled for this agent (memorySearch.enabled)",
    "set memorySearch.enabled to true in the configuration, if the agent is to have a memory",
)

#: Seconds of a rate limit above which an operator should know.
LONG_HOLD_S = 60.0

#: Free bytes below which nothing more can be stored.
FULL_DISK_BYTES = 1024 * 1024

#: What ends a pause, and what tries a provider now.
RESUME = "memline queue resume"


def workspace_missing(facts: Facts) -> Iterator[Finding]:
    """The folder of the notes is not there."""
    if facts.has_workspace:
        return
    what = f"there is no folder {facts.settings.workspace}"
    if files := sum(count for _, count, _ in ledger.source_counts(facts.index)):
        what += f"; answers come from what was indexed of it, {counted(files, 'file')}"
    named = facts.settings.workspace_origin or "its name"
    yield problem("workspace_missing", what, f"put it back, or correct {named}, then: memline index")


def root_emptied(facts: Facts) -> Iterator[Finding]:
    """A root that had files has none: they stay in the index until a person accepts that."""
    for each in facts.on_disk.emptied:
        what = f"{counted(each.files, 'file', 'are')} gone from {each.root}, which has none left, and kept in"
        action = "put them back, or take them out of the index: memline index --accept-removals"
        yield warning("root_emptied", f"{what} the index", action, each.root)


def index_unusable(facts: Facts) -> Iterator[Finding]:
    """The index is damaged, newer than this release, or of another program."""
    if facts.fault is not None and not isinstance(facts.fault, IndexMissing):
        yield of_error(facts.fault)


def not_writable(facts: Facts) -> Iterator[Finding]:
    """Nothing can be stored where the index is: no right, or no room."""
    # To who only reads what is up to date it is all the same.
    is_reading = facts.plan is None and not facts.on_disk.files_behind
    if is_reading or (facts.fault is not None and facts.fault.code == "not_writable"):
        return
    for file in (facts.settings.index_path, facts.settings.account_path):
        folder = next(each for each in file.parents if each.exists())
        for place in filter(Path.exists, (folder, file)):
            if not os.access(place, os.W_OK):
                action = f"let this user write to {place}, or use --home DIR"
                yield problem("not_writable", f"{place} is not writable", action)
                return
        status = os.statvfs(folder)
        if status.f_bavail * status.f_frsize < FULL_DISK_BYTES:
            what = f"the disk of {folder} is full: nothing can be stored"
            yield problem("not_writable", what, "free space there, or use --home DIR")
            return


def port_taken(facts: Facts) -> Iterator[Finding]:
    """`memline up --serve` cannot have its address, and tries again."""
    if fault := meta.get(facts.index, meta.SERVER_FAULT):
        what = f"memline up works and serves no HTTP: {fault['error']}"
        yield problem("port_taken", what, fault["action"], "HTTP server")


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
    workspace, is_empty = facts.settings.workspace, not has_notes(facts)
    beside = [*notes_beside(facts.settings)]
    if left_out := is_empty and sorted({reason for _, reason in facts.plan.discovery.left_out}):
        what = f"no Markdown in {workspace} is read: some is left out by {', '.join(left_out)}"
        action = shlex.join(["memline", "--workspace", str(workspace), "status", "--verbose"])
        yield problem("no_notes", what, action)
    elif is_empty and not beside:
        what = f"there is no Markdown in {workspace}"
        yield warning("no_notes", what, f"write a note: {workspace / 'MEMORY.md'}")
    for each in beside:
        yield replace(each, level=PROBLEM) if is_empty else each


def has_notes(facts: Facts) -> bool:
    """Tell whether notes are read, may be in a folder that cannot be listed, or are not looked for."""
    if facts.plan is None or MEMORY not in facts.settings.memory.sources:
        return True
    files, unlisted = facts.plan.discovery.files, facts.plan.discovery.unlisted
    are_read = any(each.problem is None and not is_transcript(each.path) for each in files)
    return are_read or bool(unlisted)


def has_unread_notes(facts: Facts) -> bool:
    """Tell whether no note is read, and some could be, or is left out by rules."""
    plan = facts.plan if not has_notes(facts) else None
    return plan is not None and bool(plan.discovery.left_out or markdown_beside(facts.settings))


def notes_beside(settings: AgentSettings) -> Iterator[Finding]:
    """Notes lie beside MEMORY.md and memory/."""
    if MEMORY in settings.memory.sources and (beside := markdown_beside(settings)):
        names = ", ".join(beside[:MOST_NAMED]) + " …" * (len(beside) > MOST_NAMED)
        files = counted(len(beside), "Markdown file", "are")
        what = f"beside MEMORY.md and memory/ {files} not read: {names}"
        folder = os.path.commonpath([os.path.join(settings.workspace, path) for path in beside])
        added = json.dumps(folder, ensure_ascii=False)
        yield note("no_notes", what, f"add {added} to memorySearch.extraPaths (memline config check)")


def source_missing(facts: Facts) -> Iterator[Finding]:
    """A folder, file or program that the configuration names is not there, or cannot be listed."""
    for issue in facts.plan.discovery.issues if facts.plan and facts.has_workspace else ():
        # MEMORY.md may stand alone; that there is no note at all is said by `no_notes`.
        if not issue.startswith(("no memory files found", "memory directory missing")):
            action = "put it in its place, or let it be read; or take it out of the configuration"
            if issue.startswith("the name of "):
                action = "rename it"
            elif issue.startswith("the folder "):
                action = "let it be read, or leave it out by memorySearch.exclude"
            yield warning("source_missing", issue, action)


def files_failed(facts: Facts) -> Iterator[Finding]:
    """Files could not be read or split."""
    if failed := ledger.problems(facts.index):
        names = "; ".join(f"{each.path}: {each.reason or each.outcome}" for each in failed[:MOST_NAMED])
        more = " … (memline status --verbose lists all)" * (len(failed) > MOST_NAMED)
        what, path = f"{counted(len(failed), 'file')} could not be read: {names}{more}", failed[0].path
        # Another program writes transcripts, and no rule leaves one out.
        mend = f"mend or remove {path}" if is_transcript(path) else outcomes.mend(failed[0].outcome, path)
        yield warning("files_failed", what, mend, path)


def files_behind(facts: Facts) -> Iterator[Finding]:
    """Files changed that the index does not have yet, or still has."""
    has_index = facts.has_index or facts.plan is None
    # `memline index` leaves the files of a paused job to it, and `job_paused` says how it goes on.
    behind = facts.on_disk.files_behind - jobs.count_waiting(facts.index, state=jobs.PAUSED)
    if behind > 0 and has_index and facts.has_workspace:
        removed = min(facts.on_disk.removed, behind)
        added = f"{counted(behind - removed, 'file', 'are')} not in the index yet" if behind > removed else ""
        gone = f"{counted(removed, 'removed file', 'are')} still in it" if removed else ""
        yield _to_index("files_behind", ", and ".join(filter(None, (added, gone))), facts)


def _to_index(code: str, what: str, facts: Facts) -> Finding:
    """Return the finding that something is to be indexed: a note where a process does that."""
    if has_follower(facts.settings.index_path):
        return note(code, what)
    return warning(code, what, facts.catch_up)


def _pending(count: int) -> str:
    """Say that so many vectors are pending, behind a reason; empty for none."""
    return f"; {counted(count, 'vector', 'are')} pending" if count else ""


def provider_unusable(facts: Facts) -> Iterator[Finding]:
    """The provider that was asked for has no key, no model or no engine."""
    choice = facts.choice
    if choice.identity is None and choice.requested not in ("auto", NONE):
        what = f"keyword search only: {choice.reason}{_pending(facts.model.missing)}"
        yield problem("provider_unusable", what, choice.action, choice.requested)


def no_provider(facts: Facts) -> Iterator[Finding]:
    """Nothing is configured that embeds, and nothing was asked for."""
    if facts.choice.identity is None and facts.choice.requested == "auto":
        yield note("no_provider", f"keyword search only: {facts.choice.reason}", facts.choice.action)


def paused(facts: Facts) -> Iterator[Finding]:
    """A person paused embedding, or a provider."""
    find, pending = (warning if facts.waiting else note), _pending(facts.waiting)
    if facts.is_paused:
        yield find("paused", health.PAUSED + pending, RESUME)
        return
    for (provider, mode), state in facts.breakers.items():
        if state.manual and mode == health.REQUESTS:
            what, action = f"{health.PAUSED} for {provider}{pending}", health.action_of(state, provider)
            yield find("paused", what, action, provider)


def ceiling_reached(facts: Facts) -> Iterator[Finding]:
    """The daily limit is reached."""
    if facts.refusal is not None:
        yield replace(facts.refusal, what=facts.refusal.what + _pending(facts.waiting))


def fallback_active(facts: Facts) -> Iterator[Finding]:
    """Another provider embeds instead of the one that was asked for."""
    if facts.fallback is not None:
        first, second = facts.fallback["from"], facts.provider or facts.choice.provider
        what = f"the fallback {second} embeds instead of {first}: {facts.fallback['reason']}"
        # Where the settings themselves do not lead to the first one, a run changes nothing.
        action = facts.choice.action if facts.choice.fallback_from else RESUME
        yield warning("fallback_active", what, action, first)


def breaker_open(facts: Facts) -> Iterator[Finding]:
    """The circuit breaker of a provider is open: an outage, or a definite no."""
    stopped = facts.fallback["from"] if facts.fallback else ""
    for (provider, mode), state in facts.breakers.items():
        is_batch = mode == health.BATCH
        # What a fallback stands in for is said by `fallback_active`.
        if not state.paused or (provider == stopped and not is_batch):
            continue
        is_in_use = facts.provider == provider and not is_batch
        wait_s = state.wait_s(facts.now)
        when = f"tried again in {span(wait_s)}" if wait_s > 0 else "tried again with the next text"
        what = f"the circuit breaker of {provider}{' for batches' * is_batch} is open, {when}: {state.reason}"
        what += "; requests go on" * is_batch + _pending(facts.waiting * is_in_use)
        # Without a process nothing tries again by itself.
        action = RESUME if facts.has_embedder or is_batch else facts.catch_up
        if mend := state.action:
            action = mend if "memline" in mend else f"{mend}; then: {action}"
        yield (problem if is_in_use else note)("breaker_open", what, action, provider)


def rate_limited(facts: Facts) -> Iterator[Finding]:
    """The provider asked to wait."""
    if wait_s := facts.hold_s:
        # The reason is gone after a request that was in flight meanwhile and worked.
        what = f"{facts.provider} is rate limited for {span(wait_s)}{because(facts.requests.reason)}"
        what += _pending(facts.waiting)
        if wait_s <= LONG_HOLD_S:
            # It is over before a person has typed anything.
            yield note("rate_limited", what, "", facts.provider)
        else:
            action = f"{RESUME}   (one request tries now, when the account allows more)"
            yield warning("rate_limited", what, action, facts.provider)


def model_differs(facts: Facts) -> Iterator[Finding]:
    """The settings choose another model than the index has."""
    if facts.model.reason:
        yield warning("model_differs", facts.model.reason, facts.catch_up, facts.choice.provider)


def text_refused(facts: Facts) -> Iterator[Finding]:
    """Texts got no vector, and will get none."""
    if facts.failed_texts:
        (_, reason, path), count = facts.failed_texts[0], facts.backlog.failed
        where = (path or "a text that no file has any more") + f" and {count - 1:,} more" * (count > 1)
        what = f"{counted(count, 'text')} got no vector: {reason} ({where})"
        action = f"change {path}, or leave it to keyword search" * bool(path)
        yield problem("text_refused", what, action, path)


def batch_blocked(facts: Facts) -> Iterator[Finding]:
    """A batch waits for the operator, or is tried again after an error."""
    for batch in facts.batches:
        if batch.error:
            state, find = ("cannot be collected", warning) if batch.action else ("is tried again", note)
            what = f"batch {batch.token[:8]} {state}: {batch.error}"
            yield find("batch_blocked", what, batch.action, batch.token)


def in_batch(facts: Facts) -> Iterator[Finding]:
    """Texts are at a provider's Batch API, or on their way."""
    if facts.batches:
        states = ", ".join(f"{each.job_id} {each.provider_state or each.state}" for each in facts.batches)
        what = f"{counted(facts.texts_in_batches, 'text', 'are')} in {counted(len(facts.batches), 'batch')}"
        yield note("in_batch", f"{what} at {facts.provider}: {states}", "memline jobs")


def job_paused(facts: Facts) -> Iterator[Finding]:
    """A person paused a job."""
    for job in jobs.open_jobs(facts.index):
        if job.state == jobs.PAUSED:
            action = f"memline jobs resume {job.token}"
            yield warning("job_paused", f"job {job.token} is paused", action, job.token)


def vectors_behind(facts: Facts) -> Iterator[Finding]:
    """Vectors are pending: nothing sends their texts, something does, or their job was cancelled."""
    if cancelled := facts.backlog.cancelled:
        what = f"{counted(cancelled, 'vector', 'were')} cancelled with their job"
        yield warning("vectors_behind", what, facts.catch_up)
    if not facts.waiting or facts.model.reason:
        return
    stop, what = sending(facts), f"{counted(facts.waiting, 'vector', 'are')} pending"
    if stop is None and facts.has_embedder:
        if reason := facts.requests.reason:
            # None while the next try is in flight.
            wait_s = round(facts.requests.wait_s(facts.now))
            what += f"; {reason}" + f"; goes on in {span(wait_s)}" * (wait_s > 0)
        yield note("vectors_behind", what)
    elif stop is None or stop.code in ("role_missing", "redis_unusable"):
        # Other reasons are findings of their own, with the count.
        yield warning("vectors_behind", what, facts.catch_up)


#: What is examined, the more urgent of a level first.
CHECKS = (
    workspace_missing,
    index_unusable,
    not_writable,
    root_emptied,
    port_taken,
    first_index_missing,
    no_notes,
    source_missing,
    provider_unusable,
    paused,
    ceiling_reached,
    fallback_active,
    breaker_open,
    rate_limited,
    model_differs,
    no_provider,
    job_paused,
    text_refused,
    batch_blocked,
    files_behind,
    vectors_behind,
    files_failed,
    in_batch,
)
