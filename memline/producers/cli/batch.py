"""`memline batch`: list, show and cancel jobs of a provider's Batch API."""

from __future__ import annotations

import time
from typing import Any

import click

from memline.producers.calls.table import CALLS
from memline.producers.cli.options import Invocation, examples, print_result, print_table
from memline.producers.cli.table_commands import add_actions, asks
from memline.producers.reports import batch_jobs
from memline.producers.reports.batch_jobs import SHORT, listed, named
from memline.shared.words import span

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


@asks(CALLS["batch ls"], parent=batch)
def list_(invocation: Invocation, open: bool, limit: int | None, as_json: bool) -> None:
    """List the open batches and the last closed ones."""
    now = time.time()
    found = listed(invocation.agents(), limit=10 if limit is None else limit, only_open=open)
    jobs = [job.to_json(now) for job in found]
    if as_json or not jobs:
        return print_result(jobs, as_json, ["No open batches." if open else "No batches."])
    columns = ("batch", "agent", "job", "state", "provider says", "rows", "stored", "failed", "price", "age")
    print_table((*columns, "next poll"), (_cells(job, now, job["id"][:SHORT]) for job in jobs))


def _cells(job: dict[str, Any], now: float, name: str) -> tuple[str, ...]:
    counts = (job[key] for key in ("rows", "stored", "failed"))
    cells = (name, job["agentId"], job["jobId"], _state(job), job["providerState"], *counts, _price(job))
    next_poll = f"in {span(max(job['nextLookAt'] - now, 0))}" if job["nextLookAt"] else ""
    return (*("" if cell is None else str(cell) for cell in cells), span(job["ageSeconds"]), next_poll)


def _price(job: dict[str, Any]) -> str:
    """Write what a batch costs; empty where no price is known."""
    return "" if job["cost"] is None else f"${job['cost']:.4f}"


@asks(CALLS["batch show"], parent=batch)
def show(invocation: Invocation, batch: str, as_json: bool) -> None:
    """Print what is known of a batch."""
    job = named(invocation.agents(), batch).to_json(time.time())
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
        "Error": next((each["what"] for each in job["findings"]), job["error"]),
        "Try": job["action"],
    }
    print_result(job, as_json, (f"{label + ':':<15}{text}" for label, text in rows.items() if text))


@asks(CALLS["batch errors"], parent=batch)
def errors(invocation: Invocation, batch: str, as_json: bool) -> None:
    """Print the texts of a batch that got an error."""
    found = batch_jobs.error_rows(batch_jobs.named(invocation.agents(), batch))
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


add_actions(batch, CALLS.values())
