"""`memline status` and `memline doctor`: what is indexed, what is behind, what is wrong and what mends it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from memline.producers.cli.options import Invocation, command, echo, print_json, print_result, printable
from memline.shared.words import counted

#: Puts the options of this command line into the commands of a hint.
Typed = Callable[[str], str]

_MARKS = {"ok": ("ok", "green"), "warning": ("warn", "yellow"), "problem": ("FAIL", "red")}


@command("memline doctor", "memline doctor --deep", "memline doctor --json", json=True)
@click.option("--deep", is_flag=True, help="Ask each provider for one vector, to see that it works.")
def doctor(invocation: Invocation, deep: bool, as_json: bool) -> int | None:
    """Find problems of the installation and of each agent's memory, with the command that fixes each."""
    from memline.producers.reports.doctor import Finding, examine_agent, examine_fleet, examine_installation
    from memline.shared.errors import MemlineError

    findings = list(examine_installation())
    try:
        for text in invocation.loaded.warnings:
            findings.append(Finding(level="warning", what=text, fix="memline config check"))
        findings.extend(examine_fleet(invocation.settings, invocation.agents()))
        for settings in invocation.agents():
            findings.extend(examine_agent(settings, deep=deep))
    except MemlineError as error:
        findings.append(Finding(level="problem", what=error.message, fix=error.hint))
    findings = [finding._replace(fix=invocation.as_typed(finding.fix)) for finding in findings]
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            mark, color = _MARKS[finding.level]
            click.echo(f"{click.style(f'{mark:<5}', fg=color)}{printable(finding.what)}")
            if finding.fix:
                echo(f"     try: {finding.fix}")
    return 1 if any(finding.level == "problem" for finding in findings) else None


@command("memline status", "memline status --deep", "memline status --index --json", json=True)
@click.option("--deep", is_flag=True, help="Ask the provider for one vector, to see that it works.")
@click.option(
    "--index", "index_first", is_flag=True, help="Bring the index up to date first (implies --deep)."
)
@click.option("--verbose", is_flag=True, help="Name every file that is left out, and why.")
def status(invocation: Invocation, deep: bool, index_first: bool, verbose: bool, as_json: bool) -> int | None:
    """Say what is indexed, what is behind, and what is not as it should be."""
    from memline.producers.memory import Memory
    from memline.producers.reports.status import left_out_files

    has_failed = False
    if index_first:
        from memline.producers.cli.index import index_agents

        has_failed = any(report.failed for report in index_agents(invocation.settings, invocation.agents()))
    reports = []
    for settings in invocation.agents():
        report = Memory.of(invocation.settings, settings).status(deep=deep or index_first).details
        if verbose:
            report["files"] = left_out_files(settings)
        reports.append(report)
    lines = (line for report in reports for line in _lines(report, invocation.as_typed))
    print_result(reports, as_json, lines)
    return 1 if has_failed else None


def _lines(report: dict[str, Any], typed: Typed) -> Iterator[str]:
    yield f"Memory search ({report['agentId']})"
    for label, text in _rows(report, typed):
        if text:
            yield f"  {label + ':' if label else '':<13}{text}"
    if issues := report["scan"]["issues"]:
        yield "  Issues:"
        yield from (f"    {issue}" for issue in issues)
    for each in report["scan"]["leftOut"] if "files" in report else ():
        yield f"    {'left out':<10} {each['path']}  {each['reason']}"
    for file in report.get("files", ()):
        yield f"    {file['outcome']:<10} {file['path']}  {file['reason']}"
    yield ""


def _rows(report: dict[str, Any], typed: Typed) -> Iterator[tuple[str, str]]:
    """Yield label and text of every line; the caller leaves out lines without text."""
    from memline.producers.reports.breakers import size_words, words
    from memline.producers.reports.fleet_state import spent_words
    from memline.producers.reports.status import retriable_provider

    body = report["status"]
    vector, cache, batch, behind = body["vector"], body["cache"], body["batch"], body["behind"]
    files = f"{body['files']}/{counted(report['scan']['totalFiles'], 'file')}"
    outcomes = (f"{count} {name}" for name, count in body["outcomes"].items() if name != "indexed")
    index = typed("memline index")
    missing = f"{counted(behind['files'], 'file')} and {counted(behind['vectors'], 'vector')}"
    dirty = f"yes: {missing} behind ({index})"
    failures = f"{batch['open']} open, failures {batch['failures']}/{batch['limit']}"
    last = f", last: {batch['lastError']}" if batch["lastError"] else ""
    batches = f"enabled from {counted(batch['minTexts'], 'text')} on ({failures}){last}"
    yield "Provider", f"{body['provider']} (requested: {body['requestedProvider']})"
    yield "Model", body["model"]
    if engine := body["engine"]:
        yield "Engine", engine["error"] or engine["version"]
        yield "", f"Try: {engine['action']}" if engine["error"] else ""
    yield "", body["providerReason"]
    if reranker := body["reranker"]:
        yield "Reranker", reranker["error"] or f"{reranker['model']} ({reranker['engine']})"
        yield "", f"Try: {reranker['action']}" if reranker["error"] else ""
    yield "Sources", ", ".join(body["sources"])
    yield "Extra paths", ", ".join(body["extraPaths"])
    yield "Indexed", f"{files} · {counted(body['chunks'], 'chunk')}"
    by_rule = Counter(each["reason"] for each in report["scan"]["leftOut"])
    yield "Left out", ", ".join((*outcomes, *(f"{count} by {rule}" for rule, count in by_rule.items())))
    yield "Forgotten", counted(body["forgotten"], "text") if body["forgotten"] else ""
    yield "Dirty", dirty if body["dirty"] else "no"
    yield "Store", _short(body["dbPath"])
    origin = body["workspaceOrigin"]
    yield "Workspace", f"{_short(body['workspaceDir'])}{f' ({_short(origin)})' * bool(origin)}"
    yield "Vectors", f"{vector['ready']} ready · {vector['wanted']} wanted · {vector['failed']} failed"
    for failure in vector["failures"]:
        yield "Failed", f"{failure['path']}: {failure['reason']}"
    yield "sqlite-vec", _state(vector["available"], vector["loadError"], vector["enabled"])
    yield "Full text", _state(body["fts"]["available"], body["fts"]["error"], True)
    yield (
        "Cache",
        f"{cache['cached']} of {counted(cache['maxEntries'], 'vector')}" if cache["enabled"] else "disabled",
    )
    yield "Batch", batches if batch["enabled"] else "disabled"
    yield "New model", f"{body['modelDiffers']} ({index})" if body["modelDiffers"] else ""
    if body["identity"] and body["identity"]["building"]:
        active, target = body["identity"]["active"], body["identity"]["target"]
        yield "Changing", f"{active['model']} is searched until {target['model']} is complete"
    if qmd := body.get("qmd"):
        yield "Backend", f"qmd {qmd['searchMode']} in {_short(qmd['home'])}"
        yield "", qmd["updateError"] or qmd["embedError"]
    if body["fallback"]:
        yield "Fallback", f"from {body['fallback']['from']}: {body['fallback']['reason']}"
    for breaker in body["breakers"]:
        if text := words(breaker, time.time()):
            yield "Paused", f"{breaker['provider']} {text}"
        if text := size_words(breaker):
            yield "Requests", f"{breaker['provider']} {text}"
    if body["ceiling"]:
        yield "Paused", f"{body['ceiling']['reason']} (try: {typed(body['ceiling']['action'])})"
    if body["moving"]:
        yield "Moving", f"{body['moving']['reason']} (try: {typed(body['moving']['action'])})"
    yield "Spent", spent_words(body["spending"])
    if retriable := retriable_provider(body, time.time()):
        yield "", f"{retriable} can be tried again ({index} switches back to it)"
    for each in body["loopErrors"]:
        yield "Trouble", f"{each['part']}: {each['error']} (try: {typed(each['action'])})"
    if probe := report.get("embeddingProbe"):
        yield "Embeddings", "ready" if probe["ok"] else f"unavailable: {probe['error']}"
    if body.get("error"):
        yield "Error", f"{body['error']} (try: {typed(body['action'])})"


def _state(is_available: bool, error: str, is_enabled: bool) -> str:
    if not is_enabled:
        return "disabled"
    return "ready" if is_available else f"unavailable: {error}"


def _short(path: str) -> str:
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path
