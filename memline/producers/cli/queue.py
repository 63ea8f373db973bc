"""`memline queue`: depth of the queues, backlog, workers and providers; dead letters; pause and resume."""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

from memline.producers.cli.invocation import AS_JSON, Invocation, command, group
from memline.producers.cli.jobs import add_verbs
from memline.producers.cli.output import echo, note, print_findings, print_json, print_result, table
from memline.producers.reports.state import fleet_state, queue_url, spent_words
from memline.shared.config.check import nearest
from memline.shared.errors import MemlineError
from memline.shared.providers import PROVIDERS
from memline.shared.queue import dead_letters
from memline.shared.words import counted, span

#: Seconds between two looks of `--watch`.
_WATCH_S = 2.0

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


_ERROR = click.option("--error", help="Messages with this error, or with this text in their error.")


@group(
    "memline queue",
    "memline queue --watch",
    "memline queue --json",
    "memline queue --fail-if 'oldest>300' --fail-if 'workers<3'",
    "memline queue dead",
    "memline queue requeue",
    "memline queue pause",
    invoke_without_command=True,
)
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help=f"Exit 1 when it is true, e.g. 'oldest>300'; one of {', '.join(MEASURES)} with < or >.",
)
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@AS_JSON
def queue(invocation: Invocation, conditions: tuple[str, ...], watch: bool, as_json: bool) -> int | None:
    """Show the queues: depth, in flight, oldest age, dead; the backlog of vectors; the workers.

    It needs queue.url. `pause` and `resume` work without a queue too, and `memline status` shows the backlog.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return None
    if watch and (conditions or as_json):
        raise click.UsageError("--watch goes without --json and --fail-if")
    # Without a queue there is nothing to wait for.
    while watch and invocation.settings.queue.url:
        _show_again(invocation)
    tests = [(text, _condition(text)) for text in conditions]
    report = _report(invocation)
    if as_json:
        print_json(report)
    else:
        _print(report)
    met = [text for text, is_met in tests if is_met(report)]
    for text in met:
        note(f"{text} is true")
    return 1 if met else None


def _report(invocation: Invocation) -> dict[str, Any]:
    """Return the state of the fleet, its advice as it is typed for this memory."""
    return invocation.typed(fleet_state(invocation.settings, invocation.agents()))


def _show_again(invocation: Invocation) -> None:
    """Show the state now, and wait. What cannot be reached is said; the next look may work."""
    try:
        report = _report(invocation)
    except MemlineError as error:
        click.clear()
        echo(f"{error.message}\nTry: {error.hint}" if error.hint else error.message)
    else:
        click.clear()
        _print(report)
    time.sleep(_WATCH_S)


@command("memline queue dead", "memline queue dead --error 'disk is full' --json", parent=queue)
@_ERROR
@AS_JSON
def dead(invocation: Invocation, error: str | None, as_json: bool) -> None:
    """List messages that failed for good, by their last error, the most frequent first."""
    url, agent = queue_url(invocation.settings), invocation.options.agent or ""
    found = dead_letters.by_error(dead_letters.listed(url, agent=agent, error=error))
    lines = []
    for like, letters in found.items():
        oldest, newest = (span(each.age_s) for each in (letters[0], letters[-1]))
        since = f"{newest} ago" if newest == oldest else f"{newest} to {oldest} ago"
        lines.append(f"{counted(len(letters), 'message')}, {since}: {like}")
        lines += [f"    {each.id}  {each.queue}/{each.actor}  {each.agent}" for each in letters]
    every = [each.to_json() for letters in found.values() for each in letters]
    print_result(every, as_json, lines or ["No dead letters."])


add_verbs(
    queue,
    [_ERROR, click.option("--id", "ids", multiple=True, help="Only messages of these ids.")],
    "--error 'disk is full'",
    requeue="Put dead letters back on their queues. Safe: every actor may run twice.",
    drop="Remove dead letters for good: the texts of an answer that waits to be stored are paid for again.",
)
add_verbs(
    queue,
    [click.option("--provider", type=click.Choice(list(PROVIDERS)), help="Only this one.  [default: all]")],
    "--provider openai",
    pause="Send no more texts to the provider until `resume`; running requests end, files stay searchable.",
    resume="""Send texts again: after `pause`, and after a provider stopped (bad key, no quota) and was fixed.

    Circuit breakers are closed, on trial: the next failure opens them again. Texts go to the chosen provider
    again, not to its fallback. A time that the provider asked to wait (429) ends too: one request tries.
    """,
)


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


def _print(report: dict[str, Any]) -> None:
    queues = [
        (
            each["name"],
            *(str(each[key]) for key in ("waiting", "inFlight", "delayed", "dead")),
            span(each["oldestSeconds"]),
        )
        for each in report["queues"]
    ]
    names = ("queue", "waiting", "in flight", "delayed", "dead", "oldest")
    for line in (*table(names, queues), ""):
        echo(line)
    print_findings(report["findings"], names_agents=True)
    columns = ("role", "host", "version", "pid", "threads")
    workers = [[str(each[key]) for key in columns] for each in report["workers"]]
    for line in (*_backlog_lines(report), "", *table(("worker", *columns[1:]), workers)):
        echo(line)


def _backlog_lines(report: dict[str, Any]) -> Iterator[str]:
    backlog = report["backlog"]
    eta = "" if backlog["etaSeconds"] is None else f", ETA {span(backlog['etaSeconds'])}"
    files = f"{counted(backlog['files'], 'file')} to read, " if backlog["files"] else ""
    pending = counted(backlog["wanted"] + backlog["leased"], "vector")
    paused = f", {backlog['paused']:,} paused" if backlog["paused"] else ""
    yield f"Backlog: {files}{pending} pending, {backlog['failed']:,} failed{paused}{eta}"
    for job in (job for agent in report["agents"] for job in agent["jobs"]):
        yield f"Job {job['id']} ({job['agentId']}), {job['name']}: {job['progress']}"
    if text := spent_words(report["spending"]):
        yield f"Spent by all agents: {text}"
    for provider in report["providers"]:
        yield f"Provider {provider['name']} ({provider['agentId']}): {provider['state']}"
