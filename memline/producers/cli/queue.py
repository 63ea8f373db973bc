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
from memline.producers.reports.fleet_state import fleet_state, queue_url, spent_words
from memline.shared.config.check import nearest
from memline.shared.queue import dead_letters
from memline.shared.visible_text import visible
from memline.shared.words import counted, span

if TYPE_CHECKING:
    pass

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
def dead(invocation: Invocation, error: str | None, as_json: bool) -> None:
    url, agent = queue_url(invocation.settings), invocation.options.agent or ""
    found = dead_letters.by_error(dead_letters.listed(url, agent=agent, error=error))
    lines = []
    for like, letters in found.items():
        oldest, newest = (span(each.age_s) for each in (letters[0], letters[-1]))
        since = f"{newest} ago" if newest == oldest else f"{newest} to {oldest} ago"
        lines.append(f"{counted(len(letters), 'message')}, {since}: {like}")
        lines += [f"    {each.id}  {each.queue}/{each.actor}  {each.agent}" for each in letters]
    every = [each.to_json() for letters in found.values() for each in letters]
    print_result(every, as_json, lines or ["No dead messages."])


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
    workers = Table("worker", "host", "pid", "version", "threads", title="Workers")
    for each in report["workers"]:
        cells = (each["role"], each["host"], str(each["pid"]), each["version"], str(each["threads"]))
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
