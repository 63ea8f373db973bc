"""`memline reindex`: ask the fleet for a reindex, follow or cancel it, or say what one would do and cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from memline.producers.cli.jobs import change_job, complete_job, list_jobs, show_job
from memline.producers.cli.options import Invocation, command, echo, print_result
from memline.shared.words import counted

if TYPE_CHECKING:
    from memline.producers.reports.estimate import Estimate


@command(
    "memline reindex --plan",
    "memline reindex --plan --force --json",
    "MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0 memline reindex --agent main",
    "memline reindex --status",
    "memline reindex --status 5f3a",
    "memline reindex --list",
    "memline reindex --cancel",
    json=True,
)
@click.option("--force", is_flag=True, help="All files, not only those that changed.")
@click.option(
    "--plan", "what", flag_value="plan", help="Only say what it would do: files, texts, tokens, cost."
)
@click.option("--list", "what", flag_value="list", help="Only list jobs, as `memline jobs ls` does.")
@click.option("--status", "what", flag_value="status", help="Only say how far it is, and the time left.")
@click.option("--cancel", "what", flag_value="cancel", help="Send nothing more of it; what is indexed stays.")
@click.argument("job", required=False, shell_complete=complete_job)
def reindex(
    invocation: Invocation, force: bool, what: str | None, job: str | None, as_json: bool
) -> int | None:
    """Ask for a reindex, print the id of its job and return; JOB names one for --status and --cancel.

    A job is a row of the index: the fleet goes on with it after any restart, also of an emptied Redis. Its
    texts wait behind those of live edits and of older jobs. It needs queue.url; without a queue, `memline
    index` does the work and waits for it. `memline jobs` pauses, resumes and shows jobs; after --cancel,
    `memline reindex` or `memline index` goes on with what is missing.
    """
    agents, url = invocation.enabled_agents(), invocation.settings.queue.address
    if job is not None and what not in ("status", "cancel"):
        raise click.UsageError("JOB goes with --status or --cancel")
    if job is not None:
        if what == "cancel":
            return change_job(invocation, job, "cancel", as_json)
        show_job(invocation, job, as_json)
        return None
    if what == "list":
        list_jobs(invocation, as_json=as_json)
        return None
    if what == "plan":
        from memline.producers.reports.estimate import estimate

        plans = [estimate(each, force=force, prices=invocation.settings.prices) for each in agents]
        lines = (line for plan in plans for line in _plan_lines(plan))
        print_result([plan.to_json() for plan in plans], as_json, lines)
        return None
    from memline.producers.actions import reindex_job as jobs
    from memline.shared.errors import QueueError

    if what == "status":
        states = [jobs.progress(settings, invocation.settings.prices) for settings in agents]
        print_result(states, as_json, (line for each in states for line in _progress_lines(each)))
    elif what == "cancel":
        cancelled = [jobs.cancel_all(settings, url) for settings in agents]
        print_result(cancelled, as_json, (line for each in cancelled for line in _cancelled_lines(each)))
    elif not url:
        hint = f"memline index{' --force' if force else ''}"
        raise QueueError("there is no queue to put a reindex on (queue.url is not set)", hint=hint)
    else:
        started = []
        for settings in agents:
            made = jobs.start(settings, url, force=force)
            started.append(made)
            if not as_json:
                resumed = f", {made['takenUp']} cancelled texts are wanted again" if made["takenUp"] else ""
                echo(f"{made['agentId']}: job {made['id']} reads {made['files']} files{resumed}.")
                echo(f"  memline reindex --status {made['id']} says how far it is.")
            if made["warning"]:
                echo(f"{made['agentId']}: {made['warning']} (try: memline fleet)", err=True)
        print_result(started, as_json, ())
    return None


def _plan_lines(plan: Estimate) -> Iterator[str]:
    yield (
        f"{plan.agent}: {counted(plan.files, 'file')} to read, {counted(plan.chunks, 'chunk')};"
        f" {counted(plan.texts, 'text')} to embed ({plan.cached} more are cached),"
        f" about {counted(plan.tokens, 'token')}"
    )
    if plan.in_flight:
        yield f"  {counted(plan.in_flight, 'text', 'are')} at the provider already"
    for line in plan.words():
        yield f"  {line}"


def _cancelled_lines(done: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{done['agentId']}: {counted(done['vectors'], 'text')} will not be embedded, and"
        f" {counted(done['files'], 'file')} will not be read. memline reindex resumes them."
    )
    if done["batches"]:
        batches = counted(done["batches"], "batch", "are")
        yield f"  {batches} being cancelled at the provider (memline batch ls)."


def _progress_lines(state: dict[str, Any]) -> Iterator[str]:
    yield f"{state['agentId']}: {_progress_words(state)}"
    for job in state["jobs"]:
        yield f"  job {job['id']}, {job['name']}: {job['progress']}"


def _progress_words(state: dict[str, Any]) -> str:
    vectors = state["vectors"]
    if vectors is None:
        return "there is no index yet."
    pending = vectors["wanted"] + vectors["leased"]
    words = (
        f"{counted(state['filesBehind'], 'file', 'are')} still to be read, " if state["filesBehind"] else ""
    )
    words += (
        f"{vectors['ready']} of {counted(sum(vectors.values()) - vectors['backfill'], 'vector', 'are')} ready"
    )
    if pending:
        words += f", {pending} are pending ({vectors['backfill']} of them wait behind live edits)"
    if state["paused"]:
        words += ", paused"
    elif state["etaSeconds"] is not None:
        words += f", {state['vectorsPerSecond']:.0f} a second, about {state['etaSeconds']:.0f} s left"
    if vectors["failed"]:
        words += f", {vectors['failed']} failed"
    if vectors["paused"]:
        words += f", {vectors['paused']} wait for a job that is paused (memline jobs ls)"
    if vectors["cancelled"]:
        words += f", {vectors['cancelled']} are cancelled (memline reindex resumes them)"
    return words + "."
