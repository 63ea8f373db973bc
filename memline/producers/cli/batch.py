"""`memline batch`: list, show and cancel jobs of a provider's Batch API."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from memline.producers.cli.options import (
    Invocation,
    command,
    examples,
    print_result,
    printable,
)
from memline.shared.words import counted

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_STATES = {
    "intent": "to be uploaded",
    "uploaded": "to be submitted",
    "submitted": "at the provider",
    "collecting": "being stored",
    "cleaning": "being cleaned up",
}


@click.group(
    epilog=examples(
        "memline batch ls",
        "memline batch ls --open --json",
        "memline batch show 5f3a",
        "memline batch cancel 5f3a",
        "memline batch collect 5f3a",
        "memline batch errors 5f3a",
    )
)
def batch() -> None:
    """List, show, collect and cancel jobs of a provider's Batch API, and list their errors.

    They are made when remote.batch.enabled is true and the backlog is worth one.
    """


@command(
    "memline batch ls",
    "memline batch ls --open",
    "memline batch ls --agent work --json",
    parent=batch,
    name="ls",
    json=True,
)
@click.option("--open", "only_open", is_flag=True, help="Only those that are not closed.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="Closed batches of each agent, at most.",
)
def list_(invocation: Invocation, only_open: bool, limit: int, as_json: bool) -> None:
    """List the open batches and the last closed ones."""
    from memline.producers.reports.batch_jobs import SHORT, listed

    now = time.time()
    jobs = [job.to_json(now) for job in listed(invocation.agents(), limit=limit, only_open=only_open)]
    if as_json or not jobs:
        return print_result(jobs, as_json, ["No open batches." if only_open else "No batches."])
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from memline.shared.words import span

    columns = ("batch", "agent", "job", "state", "provider says", "rows", "stored", "failed", "price", "age")
    table = Table(*columns, "next poll", box=SIMPLE_HEAD, pad_edge=False)
    for job in jobs:
        cells = [job["id"][:SHORT], job["agentId"], job["jobId"], _state(job), job["providerState"]]
        cells += [job["rows"], job["stored"], job["failed"], _price(job), span(job["ageSeconds"])]
        cells.append(f"in {span(max(job['nextLookAt'] - now, 0))}" if job["nextLookAt"] else "")
        # Text: words of a provider are no markup.
        table.add_row(*(Text("" if cell is None else printable(str(cell))) for cell in cells))
    # A list for a pipe is not folded to the width of a terminal that is not there.
    Console(width=None if Console().is_terminal else 200).print(table)


def _price(job: dict[str, Any]) -> str:
    """Write what a batch costs; empty where no price is known."""
    return "" if job["cost"] is None else f"${job['cost']:.4f}"


def _complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids of known batches; none when the configuration cannot be read."""
    from click.shell_completion import CompletionItem

    from memline.producers.cli.options import invocation_of
    from memline.producers.reports.batch_jobs import listed
    from memline.shared.errors import MemlineError

    try:
        jobs = listed(invocation_of(context).agents(), limit=100)
    except MemlineError:
        return []
    return [
        CompletionItem(job.batch.token, help=f"{job.provider} {job.batch.state}")
        for job in jobs
        if job.batch.token.startswith(incomplete)
    ]


@command("memline batch show 5f3a", "memline batch show batch_68a1 --json", parent=batch, json=True)
@click.argument("name", metavar="BATCH", shell_complete=_complete)
def show(invocation: Invocation, name: str, as_json: bool) -> None:
    """Show all that is known of a batch; BATCH is its id, the beginning of it, or the provider's job id."""
    from memline.producers.reports.batch_jobs import named

    job = named(invocation.agents(), name).to_json(time.time())
    texts = f"{job['rows']}: {job['stored']} stored, {job['failed']} failed, {job['textsLeft']} to come"
    done, failed = job["providerRowsDone"], job["providerRowsFailed"]
    texts += f" (the provider has done {done}, failed {failed})" if done or failed else ""
    rows = {
        "Batch": job["id"],
        "Agent": job["agentId"],
        "Provider": f"{job['provider']} {job['model']}",
        "Job": job["jobId"],
        "State": _state(job),
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
        "Error": job["error"],
        "Try": job["action"],
    }
    print_result(job, as_json, (f"{label + ':':<15}{text}" for label, text in rows.items() if text))


@command("memline batch cancel 5f3a", "memline batch cancel 5f3a --json", parent=batch, json=True)
@click.argument("name", metavar="BATCH", shell_complete=_complete)
def cancel(invocation: Invocation, name: str, as_json: bool) -> int:
    """Cancel a batch. The vectors that it brought are kept; its other texts are sent in requests.

    The batch worker tells the provider: `memline up`, a fleet, or the next `memline index`. Rows that the
    provider had finished by then are kept and paid for. Exit status 1 when the batch had ended already.
    """
    from memline.producers.reports import batch_jobs

    job, url = batch_jobs.named(invocation.agents(), name), invocation.settings.queue.address
    is_asked, token = batch_jobs.cancel(job, url), job.batch.token
    why = "its rows are being stored" if job.batch.is_open else f"it has ended ({job.batch.outcome})"
    lines = [f"{token} is not cancelled: {why}."]
    if is_asked:
        lines = [
            f"{token} will be cancelled: {counted(job.batch.stored, 'vector', 'are')} kept, and what the"
            f" provider has finished; the others of its {job.texts_left} texts are sent in requests."
        ]
        lines += [] if url else ["A running `memline up` does it; else: memline index"]
    print_result({"agentId": job.settings.agent, "id": token, "cancelAsked": is_asked}, as_json, lines)
    return 0 if is_asked else 1


@command("memline batch collect 5f3a", "memline batch collect 5f3a --json", parent=batch, json=True)
@click.argument("name", metavar="BATCH", shell_complete=_complete)
def collect(invocation: Invocation, name: str, as_json: bool) -> int:
    """Ask the provider about a batch now, without waiting for the next poll, and store what is finished.

    The batch worker does it: `memline up`, a fleet, or the next `memline index`. Exit status 1 when the batch
    has ended.
    """
    from memline.producers.reports import batch_jobs

    job = batch_jobs.named(invocation.agents(), name)
    is_due, token = batch_jobs.collect(job, invocation.settings.queue.address), job.batch.token
    words = (
        "is asked about now" if is_due else "is left alone: it has ended, or an answer about it is to come"
    )
    print_result({"agentId": job.settings.agent, "id": token, "due": is_due}, as_json, [f"{token} {words}."])
    return 0 if is_due else 1


@command("memline batch errors 5f3a", "memline batch errors 5f3a --json", parent=batch, json=True)
@click.argument("name", metavar="BATCH", shell_complete=_complete)
def errors(invocation: Invocation, name: str, as_json: bool) -> None:
    """List the texts of a batch that got an error in place of a vector, at most 1,000."""
    from memline.producers.reports import batch_jobs

    found = batch_jobs.error_rows(batch_jobs.named(invocation.agents(), name))
    rows = [{"textHash": each.text_hash, "path": each.path or None, "error": each.error} for each in found]
    lines = [f"{each.text_hash[:8]}  {each.path or '(no file has it now)'}  {each.error}" for each in found]
    print_result(rows, as_json, lines or ["No text of this batch got an error."])


def _state(job: dict[str, Any]) -> str:
    if job["outcome"]:
        return str(job["outcome"])
    words = _STATES.get(job["state"], job["state"])
    return f"{words}, to be cancelled" if job["cancelAsked"] else words


def _moment(at: float | None) -> str | None:
    return None if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
