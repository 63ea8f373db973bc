"""`memline status` and `memline doctor`: what is indexed, what is stale, what is wrong and what mends it."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from memline.producers.cli.index import index_agent
from memline.producers.cli.invocation import AS_JSON, Invocation, command
from memline.producers.cli.output import echo, print_findings, print_json
from memline.producers.memory import Memory, met_by_backend
from memline.producers.reports.state import spent_words
from memline.producers.reports.status import examine_agent, examine_common, left_out_files
from memline.shared.errors import MemlineError
from memline.shared.finding import PROBLEM, Finding, of_error
from memline.shared.sources.discover import markdown_beside
from memline.shared.words import counted


@command("memline doctor", "memline doctor --deep", "memline doctor --json")
@click.option("--deep", is_flag=True, help="Ask each provider for one vector, to see that it works.")
@AS_JSON
def doctor(invocation: Invocation, deep: bool, as_json: bool) -> int | None:
    """Find problems of the installation and of each agent's memory, with the command that fixes each."""
    findings: list[Finding] = []
    try:
        settings = invocation.settings
        findings += examine_common(settings, invocation.agents())
        for agent in invocation.agents():
            findings += examine_agent(settings, agent, deep=deep, met=met_by_backend(agent))
    except MemlineError as error:
        findings.append(of_error(error))
    rows = [each.to_json() for each in findings]
    for row in rows:
        row["action"] = row["fix"] = invocation.as_typed(row["action"])
    if as_json:
        print_json(rows)
    else:
        print_findings(rows, names_agents=True)
    return 1 if any(each.level == PROBLEM for each in findings) else None


@command("memline status", "memline status --deep", "memline status --index --json")
@click.option("--deep", is_flag=True, help="Ask the provider for one vector, to see that it works.")
@click.option("--index", is_flag=True, help="Bring the index up to date first (implies --deep).")
@click.option("--verbose", is_flag=True, help="Name every file that is left out, and why.")
@AS_JSON
def status(invocation: Invocation, deep: bool, index: bool, verbose: bool, as_json: bool) -> int | None:
    """Say what is indexed, what is stale, and what is not as it should be."""
    agents = invocation.agents()
    runs = [index_agent(invocation.settings, each) for each in agents if index]
    reports = []
    for settings in agents:
        report = Memory.of(invocation.settings, settings).status(deep=deep or index)
        if verbose:
            report["files"] = left_out_files(settings)
            report["beside"] = markdown_beside(settings)
        reports.append(report)
    if as_json:
        print_json(reports)
    for report in () if as_json else reports:
        _print(invocation.typed(report))
    return 1 if any(run.failed for run in runs) else None


def _print(report: dict[str, Any]) -> None:
    echo(f"Memory search ({report['agentId']})")
    print_findings(report["findings"], indent="  ")
    rows = [(f"  {label + ':':<13}", text) for label, text in _rows(report) if text]
    if "files" in report:
        files = [{"outcome": "left out", **each} for each in report["scan"]["leftOut"]]
        files += [{"outcome": "beside", "path": path, "reason": ""} for path in report["beside"]]
        files += report["files"]
        rows += [(f"    {file['outcome']:<10} ", f"{file['path']}  {file['reason']}") for file in files]
    for head, text in rows:
        echo(head + text.rstrip())
    echo("")


def _rows(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text of every line; the caller leaves out lines without text. The JSON has more."""
    body = report["status"]
    vector, cache, batch = body["vector"], body["cache"], body["batch"]
    # Files that are left out from now on are in the index until the next run.
    there = max(body["files"], report["scan"]["totalFiles"])
    outcomes = (f"{count:,} {name}" for name, count in body["outcomes"].items() if name != "indexed")
    by_rule = Counter(each["reason"] for each in report["scan"]["leftOut"])
    yield "Provider", f"{body['provider']} {body['model']} (requested: {body['requestedProvider']})"
    yield "Sources", ", ".join((*body["sources"], *body["extraPaths"]))
    yield "Indexed", f"{body['files']:,}/{counted(there, 'file')} · {counted(body['chunks'], 'chunk')}"
    yield "Left out", ", ".join((*outcomes, *(f"{count:,} by {rule}" for rule, count in by_rule.items())))
    yield "Stale", "yes" if body["dirty"] else "no"
    yield "Store", body["dbPath"]
    yield "Workspace", f"{body['workspaceDir']} ({body['workspaceOrigin']})"
    yield "Vectors", f"{vector['ready']:,} ready · {vector['wanted']:,} pending · {vector['failed']:,} failed"
    for failure in vector["failures"]:
        yield "Failed", f"{failure['path']}: {failure['reason']}"
    yield "Cache", f"{cache['cached']:,} of {counted(cache['maxEntries'], 'vector')}"
    if batch["enabled"]:
        yield "Batch", f"{batch['open']} open, failures {batch['failures']}/{batch['limit']}"
    if body["identity"] and body["identity"]["building"]:
        active, target = body["identity"]["active"], body["identity"]["target"]
        yield "Changing", f"{active['model']} is searched until {target['model']} is complete"
    for breaker in body["breakers"]:
        rows = breaker["maxRows"]
        yield "Requests", f"at most {counted(rows, 'text')} in one" if rows else ""
    yield "Spent", spent_words(body["spending"])
    if probe := report.get("embeddingProbe"):
        yield "Embeddings", "ready" if probe["ok"] else f"unavailable: {probe['error']}"
