"""`memline jobs`: reindexes, first imports, model changes and backfills; pause, resume and cancel them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from memline.producers.cli.options import (
    Invocation,
    command,
    examples,
    invocation_of,
    print_result,
    printable,
)
from memline.shared.words import counted

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from memline.producers.reports.job_reports import JobReport


@click.group(
    epilog=examples(
        "memline jobs ls",
        "memline jobs ls --open --json",
        "memline jobs show 5f3a",
        "memline jobs pause 5f3a",
        "memline jobs resume 5f3a",
        "memline jobs cancel 5f3a",
    )
)
def jobs() -> None:
    """List, show, pause, resume and cancel jobs: reindexes, first imports, model changes and backfills.

    A job is a row of the index, with a queue and without: it outlives every process. The older job goes
    first, and live edits before all of them.
    """


@command(
    "memline jobs ls",
    "memline jobs ls --open",
    "memline jobs ls --agent work --json",
    parent=jobs,
    name="ls",
    json=True,
)
@click.option("--open", "only_open", is_flag=True, help="Only those that are running or paused.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="Ended jobs of each agent, at most.",
)
def list_(invocation: Invocation, only_open: bool, limit: int, as_json: bool) -> None:
    """List the open jobs and the last ones that ended."""
    list_jobs(invocation, only_open=only_open, limit=limit, as_json=as_json)


def list_jobs(
    invocation: Invocation, *, only_open: bool = False, limit: int = 10, as_json: bool = False
) -> None:
    """Print the jobs of the agents that are meant, as a table or as JSON."""
    from memline.producers.reports.job_reports import listed

    agents, prices, now = invocation.agents(), invocation.settings.prices, time.time()
    found = listed(agents, prices=prices, now=now, limit=limit, only_open=only_open)
    if as_json or not found:
        empty = ["No open jobs." if only_open else "No jobs."]
        return print_result([job.to_json() for job in found], as_json, empty)
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from memline.shared.words import span

    columns = ("job", "agent", "what", "state", "files", "texts", "left", "cost", "by")
    table = Table(*columns, "age", box=SIMPLE_HEAD, pad_edge=False)
    for job in found:
        files = f"{job.files_done}/{job.files}" if job.files else ""
        texts = f"{job.texts_done}/{job.texts_done + job.texts_left + job.texts_failed}"
        left = span(job.eta_s) if job.eta_s is not None else ""
        cells = [job.id, job.agent, job.name, job.state, files, texts, left, _cost(job), job.asked_by]
        cells.append(span(max(now - job.created_at, 0.0)))
        # Text: names of models and users are no markup.
        table.add_row(*(Text(printable(cell)) for cell in cells))
    # A list for a pipe is not folded to the width of a terminal that is not there.
    Console(width=None if Console().is_terminal else 200).print(table)


def complete_job(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the ids of known jobs; none when the configuration cannot be read."""
    from click.shell_completion import CompletionItem

    from memline.producers.reports.job_reports import listed
    from memline.shared.errors import MemlineError

    try:
        found = listed(invocation_of(context).agents(), prices={}, now=time.time(), limit=100)
    except MemlineError:
        return []
    return [
        CompletionItem(job.id, help=f"{job.name} {job.state}")
        for job in found
        if job.id.startswith(incomplete)
    ]


@command("memline jobs show 5f3a", "memline jobs show 5f3a --json", parent=jobs, json=True)
@click.argument("job", shell_complete=complete_job)
def show(invocation: Invocation, job: str, as_json: bool) -> None:
    """Show all that is known of a job; JOB is its id or the beginning of it."""
    show_job(invocation, job, as_json)


def show_job(invocation: Invocation, name: str, as_json: bool) -> None:
    """Print what is known of a job. Raises JobUnknown."""
    from memline.producers.reports.job_reports import named, report

    job = report(named(invocation.agents(), name), prices=invocation.settings.prices, now=time.time())
    rates = f"{job.files_per_second:.0f} files, {job.texts_per_second:.0f} texts a second"
    rows = {
        "Job": job.id,
        "Agent": job.agent,
        "What": job.name,
        "Asked by": job.asked_by,
        "State": job.state,
        "Progress": job.words(),
        "Rate": rates if job.state == "running" else "",
        "Tokens": f"{job.tokens_done} of {job.tokens_done + job.tokens_left}",
        "Cost": _cost(job),
        "Because": job.reason,
        "Try": job.action,
    }
    lines = [f"{label + ':':<12}{text}" for label, text in rows.items() if text]
    for at, event, by in job.history:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
        lines.append(f"{when} {event}{f' by {by}' if by else ''}")
    print_result(job.to_json(), as_json, lines)


@command("memline jobs pause 5f3a", parent=jobs, json=True)
@click.argument("job", shell_complete=complete_job)
def pause(invocation: Invocation, job: str, as_json: bool) -> int | None:
    """Read no more files of a job and send none of its texts until `resume`; live edits go on.

    Requests and batches that are at the provider already are still stored. Exit status 1 when the job is not
    running.
    """
    return change_job(invocation, job, "pause", as_json)


@command("memline jobs resume 5f3a", parent=jobs, json=True)
@click.argument("job", shell_complete=complete_job)
def resume(invocation: Invocation, job: str, as_json: bool) -> int | None:
    """Let a paused job go on. Exit status 1 when it is not paused."""
    return change_job(invocation, job, "resume", as_json)


@command("memline jobs cancel 5f3a", "memline jobs cancel 5f3a --json", parent=jobs, json=True)
@click.argument("job", shell_complete=complete_job)
def cancel(invocation: Invocation, job: str, as_json: bool) -> int | None:
    """End a job: nothing more of it is read or sent; what is indexed stays.

    Its texts stay known as missing: `memline reindex` or `memline index` takes them up. Batches that hold
    nothing else are cancelled at the provider. Exit status 1 when the job had ended already.
    """
    return change_job(invocation, job, "cancel", as_json)


def change_job(invocation: Invocation, name: str, verb: str, as_json: bool) -> int | None:
    """Pause, resume or cancel a job and say so; status 1 when its state does not allow it."""
    from memline.producers.actions import reindex_job
    from memline.producers.reports.job_reports import named

    done = reindex_job.change(named(invocation.agents(), name), verb, invocation.settings.queue.address)
    words = {"pause": "is paused", "resume": "goes on", "cancel": "is cancelled"}[verb]
    if not done["changed"]:
        words = f"was left alone, it is {done['state']}"
    elif verb == "cancel":
        texts, files = counted(done["vectors"], "text"), counted(done["files"], "file")
        words += f": {texts} will not be embedded, {files} will not be read"
    lines = [f"{done['agentId']}: job {done['id']} {words}."]
    if done.get("batches"):
        batches = counted(done["batches"], "batch", "are")
        lines.append(f"  {batches} being cancelled at the provider (memline batch ls).")
    print_result(done, as_json, lines)
    return None if done["changed"] else 1


def _cost(job: JobReport) -> str:
    """Say what a job has cost and will have cost; empty when no price is known."""
    if job.cost is None:
        return ""
    sign = "$" if job.currency == "USD" else f"{job.currency} "
    words = f"{sign}{job.cost:.4f}"
    if job.state in ("running", "paused") and job.cost_expected is not None:
        words += f" of about {sign}{job.cost_expected:.4f}"
    return words
