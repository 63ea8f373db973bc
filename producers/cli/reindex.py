"""`memline reindex`: ask the fleet for a reindex, follow or cancel it, or say what one would do and cost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from memline.producers.cli.options import Invocation, command, echo, once_a_minute, print_result

if TYPE_CHECKING:
    from memline.producers.reports.estimate import Estimate


@command(
    "memline reindex --plan",
    "memline reindex --plan --force --json",
    "MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0 memline reindex --agent main",
    "memline reindex --status",
    "memline reindex --cancel",
    json=True,
)
@click.option("--force", is_flag=True, help="All files, not only those that changed.")
@click.option(
    "--plan", "what", flag_value="plan", help="Only say what it would do: files, texts, tokens, cost."
)
@click.option("--status", "what", flag_value="status", help="Only say how far it is, and the time left.")
@click.option("--cancel", "what", flag_value="cancel", help="Send nothing more of it; what is indexed stays.")
def reindex(invocation: Invocation, force: bool, what: str | None, as_json: bool) -> None:
    """Put a reindex on the queue and return; a long list of files is handed over window by window.

    Its texts wait behind those of live edits. It needs queue.url; without a queue, `memline index` does the
    work and waits for it. `memline queue pause` and `resume` stop and restart the sending of texts; after
    --cancel, `memline reindex` or `memline index` goes on with what is missing.
    """
    agents, url = invocation.enabled_agents(), invocation.settings.queue.address
    if what == "plan":
        from memline.producers.reports.estimate import estimate

        plans = [estimate(each, force=force, prices=invocation.settings.prices) for each in agents]
        lines = (line for plan in plans for line in _plan_lines(plan))
        return print_result([plan.to_json() for plan in plans], as_json, lines)
    from memline.producers.runs import reindex as jobs
    from memline.shared.errors import QueueError

    if what == "status":
        states = [jobs.progress(settings) for settings in agents]
        print_result(states, as_json, (f"{each['agentId']}: {_progress_words(each)}" for each in states))
    elif what == "cancel":
        cancelled = [jobs.cancel(settings, url) for settings in agents]
        print_result(cancelled, as_json, (line for each in cancelled for line in _cancelled_lines(each)))
    elif not url:
        hint = f"memline index{' --force' if force else ''}"
        raise QueueError("there is no queue to put a reindex on (queue.url is not set)", hint=hint)
    else:
        started = []
        for settings in agents:
            job = jobs.start(settings, url, force=force, on_progress=_arrivals(settings.agent))
            started.append(job)
            # At once: the next agent may take minutes.
            if not as_json:
                resumed = f", {job['takenUp']} cancelled texts are wanted again" if job["takenUp"] else ""
                echo(f"{job['agentId']}: {job['files']} files are on the queue{resumed}.")
                echo("  memline reindex --status says how far they are.")
        print_result(started, as_json, ())


def _arrivals(agent: str) -> Callable[[int, int], None]:
    """Give a function that shows a moving line of arrivals; without a terminal it prints one a minute."""
    say = once_a_minute()

    def show(done: int, total: int) -> None:
        text = f"{agent}: {done} of {total} files have arrived in the index"
        if sys.stderr.isatty():
            click.echo(f"\r{text}", nl=False, err=True)
        else:
            say(text)

    return show


def _plan_lines(plan: Estimate) -> Iterator[str]:
    yield (
        f"{plan.agent}: {plan.files} files to read, {plan.chunks} chunks; {plan.texts} texts to embed"
        f" ({plan.cached} more are cached), about {plan.tokens} tokens"
    )
    if plan.in_flight:
        yield f"  {plan.in_flight} texts are at the provider already"
    for line in plan.words():
        yield f"  {line}"


def _cancelled_lines(done: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{done['agentId']}: {done['vectors']} texts will not be embedded, and {done['files']} files in"
        f" {done['messages']} messages will not be read. memline reindex resumes them."
    )
    if done["batches"]:
        yield f"  {done['batches']} batches are being cancelled at the provider (memline batch ls)."


def _progress_words(state: dict[str, Any]) -> str:
    vectors = state["vectors"]
    if vectors is None:
        return "there is no index yet."
    pending = vectors["wanted"] + vectors["leased"]
    words = f"{state['filesBehind']} files are still to be read, " if state["filesBehind"] else ""
    words += f"{vectors['ready']} of {sum(vectors.values()) - vectors['backfill']} vectors are ready"
    if pending:
        words += f", {pending} are pending ({vectors['backfill']} of them wait behind live edits)"
    if state["paused"]:
        words += ", paused"
    elif state["etaSeconds"] is not None:
        words += f", {state['vectorsPerSecond']:.0f} a second, about {state['etaSeconds']:.0f} s left"
    if vectors["failed"]:
        words += f", {vectors['failed']} failed"
    if vectors["cancelled"]:
        words += f", {vectors['cancelled']} are cancelled (memline reindex resumes them)"
    return words + "."
