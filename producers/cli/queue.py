"""`memline queue`: what lies on the queues, who works on it, and what died."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from producers.cli.options import Invocation, examples, global_options, json_option, print_json
from shared.config.schema import FALLBACKS

if TYPE_CHECKING:
    from shared.queue.dead import DeadLetter

C = TypeVar("C", bound=Callable[..., Any])

#: Seconds between two pictures of `--watch`.
WATCH_S = 1.0

#: Words of `--fail-if`, and where their value is in the report.
MEASURES: dict[str, Callable[[dict[str, Any]], float]] = {
    "oldest": lambda report: max((queue["oldestSeconds"] for queue in report["queues"]), default=0),
    "waiting": lambda report: sum(queue["waiting"] for queue in report["queues"]),
    "dead": lambda report: sum(queue["dead"] for queue in report["queues"]),
    "backlog": lambda report: report["backlog"]["wanted"] + report["backlog"]["leased"],
    "failed": lambda report: report["backlog"]["failed"],
    "workers": lambda report: len(report["workers"]),
    "paused": lambda report: sum(one["state"] == "paused" for one in report["providers"]),
    "open": lambda report: sum(
        each["state"] != "closed" for one in report["providers"] for each in one["modes"]
    ),
}


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "memline queue",
        "memline queue --watch",
        "memline queue --json",
        "memline queue --fail-if 'oldest>300' --fail-if 'workers<3'",
        "memline queue dead --match 'embed*'",
        "memline queue requeue --match '*locked*'",
        "memline queue pause",
    ),
)
@click.option("--watch", is_flag=True, help="Show a live table until Ctrl-C.")
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help=f"Exit 1 when it holds, e.g. 'oldest>300'; one of {', '.join(MEASURES)} with < or >.",
)
@json_option
@global_options
@click.pass_context
def queue(
    context: click.Context,
    invocation: Invocation,
    watch: bool,
    conditions: tuple[str, ...],
    as_json: bool,
) -> int | None:
    """Show the queues: depth, in flight, oldest age, rate, dead; the backlog of vectors; the workers."""
    if context.invoked_subcommand is not None:
        return None
    from producers.queue_report import report

    tests = [_condition(text) for text in conditions]
    if watch:
        _watch(invocation)
        return None
    found = report(invocation.settings, invocation.agents())
    if as_json:
        print_json(found)
    else:
        _show(found)
    broken = [text for text, holds in tests if holds(found)]
    for text in broken:
        click.echo(f"{text} holds", err=True)
    return 1 if broken else None


@queue.command(epilog=examples("memline queue dead", "memline queue dead --match '*disk*' --json"))
@click.option("--match", default="*", help="Glob over queue, actor, agent, error and id.  [default: *]")
@json_option
@global_options
def dead(invocation: Invocation, match: str, as_json: bool) -> None:
    """List messages that failed, with their last error."""
    found = _letters(invocation, match)
    if as_json:
        print_json([letter.to_json() for letter in found])
        return
    for letter in found:
        click.echo(f"{letter.id}  {letter.queue}/{letter.actor}  {letter.agent}  {letter.age_s:.0f} s ago")
        click.echo(f"    {letter.error}")
    if not found:
        click.echo("No dead messages.")


@queue.command(epilog=examples("memline queue requeue", "memline queue requeue --match 'store'"))
@click.option("--match", default="*", help="Glob over queue, actor, agent, error and id.  [default: *]")
@json_option
@global_options
def requeue(invocation: Invocation, match: str, as_json: bool) -> None:
    """Put dead messages back on their queues. Safe: every actor may run twice."""
    from shared.queue.dead import requeue as put_back

    count = put_back(invocation.settings.queue.url, _letters(invocation, match))
    if as_json:
        print_json({"requeued": count})
    else:
        click.echo(f"{count} messages are back on their queues.")


@queue.command(epilog=examples("memline queue drop --match '*unknown agent*'"))
@click.option("--match", required=True, help="Glob over queue, actor, agent, error and id; '*' for all.")
@json_option
@global_options
def drop(invocation: Invocation, match: str, as_json: bool) -> None:
    """Remove dead messages for good. Nothing is lost: what they were about is in the rows."""
    from shared.queue.dead import drop as remove

    count = remove(invocation.settings.queue.url, _letters(invocation, match))
    if as_json:
        print_json({"dropped": count})
    else:
        click.echo(f"{count} messages are gone.")


def _which(command: C) -> C:
    """The options that say what is paused and resumed."""
    provider = click.option(
        "--provider", type=click.Choice(FALLBACKS[:-1]), help="Only this one.  [default: all]"
    )
    mode = click.option(
        "--mode", type=click.Choice(["requests", "batch"]), help="Only this mode.  [default: both]"
    )
    return provider(mode(command))


@queue.command(
    epilog=examples(
        "memline queue pause",
        "memline queue pause --agent work",
        "memline queue pause --provider openai --mode batch",
    )
)
@_which
@json_option
@global_options
def pause(invocation: Invocation, provider: str | None, mode: str | None, as_json: bool) -> None:
    """Send no more texts to the provider until `resume`; running requests end, files stay searchable.

    With --mode batch no new batches are made and texts go out in requests; open batches are still collected.
    """
    from producers import breakers

    _act(invocation, breakers.pause, provider, mode, True, as_json)


@queue.command(
    epilog=examples(
        "memline queue resume",
        "memline queue resume --mode batch",
        "memline queue resume --provider gemini",
    )
)
@_which
@json_option
@global_options
def resume(invocation: Invocation, provider: str | None, mode: str | None, as_json: bool) -> None:
    """Send texts again: after `pause`, and after a provider stopped (bad key, no quota) and was mended.

    Circuit breakers are closed, on trial: the next failure opens them again. A provider that its fallback
    stands in for gets its place back.
    """
    from producers import breakers

    _act(invocation, breakers.resume, provider, mode, False, as_json)


def _act(
    invocation: Invocation,
    act: Callable[..., list[dict[str, Any]]],
    provider: str | None,
    mode: str | None,
    paused: bool,
    as_json: bool,
) -> None:
    done = [
        {
            "agentId": settings.agent,
            "paused": paused,
            "provider": provider,
            "mode": mode,
            "breakers": act(settings, provider=provider or "", mode=mode or ""),
        }
        for settings in invocation.agents()
    ]
    if as_json:
        print_json(done)
        return
    what = {"requests": "embedding by requests", "batch": "embedding by batches", None: "embedding"}[mode]
    what += f" with {provider}" if provider else ""
    for one in done:
        click.echo(f"{one['agentId']}: {what} {'is paused' if paused else 'goes on'}.")


def _letters(invocation: Invocation, match: str) -> list[DeadLetter]:
    from producers.queue_report import queue_url
    from shared.queue.broker import QUEUES
    from shared.queue.dead import letters

    return letters(queue_url(invocation.settings), QUEUES, match=match)


def _condition(text: str) -> tuple[str, Callable[[dict[str, Any]], bool]]:
    match = re.fullmatch(r"\s*(\w+)\s*([<>])\s*(\d+(?:\.\d+)?)\s*", text)
    if match is None or match[1] not in MEASURES:
        raise click.BadParameter(
            f"{text!r} is no condition; write e.g. 'oldest>300' with one of {', '.join(MEASURES)}",
            param_hint="--fail-if",
        )
    measure, limit = MEASURES[match[1]], float(match[3])
    if match[2] == ">":
        return text, lambda report: measure(report) > limit
    return text, lambda report: measure(report) < limit


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console

    Console().print(*_tables(found), sep="\n")


def _watch(invocation: Invocation) -> None:
    import time

    from rich.console import Group
    from rich.live import Live

    from producers.queue_report import report

    def picture() -> Group:
        return Group(*_tables(report(invocation.settings, invocation.agents())))

    with Live(picture(), refresh_per_second=4, screen=False) as live:
        while True:
            time.sleep(WATCH_S)
            live.update(picture())


def _provider(one: dict[str, Any]) -> list[str]:
    import time

    from producers.breakers import words

    lines = [
        f"Provider {one['name']} ({one['agentId']}): {one['state']}"
        + (f", {one['reason']} (try: {one['action']})" if one["state"] != "ok" else "")
    ]
    return lines + [f"    {text}" for each in one["modes"] if (text := words(each, time.time()))]


def _tables(found: dict[str, Any]) -> list[Any]:
    from rich.table import Table

    queues = Table("queue", "waiting", "in flight", "delayed", "dead", "oldest", "per minute", title="Queues")
    for one in found["queues"]:
        queues.add_row(
            one["name"],
            str(one["waiting"]),
            str(one["inFlight"]),
            str(one["delayed"]),
            str(one["dead"]),
            f"{one['oldestSeconds']:.0f} s",
            f"{one['ratePerMinute']:.0f}",
        )
    backlog = found["backlog"]
    eta = "" if backlog["etaSeconds"] is None else f", about {backlog['etaSeconds']:.0f} s left"
    words = (
        f"Backlog: {backlog['wanted']} wanted, {backlog['leased']} leased, {backlog['failed']} failed{eta}"
    )
    workers = Table("worker", "host", "pid", "version", "last seen", title="Workers")
    for one in found["workers"]:
        workers.add_row(
            one["role"], one["host"], str(one["pid"]), one["version"], f"{one['lastSeenSeconds']:.0f} s ago"
        )
    providers = [line for one in found["providers"] for line in _provider(one)]
    misfits = [
        f"{one['agentId']}: {misfit['error']}, {misfit['count']} requests were given back"
        f" (try: {misfit['action']})"
        for one in found["agents"]
        if (misfit := one["misfits"])
    ]
    return [queues, words, *providers, *misfits, workers]
