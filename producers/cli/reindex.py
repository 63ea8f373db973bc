"""`memline reindex`: ask the fleet for a reindex, follow or cancel it, or say what one would do and cost."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from producers.cli.options import Invocation, examples, global_options, json_option, print_json

if TYPE_CHECKING:
    from shared.config.schema import AgentSettings


@click.command(
    epilog=examples(
        "memline reindex --plan",
        "memline reindex --plan --force --json",
        "MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0 memline reindex --agent main",
        "memline reindex --status",
        "memline reindex --cancel",
    )
)
@click.option("--force", is_flag=True, help="All files, not only those that changed.")
@click.option(
    "--plan", "what", flag_value="plan", help="Only say what it would do: files, texts, tokens, cost."
)
@click.option("--status", "what", flag_value="status", help="Only say how far it is, and the time left.")
@click.option("--cancel", "what", flag_value="cancel", help="Send nothing more of it; what is there stays.")
@json_option
@global_options
def reindex(invocation: Invocation, force: bool, what: str | None, as_json: bool) -> None:
    """Put a reindex on the queue and return; a long list of files is handed over bit by bit.

    Its texts wait behind those of live edits. It needs queue.url; without a queue, `memline index` does the
    work and waits for it. `memline queue pause` and `resume` stop and restart the sending of texts; after
    --cancel, `memline reindex` or `memline index` goes on with what is missing.
    """
    agents = [settings for settings in invocation.agents() if settings.memory.enabled]
    if what == "plan":
        _plan(agents, force, invocation.settings.prices, as_json)
    elif what == "status":
        _status(agents, as_json)
    elif what == "cancel":
        _cancel(agents, invocation.settings.queue.url, as_json)
    else:
        _start(agents, invocation.settings.queue.url, force, as_json)


def _start(agents: list[AgentSettings], url: str, force: bool, as_json: bool) -> None:
    from shared.errors import QueueError

    if not url:
        raise QueueError(
            "there is no queue to put a reindex on (queue.url is not set)",
            hint=f"memline index{' --force' if force else ''}",
        )
    from producers.backfill import start

    started = []
    for settings in agents:
        started.append(start(settings, url, force=force, on_announced=_show))
        if not as_json:
            done = started[-1]
            again = f", {done.taken_up} cancelled texts are wanted again" if done.taken_up else ""
            click.echo(f"{done.agent}: {done.files} files are on the queue{again}.")
            click.echo("  memline reindex --status says how far they are.")
    if as_json:
        print_json([one.to_json() for one in started])


def _show(done: int, total: int) -> None:
    """A line that moves, for a person who waits for a long list."""
    if sys.stderr.isatty():
        click.echo(f"\r{done} of {total} files have arrived in the index", nl=False, err=True)


def _plan(
    agents: list[AgentSettings], force: bool, prices: Mapping[str, Mapping[str, Any]], as_json: bool
) -> None:
    from producers.reindex import estimate

    plans = [estimate(settings, force=force, prices=prices) for settings in agents]
    if as_json:
        print_json([plan.to_json() for plan in plans])
        return
    for plan in plans:
        click.echo(
            f"{plan.agent}: {plan.files} files to read, {plan.chunks} chunks; {plan.texts} texts to embed"
            f" ({plan.cached} more are cached), about {plan.tokens} tokens"
        )
        if plan.under_way:
            click.echo(f"  {plan.under_way} texts are at the provider already")
        for line in plan.words():
            click.echo(f"  {line}")


def _cancel(agents: list[AgentSettings], url: str, as_json: bool) -> None:
    from producers.backfill import cancel

    done = [cancel(settings, url) for settings in agents]
    if as_json:
        print_json([one.to_json() for one in done])
        return
    for one in done:
        click.echo(
            f"{one.agent}: {one.vectors} texts will not be embedded, and {one.withdrawn.files} files in"
            f" {one.withdrawn.messages} messages not be looked at. memline reindex takes them up again."
        )
        if one.batches:
            click.echo(f"  {one.batches} batches are being ended at the provider (memline batch ls).")


def _status(agents: list[AgentSettings], as_json: bool) -> None:
    from producers.backfill import progress

    found = [progress(settings) for settings in agents]
    if as_json:
        print_json(found)
        return
    for one in found:
        click.echo(f"{one['agentId']}: {_words(one)}")


def _words(one: dict[str, Any]) -> str:
    vectors = one["vectors"]
    if vectors is None:
        return "there is no index yet."
    coming = vectors["wanted"] + vectors["leased"]
    words = f"{vectors['ready']} of {sum(vectors.values()) - vectors['backfill']} vectors are ready"
    if coming:
        words += f", {coming} are to come ({vectors['backfill']} of them wait behind live edits)"
    if one["paused"]:
        words += ", paused"
    elif one["etaSeconds"] is not None:
        words += f", {one['vectorsPerSecond']:.0f} a second, about {one['etaSeconds']:.0f} s left"
    if vectors["failed"]:
        words += f", {vectors['failed']} failed"
    if vectors["cancelled"]:
        words += f", {vectors['cancelled']} are cancelled (memline reindex takes them up)"
    return words + "."
