"""`memline batch`: jobs of a provider's Batch API, listed, shown and cancelled."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from producers.cli.options import Invocation, examples, global_options, json_option, print_json

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Batches of an agent that are listed when nothing else is said.
USUAL_LIMIT = 10

_WORDS = {
    "filling": "being filled",
    "intent": "to be uploaded",
    "uploaded": "to be submitted",
    "submitted": "at the provider",
    "collecting": "taken in",
    "cleaning": "cleaned up",
}


@click.group(
    epilog=examples(
        "memline batch ls",
        "memline batch ls --open --json",
        "memline batch show 5f3a",
        "memline batch cancel 5f3a",
    )
)
def batch() -> None:
    """List, show and cancel jobs of a provider's Batch API.

    They are made when remote.batch.enabled is true and the backlog is worth one.
    """


@batch.command(
    "ls",
    epilog=examples("memline batch ls", "memline batch ls --open", "memline batch ls --agent work --json"),
)
@click.option("--open", "only_open", is_flag=True, help="Only those that are not over.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=USUAL_LIMIT,
    show_default=True,
    help="Batches that are over, of each agent, at most.",
)
@json_option
@global_options
def list_(invocation: Invocation, only_open: bool, limit: int, as_json: bool) -> None:
    """List the batches that are open and the last ones that are over."""
    from producers.batch_jobs import SHORT, listed

    jobs = listed(invocation.agents(), limit=limit, only_open=only_open)
    now = time.time()
    if as_json:
        print_json([job.to_json(now) for job in jobs])
        return
    if not jobs:
        click.echo("No open batches." if only_open else "No batches.")
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(
        *("batch", "agent", "job", "state", "provider says", "rows", "stored", "failed", "age", "next look"),
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for job in jobs:
        found = job.to_json(now)
        table.add_row(
            found["id"][:SHORT],
            found["agentId"],
            found["jobId"] or "",
            _state(found),
            found["providerState"] or "",
            *(str(found[name]) for name in ("rows", "stored", "failed")),
            _span(found["ageSeconds"]),
            "" if found["nextLookAt"] is None else f"in {_span(found['nextLookAt'] - now)}",
        )
    console = Console()
    # A list for a pipe is not folded to the width of a terminal that is not there.
    Console(width=None if console.is_terminal else 200).print(table)


def _complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of known batches; none when the configuration cannot be read."""
    from click.shell_completion import CompletionItem

    from producers.batch_jobs import listed
    from producers.cli.options import given_options
    from shared.errors import MemlineError

    try:
        jobs = listed(Invocation(options=given_options(context)).agents(), limit=100)
    except MemlineError:
        return []
    return [
        CompletionItem(job.batch.token, help=f"{job.provider} {job.batch.state}")
        for job in jobs
        if job.batch.token.startswith(incomplete)
    ]


@batch.command(epilog=examples("memline batch show 5f3a", "memline batch show batch_68a1 --json"))
@click.argument("name", metavar="BATCH", shell_complete=_complete)
@json_option
@global_options
def show(invocation: Invocation, name: str, as_json: bool) -> None:
    """Show all that is known of a batch; BATCH is its id, the beginning of it, or the provider's job id."""
    from producers.batch_jobs import named

    now = time.time()
    found = named(invocation.agents(), name).to_full_json(now)
    if as_json:
        print_json(found)
        return
    rows = [
        ("Batch", found["id"]),
        ("Agent", found["agentId"]),
        ("Provider", f"{found['provider']} {found['model']}"),
        ("Job", found["jobId"]),
        ("State", _state(found)),
        ("Provider says", found["providerState"]),
        ("Texts", _texts(found)),
        ("Made", _moment(found["createdAt"])),
        ("Submitted", _moment(found["submittedAt"])),
        ("Looked at", _moment(found["lookedAt"])),
        ("Next look", _moment(found["nextLookAt"])),
        ("Deadline", _moment(found["deadline"])),
        ("Over", _moment(found["closedAt"])),
        ("Cancel asked", _moment(found["cancelAsked"])),
        ("Because", found["cancelReason"]),
        ("File", found["fileId"]),
        ("Attempts", found["attempts"] or None),
        ("Worker", found["owner"]),
        ("Error", found["error"]),
        ("Try", found["action"]),
    ]
    for label, text in rows:
        if text:
            click.echo(f"{label + ':':<15}{text}")


@batch.command(epilog=examples("memline batch cancel 5f3a", "memline batch cancel 5f3a --json"))
@click.argument("name", metavar="BATCH", shell_complete=_complete)
@json_option
@global_options
def cancel(invocation: Invocation, name: str, as_json: bool) -> int:
    """End a batch early. What it has brought is kept; its other texts go out in requests.

    The provider is told by the batch worker: `memline up`, a fleet, or the next `memline index`. Rows that
    the provider had finished by then are kept and paid for. Exit status 1 when the batch was over already.
    """
    from producers.batch_jobs import cancel as ask
    from producers.batch_jobs import named

    job = named(invocation.agents(), name)
    url = invocation.settings.queue.url
    asked = ask(job, url)
    if as_json:
        print_json({"agentId": job.settings.agent, "id": job.batch.token, "cancelAsked": asked})
        return 0 if asked else 1
    short = job.batch.token
    if not asked:
        why = f"it is over ({job.batch.outcome})" if not job.batch.is_open else "its rows are being taken in"
        click.echo(f"{short} is not cancelled: {why}.")
        return 1
    click.echo(
        f"{short} will be cancelled: {job.batch.stored} vectors are kept, and what the provider has finished;"
        f" the others of its {job.texts_left} texts go out in requests."
    )
    if not url:
        click.echo("A running `memline up` does it; else: memline index")
    return 0


def _state(found: dict[str, Any]) -> str:
    if found["outcome"]:
        return str(found["outcome"])
    words = _WORDS.get(found["state"], found["state"])
    return f"{words}, to be cancelled" if found["cancelAsked"] else words


def _texts(found: dict[str, Any]) -> str:
    words = (
        f"{found['rows']}: {found['stored']} stored, {found['failed']} failed, {found['textsLeft']} to come"
    )
    done, failed = found["providerRowsDone"], found["providerRowsFailed"]
    return words + (f" (the provider has done {done}, failed {failed})" if done or failed else "")


def _moment(at: float | None) -> str | None:
    return None if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _span(seconds: float) -> str:
    if seconds < 0:
        return "0 s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
