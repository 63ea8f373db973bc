"""`memline reindex`: ask the fleet for a reindex, follow or cancel it, or say what one would do and cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from memline.producers.actions import reindex_job
from memline.producers.actions.perform import audited
from memline.producers.calls.table import CALLS
from memline.producers.cli.jobs import list_jobs, show_job
from memline.producers.cli.options import Invocation, print_result
from memline.producers.cli.table_commands import act_on, asks
from memline.producers.reports.estimate import estimate
from memline.shared.index.jobs import asker as this_user
from memline.shared.words import counted

if TYPE_CHECKING:
    from memline.producers.reports.estimate import Estimate


@asks(CALLS["reindex"])
def reindex(
    invocation: Invocation,
    force: bool,
    plan: bool,
    list: bool,
    status: bool,
    cancel: bool,
    job: str | None,
    as_json: bool,
) -> int | None:
    """Ask for a reindex of every agent, or do what an option says instead."""
    agents, url = tuple(invocation.enabled_agents()), invocation.settings.queue.address
    context = click.get_current_context()
    if plan + list + status + cancel > 1:
        raise click.UsageError("--plan, --list, --status and --cancel exclude each other")
    if job is not None and not (status or cancel):
        raise click.UsageError("JOB goes with --status or --cancel")
    if job is not None and cancel:
        return act_on(invocation, CALLS["jobs cancel"], as_json, job=job)
    if job is not None:
        context.invoke(show_job, job=job, as_json=as_json)
    elif list:
        context.invoke(list_jobs, as_json=as_json)
    elif plan:
        plans = [estimate(each, force=force, prices=invocation.settings.prices) for each in agents]
        lines = (line for plan in plans for line in _plan_lines(plan))
        print_result([plan.to_json() for plan in plans], as_json, lines)
    elif status or cancel:
        if status:
            states = [reindex_job.progress(settings, invocation.settings.prices) for settings in agents]
            print_result(states, as_json, (line for each in states for line in _progress_lines(each)))
        else:
            with audited(CALLS["jobs cancel"], this_user()) as line:
                cancelled = [reindex_job.cancel_all(settings, url) for settings in agents]
                line["jobs"] = ", ".join(job for each in cancelled for job in each["ids"])
            print_result(cancelled, as_json, (line for each in cancelled for line in _cancelled_lines(each)))
    else:
        return act_on(invocation, CALLS["reindex"], as_json, agents=agents, force=force)
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
