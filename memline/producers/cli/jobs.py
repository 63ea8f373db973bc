"""`memline jobs`, `batch` and `reindex`: show jobs and batches; the table has what changes them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from memline.producers.actions.perform import perform
from memline.producers.calls.table import CALLS
from memline.producers.cli.invocation import Invocation, print_result
from memline.producers.cli.options import print_table
from memline.producers.cli.table_commands import act_on, add_actions, asker, asks, group
from memline.producers.reports import batch_jobs
from memline.producers.reports.batch_jobs import SHORT, listed, named
from memline.producers.reports.estimate import estimate
from memline.shared.words import counted, span

if TYPE_CHECKING:
    from memline.producers.reports.estimate import Estimate


jobs = group(CALLS["jobs"])


@asks(CALLS["jobs ls"], parent=jobs)
def list_jobs(
    invocation: Invocation, open: bool = False, limit: int | None = None, as_json: bool = False
) -> None:
    """Print the jobs of the agents that are meant, as a table or as JSON."""
    found = perform(CALLS["jobs ls"], asker(invocation), open=open, limit=limit).value
    if as_json or not found:
        return print_result(found, as_json, ["No open jobs." if open else "No jobs."])
    now = time.time()
    columns = ("job", "agent", "what", "state", "files", "texts", "left", "cost", "by", "age")
    print_table(columns, (_cells(job, now) for job in found))


def _cells(job: dict[str, Any], now: float) -> tuple[str, ...]:
    files, texts, eta_s = job["files"], job["texts"], job["etaSeconds"]
    return (
        *(job[name] for name in ("id", "agentId", "name", "state")),
        f"{files['done']}/{files['total']}" if files["total"] else "",
        f"{texts['done']}/{texts['total']}",
        span(eta_s) if eta_s is not None else "",
        _cost(job),
        job["askedBy"],
        span(max(now - job["createdAt"], 0.0)),
    )


@asks(CALLS["jobs show"], parent=jobs)
def show_job(invocation: Invocation, job: str, as_json: bool) -> None:
    """Print what is known of a job. Raises JobUnknown."""
    found = perform(CALLS["jobs show"], asker(invocation), job=job).value
    files, texts = (counted(round(found[f"{each}sPerSecond"]), each) for each in ("file", "text"))
    rates = f"{files}/s, {texts}/s"
    rows = {
        "Job": found["id"],
        "Agent": found["agentId"],
        "What": found["name"],
        "Asked by": found["askedBy"],
        "State": found["state"],
        "Progress": found["progress"],
        "Rate": rates if found["state"] == "running" else "",
        "Tokens": f"{found['tokens']['done']} of {found['tokens']['total']}",
        "Cost": _cost(found),
        "Because": found["reason"],
        "Try": found["action"],
    }
    lines = [f"{label + ':':<12}{text}" for label, text in rows.items() if text]
    for each in found["history"]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each["at"]))
        by = f" by {each['by']}" if each["by"] else ""
        lines.append(f"{when} {each['event']}{by}")
    print_result(found, as_json, lines)


def _cost(job: dict[str, Any]) -> str:
    """Say what a job has cost and will have cost; empty when no price is known."""
    cost = job["cost"]
    if cost["soFar"] is None:
        return ""
    sign = "$" if cost["currency"] == "USD" else f"{cost['currency']} "
    words = f"{sign}{cost['soFar']:.4f}"
    if job["state"] in ("running", "paused") and cost["expected"] is not None:
        words += f", total about {sign}{cost['expected']:.4f}"
    return words


add_actions(jobs, CALLS.values())


batch = group(CALLS["batch"])


@asks(CALLS["batch ls"], parent=batch)
def list_(invocation: Invocation, open: bool, limit: int | None, as_json: bool) -> None:
    now = time.time()
    found = listed(invocation.agents(), limit=10 if limit is None else limit, only_open=open)
    jobs = [job.to_json(now) for job in found]
    if as_json or not jobs:
        return print_result(jobs, as_json, ["No open batches." if open else "No batches."])
    columns = ("batch", "agent", "job", "state", "provider says", "rows", "stored", "failed", "price", "age")
    print_table((*columns, "next poll"), (_batch_cells(job, now, job["id"][:SHORT]) for job in jobs))


def _batch_cells(job: dict[str, Any], now: float, name: str) -> tuple[str, ...]:
    counts = (job[key] for key in ("rows", "stored", "failed"))
    cells = (name, job["agentId"], job["jobId"], job["progress"], job["providerState"], *counts, _price(job))
    next_poll = f"in {span(max(job['nextLookAt'] - now, 0))}" if job["nextLookAt"] else ""
    return (*("" if cell is None else str(cell) for cell in cells), span(job["ageSeconds"]), next_poll)


def _price(job: dict[str, Any]) -> str:
    """Write what a batch costs; empty where no price is known."""
    return "" if job["cost"] is None else f"${job['cost']:.4f}"


@asks(CALLS["batch show"], parent=batch)
def show(invocation: Invocation, batch: str, as_json: bool) -> None:
    job = named(invocation.agents(), batch).to_json(time.time())
    texts = f"{job['rows']}: {job['stored']} stored, {job['failed']} failed, {job['textsLeft']} to come"
    done, failed = job["providerRowsDone"], job["providerRowsFailed"]
    texts += f" (the provider has done {done}, failed {failed})" if done or failed else ""
    rows = {
        "Batch": job["id"],
        "Agent": job["agentId"],
        "Provider": f"{job['provider']} {job['model']}",
        "Job": job["jobId"],
        "State": job["progress"],
        "Provider says": job["providerState"],
        "Texts": texts,
        "Price": _price(job),
        "Made": _moment(job["createdAt"]),
        "Submitted": _moment(job["submittedAt"]),
        "Polled": _moment(job["lookedAt"]),
        "Next poll": _moment(job["nextLookAt"]),
        "Deadline": _moment(job["deadline"]),
        "Closed": _moment(job["closedAt"]),
        "Cancel asked": _moment(job["cancelAsked"]),
        "Because": job["cancelReason"],
        "File": job["fileId"],
        "Attempts": job["attempts"],
        "Worker": job["owner"],
        "Error": next((each["what"] for each in job["findings"]), job["error"]),
        "Try": job["action"],
    }
    print_result(job, as_json, (f"{label + ':':<15}{text}" for label, text in rows.items() if text))


@asks(CALLS["batch errors"], parent=batch)
def errors(invocation: Invocation, batch: str, as_json: bool) -> None:
    found = batch_jobs.error_rows(batch_jobs.named(invocation.agents(), batch))
    rows = [{"textHash": each.text_hash, "path": each.path or None, "error": each.error} for each in found]
    lines = [f"{each.text_hash[:8]}  {each.path or '(no file has it now)'}  {each.error}" for each in found]
    print_result(rows, as_json, lines or ["No text of this batch got an error."])


def _moment(at: float | None) -> str | None:
    return None if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


add_actions(batch, CALLS.values())


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
    agents = tuple(invocation.enabled_agents())
    context = click.get_current_context()
    if plan + list + status + cancel > 1:
        raise click.UsageError("--plan, --list, --status and --cancel exclude each other")
    if job is not None and not (status or cancel):
        raise click.UsageError("JOB goes with --status or --cancel")
    if job is not None and cancel:
        return act_on(invocation, CALLS["jobs cancel"], as_json, job=job)
    if job is not None:
        context.invoke(show_job, job=job, as_json=as_json)
    elif list or status:
        context.invoke(list_jobs, open=status, as_json=as_json)
    elif plan:
        plans = [estimate(each, force=force, prices=invocation.settings.prices) for each in agents]
        lines = (line for plan in plans for line in _plan_lines(plan))
        print_result([plan.to_json() for plan in plans], as_json, lines)
    elif cancel:
        by = asker(invocation, agents)
        opened = perform(CALLS["jobs ls"], by, open=True).value
        done = [perform(CALLS["jobs cancel"], by, job=each["id"]) for each in opened]
        words = [line for each in done for line in each.words]
        print_result([each.value for each in done], as_json, words or ["No open jobs."])
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
