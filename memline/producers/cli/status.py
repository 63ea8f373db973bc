"""`memline status` and `memline doctor`: what is indexed, what is stale, what is wrong and what mends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from memline.producers.builtin import met_by_backend
from memline.producers.cli import terminal
from memline.producers.cli.invocation import Invocation
from memline.producers.cli.options import AS_JSON, command
from memline.producers.cli.output import print_json, print_result, put
from memline.producers.memory import Memory
from memline.producers.reports.doctor import examine_agent, examine_common
from memline.producers.reports.fleet_state import spent_words
from memline.producers.reports.providers import size_words
from memline.producers.reports.status import left_out_files
from memline.shared.errors import MemlineError
from memline.shared.finding import COMMAND, PROBLEM, Finding, of_error
from memline.shared.sources.discover import markdown_beside
from memline.shared.sources.paths import MemoryPaths
from memline.shared.visible_text import visible
from memline.shared.words import counted

#: Puts the options of this command line into the commands of a hint.
Typed = Callable[[str], str]

_MARKS = {
    "ok": ("ok", "green"),
    "warning": ("warn", "yellow"),
    "problem": ("FAIL", "red"),
    "note": ("note", "cyan"),
}


@command("memline doctor", "memline doctor --deep", "memline doctor --json")
@click.option("--deep", is_flag=True, help="Ask each provider for one vector, to see that it works.")
@AS_JSON
def doctor(invocation: Invocation, deep: bool, as_json: bool) -> int | None:
    """Find problems of the installation and of each agent's memory, with the command that fixes each."""
    found: list[Finding] = []
    try:
        settings = invocation.settings
        found += examine_common(settings, invocation.agents(), invocation.loaded.warnings)
        for agent in invocation.agents():
            found += examine_agent(settings, agent, deep=deep, met=met_by_backend(settings, agent))
    except MemlineError as error:
        found.append(of_error(error))
    rows = [each.to_json() for each in found]
    for row in rows:
        row["action"] = row["fix"] = invocation.as_typed(row["action"])
    if as_json:
        print_json(rows)
    else:
        for line in finding_lines(rows, names_agents=True, is_coloured=True):
            put(line)
    return 1 if any(each.level == PROBLEM for each in found) else None


def finding_lines(
    found: Sequence[dict[str, Any]],
    *,
    names_agents: bool = False,
    is_coloured: bool = False,
    indent: str = "",
) -> Iterator[str]:
    """Yield the lines of findings, given as JSON: a mark and the words, and below them what to do."""
    for each in found:
        mark, color = _MARKS[each["level"]]
        agent = f"agent {each['agent']}: " if names_agents and each["agent"] else ""
        mark = f"{indent}{mark:<5}"
        first, *rest = terminal.below(mark, visible(agent + each["what"]))
        yield terminal.style(mark, fg=color) + first[len(mark) :] if is_coloured else first
        yield from rest
        if each["action"]:
            is_command = each.get("actionKind") == COMMAND
            yield from terminal.below(f"{indent}     try: ", visible(each["action"]), is_command=is_command)


@command("memline status", "memline status --deep", "memline status --index --json")
@click.option("--deep", is_flag=True, help="Ask the provider for one vector, to see that it works.")
@click.option("--index", is_flag=True, help="Bring the index up to date first (implies --deep).")
@click.option("--verbose", is_flag=True, help="Name every file that is left out, and why.")
@AS_JSON
def status(invocation: Invocation, deep: bool, index: bool, verbose: bool, as_json: bool) -> int | None:
    """Say what is indexed, what is stale, and what is not as it should be."""
    has_failed = False
    if index:
        from memline.producers.cli.index import index_agents

        has_failed = any(report.failed for report in index_agents(invocation.settings, invocation.agents()))
    reports = []
    for settings in invocation.agents():
        report = Memory.of(invocation.settings, settings).status(deep=deep or index).details
        if verbose:
            report["files"] = left_out_files(settings)
            report["beside"] = list(markdown_beside(MemoryPaths.of(settings)).paths)
        reports.append(report)
    lines = (line for report in reports for line in _lines(report, invocation.as_typed))
    print_result(reports, as_json, lines)
    return 1 if has_failed else None


def _lines(report: dict[str, Any], typed: Typed) -> Iterator[str]:
    yield f"Memory search ({report['agentId']})"
    found = [each | {"action": typed(each["action"])} for each in report["findings"]]
    yield from finding_lines(found, indent="  ")
    for label, text in _rows(report):
        if text:
            yield from terminal.below(f"  {label + ':' if label else '':<13}", text)
    if "files" in report:
        left_out = ({"outcome": "left out", **each} for each in report["scan"]["leftOut"])
        beside = ({"outcome": "beside", "path": path, "reason": ""} for path in report["beside"])
        for file in (*left_out, *beside, *report["files"]):
            text = f"{file['path']}  {file['reason']}".rstrip()
            yield from terminal.below(f"    {file['outcome']:<10} ", text)
    yield ""


def _rows(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text of every line; the caller leaves out lines without text."""
    body = report["status"]
    vector, cache, batch = body["vector"], body["cache"], body["batch"]
    # Files that are left out from now on are in the index until the next run.
    there = max(body["files"], report["scan"]["totalFiles"])
    files = f"{body['files']:,}/{counted(there, 'file')}"
    outcomes = (f"{count:,} {name}" for name, count in body["outcomes"].items() if name != "indexed")
    failures = f"{batch['open']} open, failures {batch['failures']}/{batch['limit']}"
    batches = f"enabled from {counted(batch['minTexts'], 'text')} on ({failures})"
    yield "Provider", f"{body['provider']} (requested: {body['requestedProvider']})"
    yield "Model", body["model"]
    if engine := body["engine"]:
        yield "Engine", engine["version"]
    yield "Sources", ", ".join(body["sources"])
    yield "Extra paths", ", ".join(body["extraPaths"])
    yield "Indexed", f"{files} · {counted(body['chunks'], 'chunk')}"
    by_rule = Counter(each["reason"] for each in report["scan"]["leftOut"])
    yield "Left out", ", ".join((*outcomes, *(f"{count:,} by {rule}" for rule, count in by_rule.items())))
    yield "Dirty", "yes" if body["dirty"] else "no"
    yield "Store", _short(body["dbPath"])
    origin = body["workspaceOrigin"]
    yield "Workspace", f"{_short(body['workspaceDir'])}{f' ({_short(origin)})' * bool(origin)}"
    yield "Vectors", f"{vector['ready']:,} ready · {vector['wanted']:,} pending · {vector['failed']:,} failed"
    for failure in vector["failures"]:
        yield "Failed", f"{failure['path']}: {failure['reason']}"
    yield "sqlite-vec", _state(vector["available"], vector["loadError"], vector["enabled"])
    yield "Full text", _state(body["fts"]["available"], body["fts"]["error"], True)
    cached = f"{cache['cached']:,} of {counted(cache['maxEntries'], 'vector')}"
    yield "Cache", cached if cache["enabled"] else "disabled"
    yield "Batch", batches if batch["enabled"] else "disabled"
    if body["identity"] and body["identity"]["building"]:
        active, target = body["identity"]["active"], body["identity"]["target"]
        yield "Changing", f"{active['model']} is searched until {target['model']} is complete"
    if qmd := body.get("qmd"):
        yield "Backend", f"qmd {qmd['searchMode']} in {_short(qmd['home'])}"
    for breaker in body["breakers"]:
        if text := size_words(breaker):
            yield "Requests", f"{breaker['provider']} {text}"
    yield "Spent", spent_words(body["spending"])
    if probe := report.get("embeddingProbe"):
        yield "Embeddings", "ready" if probe["ok"] else f"unavailable: {probe['error']}"


def _state(is_available: bool, error: str, is_enabled: bool) -> str:
    if not is_enabled:
        return "disabled"
    return "ready" if is_available else f"unavailable: {error}"


def _short(path: str) -> str:
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path
