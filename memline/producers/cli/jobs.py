"""`memline jobs`: show jobs; what changes them is in the table."""

from __future__ import annotations

import time
from typing import Any

import click

from memline.producers.actions.perform import perform
from memline.producers.calls.table import CALLS
from memline.producers.cli.options import Invocation, examples, print_result, print_table
from memline.producers.cli.table_commands import add_actions, asker, asks
from memline.shared.words import span


@click.group(epilog=examples("memline jobs ls", "memline jobs show 5f3a", "memline jobs pause 5f3a"))
def jobs() -> None:
    """List, show, pause, resume and cancel jobs: reindexes, first imports, model changes and backfills.

    A job is a row of the index, with a queue and without: it outlives every process. The older job goes
    first, and live edits before all of them.
    """


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
    rates = f"{found['filesPerSecond']:.0f} files, {found['textsPerSecond']:.0f} texts a second"
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
        words += f" of about {sign}{cost['expected']:.4f}"
    return words


add_actions(jobs, CALLS.values())
