"""`memline queue`: depth of the queues, backlog, workers and providers; dead messages; pause and resume."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from memline.producers.calls.table import CALLS
from memline.producers.cli.invocation import Invocation, echo, print_json, print_result
from memline.producers.cli.status import told
from memline.producers.cli.table_commands import add_actions, asks
from memline.producers.reports import breakers as reports
from memline.producers.reports.fleet_state import fleet_state, queue_url, spent_words
from memline.shared.config.check import nearest
from memline.shared.queue import message_list
from memline.shared.queue.message_list import Filter
from memline.shared.visible_text import visible
from memline.shared.words import counted, span

if TYPE_CHECKING:
    from memline.shared.queue.message_list import StoredMessage

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


@asks(CALLS["queue"], cls=click.Group, invoke_without_command=True)
def queue(invocation: Invocation, conditions: tuple[str, ...], as_json: bool) -> int | None:
    if click.get_current_context().invoked_subcommand is not None:
        return None
    tests = [(text, _condition(text)) for text in conditions]

    def typed(of: dict[str, Any]) -> dict[str, Any]:
        found = [each | {"action": invocation.as_typed(each["action"])} for each in of["findings"]]
        return of | {"findings": found}

    report = typed(fleet_state(invocation.settings, invocation.agents()))
    report["agents"] = [typed(each) for each in report["agents"]]
    if as_json:
        print_json(report)
    else:
        Console(markup=False).print(*_tables(report), sep="\n")
    met = [text for text, is_met in tests if is_met(report)]
    for text in met:
        echo(f"{text} holds", err=True)
    return 1 if met else None


@asks(CALLS["queue dead"], parent=queue)
def dead(invocation: Invocation, limit: int | None, as_json: bool, **where: str | None) -> None:
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


@asks(CALLS["queue messages"], parent=queue)
def messages(
    invocation: Invocation, limit: int | None, cursor: str | None, as_json: bool, **where: str | None
) -> None:
    url, meant = _meant(invocation, **where)
    page = message_list.page(url, meant, cursor=cursor or "", limit=limit or PAGE)
    counts = {queue: count for queue, count in page.counts.items() if count}
    lines = [", ".join(f"{queue}: {count:,} {meant.state}" for queue, count in counts.items())] * bool(counts)
    for each in page.messages:
        lines.append(_line(each) + f"\n    {each.error}" * bool(each.error))
    print_result(page.to_json(), as_json, lines or [f"No {meant.state} messages here."])
    if page.cursor and not as_json:
        echo(f"There are more: --after {page.cursor}", err=True)


def _meant(invocation: Invocation, **where: Any) -> tuple[str, Filter]:
    """Return the URL of the queue, and which messages the options mean."""
    given = {name: each for name, each in where.items() if each is not None}
    return queue_url(invocation.settings), Filter(agent=invocation.options.agent or "", **given)


def _line(each: StoredMessage) -> str:
    when = "" if each.age_s is None else f"sent {span(each.age_s)} ago"
    if each.dead_s is not None:
        when = f"{span(each.dead_s)} ago"
    if each.retry_in_s is not None:
        when = f"again in {span(each.retry_in_s)}"
    more = f" and {len(each.paths) - 1} more" * (len(each.paths) > 1)
    return f"{each.id}  {each.queue}/{each.actor}  {each.agent}  {''.join(each.paths[:1])}{more}  {when}"


@asks(CALLS["queue providers"], parent=queue)
def providers(invocation: Invocation, as_json: bool) -> None:
    found = [each for agent in invocation.agents() for each in reports.of_agent(agent, invocation.settings)]
    lines = []
    for each in found:
        day, minute = each["lastDay"], each["minute"]
        line = f"{each['account']} ({each['agentId']}): {counted(day['calls'], 'call')} in a day"
        if day["p50Ms"] is not None:
            line += f", p50 {day['p50Ms']} ms, p95 {day['p95Ms']} ms"
        line += "".join(f", {count} {kind}" for kind, count in day["errors"].items())
        if minute["maxRequests"]:
            line += f", {minute['requests']} of {counted(minute['maxRequests'], 'request')} a minute"
        lines += [
            line,
            *(f"    {mode['mode']}: {mode['reason']}" for mode in each["modes"] if mode["reason"]),
        ]
    print_result(found, as_json, lines or ["No provider has been asked yet."])


def _condition(text: str) -> Callable[[dict[str, Any]], bool]:
    match = re.fullmatch(r"\s*(\w+)\s*([<>])\s*(\d+(?:\.\d+)?)\s*", text)
    if match is None or match[1] not in MEASURES:
        measures = ", ".join(MEASURES)
        near = nearest(match[1], MEASURES) if match else ""
        words = f"{text!r} is not a valid condition: write e.g. 'oldest>300' with one of {measures}"
        raise click.BadParameter(words + f". Did you mean {near}?" * bool(near), param_hint="--fail-if")
    measure, limit = MEASURES[match[1]], float(match[3])
    compare = operator.gt if match[2] == ">" else operator.lt
    return lambda report: compare(measure(report), limit)


def _tables(report: dict[str, Any]) -> list[Any]:
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
        cells = (each["role"], each["host"], str(each["pid"]), each["version"], busy, memory, seen)
        workers.add_row(*map(visible, cells))
    return [queues, *map(visible, _backlog_lines(report)), workers]


def _backlog_lines(report: dict[str, Any]) -> Iterator[str]:
    yield from told(report["findings"], names_agents=True)

    backlog = report["backlog"]
    eta = "" if backlog["etaSeconds"] is None else f", ETA {span(backlog['etaSeconds'])}"
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


add_actions(queue, CALLS.values())
