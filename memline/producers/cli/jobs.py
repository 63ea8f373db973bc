"""`memline jobs`, `batch` and `reindex`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from memline.producers.actions import verbs
from memline.producers.actions.verbs import VERBS
from memline.producers.cli.invocation import Invocation, print_result
from memline.producers.cli.options import AS_JSON, command, group, print_table
from memline.producers.cli.table_commands import act_on, asker
from memline.producers.reports.batch_jobs import SHORT, listed, named
from memline.producers.reports.estimate import estimate
from memline.shared.words import counted, span

if TYPE_CHECKING:
    from memline.producers.reports.estimate import Estimate

#: What a job, and a batch, is named by.
_JOB = click.argument("job")
_BATCH = click.argument("batch")
_LIMIT = click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="Ended ones of each agent, at most.",
)


@group("memline jobs ls", "memline jobs show 5f3a", "memline jobs pause 5f3a")
def jobs(_: Invocation) -> None:
    """List, show, pause, resume and cancel jobs: reindexes, first imports, model changes and backfills.

    A job is a row of the index, with a queue and without: it outlives every process. The older job goes
    first, and live edits before all of them.
    """


@command(
    "memline jobs ls", "memline jobs ls --open", "memline jobs ls --agent work --json", parent=jobs, name="ls"
)
@click.option("--open", is_flag=True, help="Only those that are running or paused.")
@_LIMIT
@AS_JSON
def list_jobs(invocation: Invocation, open: bool, limit: int, as_json: bool) -> None:
    """List the open jobs and the last ones that ended."""
    found = verbs.list_jobs(asker(invocation), open=open, limit=limit).value
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


@command("memline jobs show 5f3a", "memline jobs show 5f3a --json", parent=jobs, name="show")
@_JOB
@AS_JSON
def show_job(invocation: Invocation, job: str, as_json: bool) -> None:
    """Show all that is known of a job; JOB is its id or the beginning of it."""
    found = verbs.show_job(asker(invocation), job).value
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


@command("memline jobs pause 5f3a", parent=jobs)
@_JOB
@AS_JSON
def pause(invocation: Invocation, job: str, as_json: bool) -> int | None:
    """Read no more files of a job and send none of its texts until `resume`; live edits go on.

    Requests and batches that are at the provider already are still stored. Exit status 1 when the job is not
    running.
    """
    return act_on(invocation, VERBS["jobs pause"], as_json, job=job)


@command("memline jobs resume 5f3a", parent=jobs)
@_JOB
@AS_JSON
def resume(invocation: Invocation, job: str, as_json: bool) -> int | None:
    """Let a paused job go on. Exit status 1 when it is not paused."""
    return act_on(invocation, VERBS["jobs resume"], as_json, job=job)


@command("memline jobs cancel 5f3a", "memline jobs cancel 5f3a --json", parent=jobs)
@_JOB
@AS_JSON
def cancel(invocation: Invocation, job: str, as_json: bool) -> int | None:
    """End a job: nothing more of it is read or sent; what is indexed stays.

    Its texts stay known as missing: `memline reindex` or `memline index` takes them up. Batches that hold
    nothing else are cancelled at the provider. Exit status 1 when the job had ended already.
    """
    return act_on(invocation, VERBS["jobs cancel"], as_json, job=job)


@group("memline batch ls", "memline batch show 5f3a", "memline batch cancel 5f3a")
def batch(_: Invocation) -> None:
    """List, show, collect and cancel jobs of a provider's Batch API, and list their errors.

    They are made when remote.batch.enabled is true and the backlog is worth one.
    """


@command(
    "memline batch ls",
    "memline batch ls --open",
    "memline batch ls --agent work --json",
    parent=batch,
    name="ls",
)
@click.option("--open", is_flag=True, help="Only those that are not closed.")
@_LIMIT
@AS_JSON
def list_batches(invocation: Invocation, open: bool, limit: int, as_json: bool) -> None:
    """List the open batches and the last closed ones."""
    now = time.time()
    found = listed(invocation.agents(), limit=limit, only_open=open)
    jobs = [job.to_json(now) for job in found]
    if as_json or not jobs:
        return print_result(jobs, as_json, ["No open batches." if open else "No batches."])
    columns = ("batch", "agent", "job", "state", "provider says", "rows", "stored", "age")
    print_table((*columns, "next poll"), (_batch_cells(job, now, job["id"][:SHORT]) for job in jobs))


def _batch_cells(job: dict[str, Any], now: float, name: str) -> tuple[str, ...]:
    counts = (job[key] for key in ("rows", "stored"))
    cells = (name, job["agentId"], job["jobId"], job["progress"], job["providerState"], *counts)
    next_poll = f"in {span(max(job['nextLookAt'] - now, 0))}" if job["nextLookAt"] else ""
    return (*("" if cell is None else str(cell) for cell in cells), span(job["ageSeconds"]), next_poll)


@command("memline batch show 5f3a", "memline batch show batch_68a1 --json", parent=batch)
@_BATCH
@AS_JSON
def show(invocation: Invocation, batch: str, as_json: bool) -> None:
    """Show all that is known of a batch; BATCH is its id, the beginning of it, or the provider's job id."""
    job = named(invocation.agents(), batch).to_json(time.time())
    texts = f"{job['rows']}: {job['stored']} stored, {job['textsLeft']} to come"
    done = job["providerRowsDone"]
    texts += f" (the provider has done {done})" if done else ""
    rows = {
        "Batch": job["id"],
        "Agent": job["agentId"],
        "Provider": f"{job['provider']} {job['model']}",
        "Job": job["jobId"],
        "State": job["progress"],
        "Provider says": job["providerState"],
        "Texts": texts,
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
        "Error": next((each["what"] for each in job["findings"]), job["error"]),
        "Try": job["action"],
    }
    print_result(job, as_json, (f"{label + ':':<15}{text}" for label, text in rows.items() if text))


def _moment(at: float | None) -> str | None:
    return None if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


@command("memline batch cancel 5f3a", "memline batch cancel 5f3a --json", parent=batch, name="cancel")
@_BATCH
@AS_JSON
def cancel_batch(invocation: Invocation, batch: str, as_json: bool) -> int | None:
    """Cancel a batch. The vectors that it brought are kept; its other texts are sent in requests.

    The batch worker tells the provider: `memline up`, a fleet, or the next `memline index`. Rows that the
    provider had finished by then are kept and paid for. Exit status 1 when the batch had ended already.
    """
    return act_on(invocation, VERBS["batch cancel"], as_json, batch=batch)


@command("memline batch collect 5f3a", "memline batch collect 5f3a --json", parent=batch)
@_BATCH
@AS_JSON
def collect(invocation: Invocation, batch: str, as_json: bool) -> int | None:
    """Ask the provider about a batch now, without waiting for the next poll, and store what is finished.

    The batch worker does it: `memline up`, a fleet, or the next `memline index`. Exit status 1 when the batch
    has ended.
    """
    return act_on(invocation, VERBS["batch collect"], as_json, batch=batch)


@command(
    "memline reindex --plan",
    "memline reindex --plan --force --json",
    "MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0 memline reindex --agent main",
)
@click.option("--force", is_flag=True, help="All files, not only those that changed.")
@click.option("--plan", is_flag=True, help="Only say what it would do: files, texts, tokens, cost.")
@AS_JSON
def reindex(invocation: Invocation, force: bool, plan: bool, as_json: bool) -> int | None:
    """Ask for a reindex, print the id of its job and return.

    A job is a row of the index: the fleet goes on with it after any restart, also with an emptied Redis. Its
    texts wait behind those of live edits and of older jobs. It needs queue.url; without a queue, `memline
    index` does the work and waits for it. `memline jobs` shows, pauses, resumes and cancels jobs.
    """
    agents = tuple(invocation.enabled_agents())
    if not plan:
        return act_on(invocation, VERBS["reindex"], as_json, agents=agents, force=force)
    plans = [estimate(each, force=force, prices=invocation.settings.prices) for each in agents]
    lines = (line for plan in plans for line in _plan_lines(plan))
    print_result([plan.to_json() for plan in plans], as_json, lines)
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
