"""`memline status`: what is indexed, what is behind, and what is not as it should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from producers.cli.options import Invocation, examples, global_options, json_option, print_json


@click.command(epilog=examples("memline status", "memline status --deep", "memline status --index --json"))
@click.option("--deep", is_flag=True, help="Ask the provider for one vector, to see that it works.")
@click.option(
    "--index", "index_first", is_flag=True, help="Bring the index up to date first (implies --deep)."
)
@click.option("--verbose", is_flag=True, help="Name every file that is left out, and why.")
@json_option
@global_options
def status(invocation: Invocation, deep: bool, index_first: bool, verbose: bool, as_json: bool) -> int | None:
    """Say what is indexed, what is behind, and what is not as it should be."""
    from producers.status import collect

    failed = False
    if index_first:
        from producers.cli.progress import index_agents

        failed = any(report.failed for report in index_agents(invocation.settings, invocation.agents()))
    found = [collect(settings, deep=deep or index_first) for settings in invocation.agents()]
    if verbose:
        for one in found:
            one["files"] = _left_out(one["status"]["dbPath"])
    if as_json:
        print_json(found)
    else:
        for one in found:
            _print(one)
    return 1 if failed else None


def _left_out(path: str) -> list[dict[str, str]]:
    from shared.errors import IndexFault
    from shared.index import ledger
    from shared.index.driver import reading
    from shared.sources.outcomes import INDEXED

    try:
        with reading(Path(path)) as reader:
            return [
                {"path": entry.path, "outcome": entry.outcome, "reason": entry.reason}
                for entry in ledger.entries(reader).values()
                if entry.outcome != INDEXED or entry.reason
            ]
    except IndexFault:
        return []


def _print(one: dict[str, Any]) -> None:
    body = one["status"]
    vector, cache, scan = body["vector"], body["cache"], one["scan"]
    click.secho(f"Memory search ({one['agentId']})", bold=True)
    rows = [
        ("Provider", f"{body['provider']} (requested: {body['requestedProvider']})"),
        ("Model", body["model"]),
        ("", body["providerReason"]),
        ("Sources", ", ".join(body["sources"])),
        ("Extra paths", ", ".join(body["extraPaths"])),
        ("Indexed", f"{body['files']}/{scan['totalFiles']} files · {body['chunks']} chunks"),
        ("Left out", _counts(body["outcomes"])),
        ("Dirty", _behind(body)),
        ("Store", _short(body["dbPath"])),
        ("Workspace", _short(body["workspaceDir"])),
        ("Vectors", f"{vector['ready']} ready · {vector['wanted']} wanted · {vector['failed']} failed"),
        ("sqlite-vec", _state(vector["available"], vector["loadError"], vector["enabled"])),
        ("Full text", _state(body["fts"]["available"], body["fts"]["error"], True)),
        ("Cache", f"{cache['entries']} of {cache['maxEntries']} vectors" if cache["enabled"] else "disabled"),
        ("Batch", _batch(body["batch"])),
    ]
    if body["identity"] and body["identity"]["building"]:
        active, target = body["identity"]["active"], body["identity"]["target"]
        rows.append(("Changing", f"{active['model']} is searched until {target['model']} is complete"))
    if body["fallback"]:
        rows.append(("Fallback", f"from {body['fallback']['from']}: {body['fallback']['reason']}"))
    rows += _breakers(body)
    if "embeddingProbe" in one:
        probe = one["embeddingProbe"]
        rows.append(("Embeddings", "ready" if probe["ok"] else f"unavailable: {probe['error']}"))
    if body.get("error"):
        rows.append(("Error", f"{body['error']} (try: {body['action']})"))
    for label, text in rows:
        if text:
            click.echo(f"  {label + ':' if label else '':<13}{text}")
    if scan["issues"]:
        click.echo("  Issues:")
        for issue in scan["issues"]:
            click.echo(f"    {issue}")
    for file in one.get("files", ()):
        click.echo(f"    {file['outcome']:<10} {file['path']}  {file['reason']}")
    click.echo()


def _batch(batch: dict[str, Any]) -> str:
    if not batch["enabled"]:
        return "disabled"
    words = (
        f"enabled from {batch['minTexts']} texts on"
        f" ({batch['open']} open, failures {batch['failures']}/{batch['limit']})"
    )
    return words + (f", last: {batch['lastError']}" if batch["lastError"] else "")


def _breakers(body: dict[str, Any]) -> list[tuple[str, str]]:
    import time

    from producers.breakers import words

    rows = [
        ("Paused", f"{each['provider']} {text}")
        for each in body["breakers"]
        if (text := words(each, time.time()))
    ]
    was = body["fallback"]
    if was and body["identity"] and not any(each["provider"] == was["from"] for each in body["breakers"]):
        rows.append(("", f"{was['from']} is well again (memline index goes back to it)"))
    return rows


def _counts(outcomes: dict[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items() if outcome != "indexed")


def _behind(body: dict[str, Any]) -> str:
    if not body["dirty"]:
        return "no"
    behind = body["behind"]
    return f"yes: {behind['files']} files and {behind['vectors']} vectors behind (memline index)"


def _state(available: bool, error: str, enabled: bool) -> str:
    if not enabled:
        return "disabled"
    return "ready" if available else f"unavailable: {error}"


def _short(path: str) -> str:
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path
