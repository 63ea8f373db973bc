"""`memline queue`: depth of the queues, backlog, workers and providers; dead messages; pause and resume."""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from memline.producers.cli.options import Invocation, command, echo, print_json, print_result, printable
from memline.shared.config.schema import FALLBACKS
from memline.shared.words import counted, span

if TYPE_CHECKING:
    from memline.shared.queue.message_list import Filter, StoredMessage

#: Seconds between two pictures of `--watch`.
WATCH_S = 1.0

#: Messages of a page, and of a group of dead ones.
PAGE, SHOWN = 50, 5

#: Words of `--fail-if`, and where their value is in the report.
MEASURES: dict[str, Callable[[dict[str, Any]], float]] = {
    "oldest": lambda report: max((queue["oldestSeconds"] for queue in report["queues"]), default=0),
    "waiting": lambda report: sum(queue["waiting"] for queue in report["queues"]),
    "dead": lambda report: sum(queue["dead"] for queue in report["queues"]),
    "backlog": lambda report: report["backlog"]["wanted"] + report["backlog"]["leased"],
    "failed": lambda report: report["backlog"]["failed"],
    "workers": lambda report: len(report["workers"]),
    "paused": lambda report: sum(provider["state"] == "paused" for provider in report["providers"]),
    "open": lambda report: sum(
        mode["state"] != "closed" for provider in report["providers"] for mode in provider["modes"]
    ),
}

_STATE = click.option(
    "--state",
    type=click.Choice(["dead", "delayed", "waiting"]),
    default="dead",
    help="Dead, to be retried, or waiting for a worker.  [default: dead]",
)
_QUEUE = click.option("--queue", default="", help="Messages of this queue.")
_GROUP = click.option("--group", default="", help="Dead messages with this error: a group of `queue dead`.")
_MATCH = click.option("--match", default="", help="Glob over queue, index host, actor, agent, error and id.")
_IDS = click.option("--id", "ids", multiple=True, help="Only messages of these ids.")

#: What is paused and resumed.
_PROVIDER = click.option(
    "--provider", type=click.Choice(FALLBACKS[:-1]), help="Only this one.  [default: all]"
)
_MODE = click.option(
    "--mode", type=click.Choice(["requests", "batch"]), help="Only this mode.  [default: both]"
)


@command(
    "memline queue",
    "memline queue --watch",
    "memline queue --json",
    "memline queue --fail-if 'oldest>300' --fail-if 'workers<3'",
    "memline queue dead",
    "memline queue requeue --group 3fa2c1d8",
    "memline queue pause",
    cls=click.Group,
    invoke_without_command=True,
    json=True,
)
@click.option("--watch", is_flag=True, help="Show a live table until Ctrl-C.")
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help=f"Exit 1 when it holds, e.g. 'oldest>300'; one of {', '.join(MEASURES)} with < or >.",
)
@click.pass_context
def queue(
    context: click.Context, invocation: Invocation, watch: bool, conditions: tuple[str, ...], as_json: bool
) -> int | None:
    """Show the queues: depth, in flight, oldest age, rate, dead; the backlog of vectors; the workers."""
    if context.invoked_subcommand is not None:
        return None
    if watch and (conditions or as_json):
        raise click.UsageError("--watch shows a live table: use it without --json and --fail-if")
    from memline.producers.reports.fleet_state import fleet_state

    tests = [(text, _condition(text)) for text in conditions]

    def read() -> dict[str, Any]:
        report = fleet_state(invocation.settings, invocation.agents())
        typed = [each | {"action": invocation.as_typed(each["action"])} for each in report["findings"]]
        return report | {"findings": typed}

    report = read()
    if as_json:
        print_json(report)
    else:
        from rich.console import Console, Group
        from rich.live import Live

        console = Console(markup=False)
        if watch:
            with Live(Group(*_tables(report)), console=console, refresh_per_second=4) as live:
                while True:
                    time.sleep(WATCH_S)
                    live.update(Group(*_tables(read())))
        console.print(*_tables(report), sep="\n")
    met = [text for text, is_met in tests if is_met(report)]
    for text in met:
        echo(f"{text} holds", err=True)
    return 1 if met else None


@command(
    "memline queue dead",
    "memline queue dead --group 3fa2c1d8",
    "memline queue dead --match '*disk*' --json",
    parent=queue,
    json=True,
)
@_QUEUE
@_GROUP
@_MATCH
@click.option("--limit", type=click.IntRange(min=1), help=f"Of each group.  [default: {SHOWN}; as JSON all]")
def dead(invocation: Invocation, limit: int | None, as_json: bool, **where: str) -> None:
    """List messages that failed, by their last error: the largest group first, in a group the oldest."""
    from memline.shared.queue import message_list

    groups = message_list.groups(*_meant(invocation, **where))
    if as_json:
        # Since it failed, and the whole error: a list of messages says since it was sent.
        print_json(
            [
                {**each.to_json(), "error": each.error, "ageSeconds": each.dead_s}
                for group in groups
                for each in group.messages[:limit]
            ]
        )
        return
    for group in groups:
        newest, oldest = map(span, group.ages_s)
        since = f"{newest} ago" if newest == oldest else f"{newest} to {oldest} ago"
        echo(f"group {group.id}: {counted(len(group.messages), 'message')}, {since}\n    {group.error}")
        shown = group.messages[: limit or (None if where["group"] else SHOWN)]
        for each in shown:
            echo(_line(each))
        if len(shown) < len(group.messages):
            echo(f"and {len(group.messages) - len(shown)} more: memline queue dead --group {group.id}")
    if not groups:
        echo("No dead messages.")


@command(
    "memline queue messages",
    "memline queue messages --state waiting --queue chunk",
    "memline queue messages --state delayed --json",
    parent=queue,
    json=True,
)
@_STATE
@_QUEUE
@click.option("--limit", type=click.IntRange(1, 500), default=PAGE, show_default=True, help="Of a page.")
@click.option("--after", "cursor", default="", help="Where the page before said that the next one begins.")
def messages(invocation: Invocation, limit: int, cursor: str, as_json: bool, **where: str) -> None:
    """Count and list messages, a page at a time: dead ones, delayed ones (to be retried), or waiting ones."""
    from memline.shared.queue import message_list

    page = message_list.page(*_meant(invocation, **where), cursor=cursor, limit=limit)
    counts = {queue: count for queue, count in page.counts.items() if count}
    lines = [", ".join(f"{queue}: {count} {where['state']}" for queue, count in counts.items())] * bool(
        counts
    )
    for each in page.messages:
        lines.append(_line(each) + f"\n    {each.error}" * bool(each.error))
    print_result(
        {
            "counts": counts,
            "messages": [each.to_json() for each in page.messages],
            "after": page.cursor or None,
        },
        as_json,
        lines or [f"No {where['state']} messages here."],
    )
    if page.cursor and not as_json:
        echo(f"There are more: --after {page.cursor}", err=True)


@command(
    "memline queue requeue",
    "memline queue requeue --group 3fa2c1d8",
    "memline queue requeue --state delayed --queue store",
    parent=queue,
    json=True,
)
@click.option("--state", type=click.Choice(["dead", "delayed"]), default="dead", help="[default: dead]")
@_QUEUE
@_GROUP
@_MATCH
@_IDS
def requeue(invocation: Invocation, as_json: bool, **where: Any) -> None:
    """Put dead messages back on their queues. Safe: every actor may run twice."""
    count = _change("requeue", invocation, **where)
    print_result({"requeued": count}, as_json, [f"{counted(count, 'message')} put back on the queues."])


@command(
    "memline queue drop --group 3fa2c1d8",
    "memline queue drop --match '*unknown agent*'",
    "memline queue drop --state waiting --queue chunk",
    parent=queue,
    json=True,
)
@_STATE
@_QUEUE
@_GROUP
@_MATCH
@_IDS
def drop(invocation: Invocation, as_json: bool, **where: Any) -> None:
    """Remove dead messages for good, or with --state others. What they were about is in the rows.

    Name which: with --match '*' all of them.
    """
    if not any(where[name] for name in ("queue", "group", "match", "ids")):
        raise click.UsageError("name the messages: --group, --id, --queue or --match GLOB")
    count = _change("drop", invocation, **where)
    print_result({"dropped": count}, as_json, [f"{counted(count, 'message')} removed."])


def _meant(invocation: Invocation, **where: Any) -> tuple[str, Filter]:
    """Return the URL of the queue, and which messages the options mean."""
    from memline.producers.reports.fleet_state import queue_url
    from memline.shared.queue.message_list import Filter

    return queue_url(invocation.settings), Filter(agent=invocation.options.agent or "", **where)


def _change(verb: str, invocation: Invocation, **where: Any) -> int:
    """Requeue or drop the messages that the options mean; returns how many were still there."""
    from memline.shared.queue import message_list

    url, meant = _meant(invocation, **where)
    change = message_list.requeue if verb == "requeue" else message_list.drop
    return change(url, meant.state, [(each.queue, each.id) for each in message_list.listed(url, meant)])


def _line(each: StoredMessage) -> str:
    when = "" if each.age_s is None else f"sent {span(each.age_s)} ago"
    if each.dead_s is not None:
        when = f"{span(each.dead_s)} ago"
    if each.retry_in_s is not None:
        when = f"again in {span(each.retry_in_s)}"
    more = f" and {len(each.paths) - 1} more" * (len(each.paths) > 1)
    return f"{each.id}  {each.queue}/{each.actor}  {each.agent}  {''.join(each.paths[:1])}{more}  {when}"


@command("memline queue drain build-7:4211", parent=queue, json=True)
@click.argument("worker", metavar="HOST:PID")
def drain(invocation: Invocation, worker: str, as_json: bool) -> None:
    """Ask a worker process to take no more messages, finish those in hand, and end with status 0.

    A supervisor may start another one in its place; docs/fleet.md has more.
    """
    from memline.producers.reports.fleet_state import queue_url
    from memline.shared.queue import heartbeat

    found = heartbeat.drain(queue_url(invocation.settings), worker)
    what = f"{'+'.join(found.queues)} worker {found.host}:{found.pid}"
    print_result(
        {"draining": found.to_json()}, as_json, [f"The {what} finishes what it has taken, and ends."]
    )


@command(
    "memline queue pause",
    "memline queue pause --agent work",
    "memline queue pause --provider openai --mode batch",
    parent=queue,
    json=True,
)
@_PROVIDER
@_MODE
def pause(invocation: Invocation, provider: str | None, mode: str | None, as_json: bool) -> None:
    """Send no more texts to the provider until `resume`; running requests end, files stay searchable.

    With --mode batch no new batches are made and texts are sent in requests; open batches are still
    collected.
    """
    _set_paused(invocation, provider, mode, True, as_json)


@command(
    "memline queue resume",
    "memline queue resume --mode batch",
    "memline queue resume --provider gemini",
    parent=queue,
    json=True,
)
@_PROVIDER
@_MODE
def resume(invocation: Invocation, provider: str | None, mode: str | None, as_json: bool) -> None:
    """Send texts again: after `pause`, and after a provider stopped (bad key, no quota) and was fixed.

    Circuit breakers are closed, on trial: the next failure opens them again. Texts go to the chosen provider
    again, not to its fallback, and a time that it said to wait is not waited for.
    """
    _set_paused(invocation, provider, mode, False, as_json)


@command(
    "memline queue probe",
    "memline queue probe --provider openai --mode batch",
    parent=queue,
    json=True,
)
@_PROVIDER
@_MODE
def probe(invocation: Invocation, provider: str | None, mode: str | None, as_json: bool) -> int | None:
    """Try a provider that stopped with one request now, without waiting for the end of its cooldown.

    If it fails, the breaker stays open for longer. Exit status 1 when no breaker is open.
    """
    from memline.producers.reports import breakers

    done = []
    for settings in invocation.agents():
        probed = breakers.probe(settings, provider=provider or "", mode=mode or "")
        if probed:
            _wake(invocation, settings.agent)
        done.append({"agentId": settings.agent, "probed": probed})
    lines = [
        f"{each['agentId']}: {', '.join(each['probed']) or 'no breaker is open'}"
        + ": asked again with the next text" * bool(each["probed"])
        for each in done
    ]
    print_result(done, as_json, lines)
    return None if any(each["probed"] for each in done) else 1


def _wake(invocation: Invocation, agent: str) -> None:
    """Let the store worker look at the rows now; without a fleet the process that runs does so itself."""
    if url := invocation.settings.queue.address if invocation.settings.queue.url else "":
        from memline.shared.queue.fleet_workers import wake

        wake(url, agent)


@command("memline queue providers", "memline queue providers --agent work --json", parent=queue, json=True)
def providers(invocation: Invocation, as_json: bool) -> None:
    """Show the provider accounts: calls, latency and errors of a day, places of the minute, breakers."""
    from memline.producers.reports import provider_accounts as reports

    found = [each for agent in invocation.agents() for each in reports.of_agent(agent, invocation.settings)]
    lines = []
    for each in found:
        day, minute = each["lastDay"], each["minute"]
        line = f"{each['account']} ({each['agentId']}): {day['calls']} calls in a day"
        if day["p50Ms"] is not None:
            line += f", p50 {day['p50Ms']} ms, p95 {day['p95Ms']} ms"
        line += "".join(f", {count} {kind}" for kind, count in day["errors"].items())
        if minute["maxRequests"]:
            line += f", {minute['requests']} of {minute['maxRequests']} requests a minute"
        lines += [
            line,
            *(f"    {mode['mode']}: {mode['reason']}" for mode in each["modes"] if mode["reason"]),
        ]
    print_result(found, as_json, lines or ["No provider has been asked yet."])


def _set_paused(
    invocation: Invocation, provider: str | None, mode: str | None, is_paused: bool, as_json: bool
) -> None:
    from memline.producers.reports import breakers

    change = breakers.pause if is_paused else breakers.resume
    done = [
        {
            "agentId": settings.agent,
            "paused": is_paused,
            "provider": provider,
            "mode": mode,
            "breakers": change(settings, provider=provider or "", mode=mode or ""),
        }
        for settings in invocation.agents()
    ]
    what = {"requests": "embedding by requests", "batch": "embedding by batches", None: "embedding"}[mode]
    what += f" with {provider}" if provider else ""
    state = "is paused" if is_paused else "goes on"
    print_result(done, as_json, (f"{each['agentId']}: {what} {state}." for each in done))


def _condition(text: str) -> Callable[[dict[str, Any]], bool]:
    match = re.fullmatch(r"\s*(\w+)\s*([<>])\s*(\d+(?:\.\d+)?)\s*", text)
    if match is None or match[1] not in MEASURES:
        measures = ", ".join(MEASURES)
        words = f"{text!r} is not a valid condition: write e.g. 'oldest>300' with one of {measures}"
        raise click.BadParameter(words, param_hint="--fail-if")
    measure, limit = MEASURES[match[1]], float(match[3])
    compare = operator.gt if match[2] == ">" else operator.lt
    return lambda report: compare(measure(report), limit)


def _tables(report: dict[str, Any]) -> list[Any]:
    from rich.table import Table

    queues = Table("queue", "waiting", "in flight", "delayed", "dead", "oldest", "per minute", title="Queues")
    for each in report["queues"]:
        counts = [str(each[key]) for key in ("waiting", "inFlight", "delayed", "dead")]
        queues.add_row(each["name"], *counts, span(each["oldestSeconds"]), f"{each['ratePerMinute']:.0f}")
    workers = Table("worker", "host", "pid", "version", "busy", "memory", "last seen", title="Workers")
    for each in report["workers"]:
        seen = f"{span(each['lastSeenSeconds'])} ago{', drains' * each['draining']}"
        busy = f"{each['threadsBusy']} of {each['threads']}"
        if each["current"]:
            busy += f", {each['current'][0]['actor']} for {span(each['current'][0]['ageSeconds'])}"
        memory = f"{each['memoryBytes'] / 2**20:.0f} MiB" if each["memoryBytes"] else ""
        role = f"{each['role']}{' of ' * bool(each['indexHost'])}{each['indexHost']}"
        cells = (role, each["host"], str(each["pid"]), each["version"], busy, memory, seen)
        workers.add_row(*map(printable, cells))
    return [queues, *map(printable, _backlog_lines(report)), workers]


def _backlog_lines(report: dict[str, Any]) -> Iterator[str]:
    from memline.producers.cli.status import told
    from memline.producers.reports.fleet_state import spent_words

    yield from told(report["findings"], names_agents=True)

    backlog = report["backlog"]
    eta = "" if backlog["etaSeconds"] is None else f", about {span(backlog['etaSeconds'])} left"
    files = f"{counted(backlog['files'], 'file')} to read, " if backlog["files"] else ""
    counts = f"{backlog['wanted']} wanted, {backlog['leased']} leased, {backlog['failed']} failed"
    paused = f", {backlog['paused']} paused" if backlog["paused"] else ""
    yield f"Backlog: {files}{counts}{paused}{eta}"
    for job in (job for agent in report["agents"] for job in agent["jobs"]):
        yield f"Job {job['id']} ({job['agentId']}), {job['name']}: {job['progress']}"
    if text := spent_words(report["spending"]):
        yield f"Spent by all agents: {text}"
    for provider in report["providers"]:
        yield f"Provider {provider['name']} ({provider['agentId']}): {provider['state']}"
