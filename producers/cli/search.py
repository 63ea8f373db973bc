"""`memline search`: a question answered from the notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from producers.cli.options import Invocation, examples, global_options, json_option, print_json

if TYPE_CHECKING:
    from shared.config.schema import AgentSettings


@click.command(
    epilog=examples(
        "memline search 'why did we choose redis'",
        "memline search 'ERR_CONN_42' --path 'memory/**' --since 30d",
        "memline search 'deploy' --max-results 3 --json",
        "memline search 'deploy' --explain",
    )
)
@click.argument("query", required=False)
@click.option("--query", "query_option", metavar="QUERY", help="The question; wins over the argument.")
@click.option("--max-results", type=click.IntRange(min=1), help="Hits at most.  [default: 6]")
@click.option(
    "--min-score",
    type=click.FloatRange(0, 1),
    help="Cosine below which a hit without any matching word is left out.  [default: 0.35]",
)
@click.option("--source", type=click.Choice(["memory", "sessions", "all"]), help="Only this source.")
@click.option("--path", "path_glob", metavar="GLOB", help="Only files that match, e.g. 'memory/**'.")
@click.option("--since", metavar="D", help="Only notes from this day on: 2026-02-10, 30d, 2w.")
@click.option("--until", metavar="D", help="Only notes up to this day.")
@click.option(
    "--session-key",
    metavar="KEY",
    help="Show what an agent gets in this session: citations, budget and memory.scope apply.",
)
@click.option("--explain", is_flag=True, help="Show how each score came about.")
@json_option
@global_options
def search(
    invocation: Invocation,
    query: str | None,
    query_option: str | None,
    max_results: int | None,
    min_score: float | None,
    source: str | None,
    path_glob: str | None,
    since: str | None,
    until: str | None,
    session_key: str | None,
    explain: bool,
    as_json: bool,
) -> int | None:
    """Answer a question from the notes, with file and line citations.

    Files that changed are brought into the keyword index first (sync.onSearch).
    """
    from producers.ask import answer
    from shared.search.results import SearchRequest

    question = query_option if query_option is not None else query
    if question is None:
        raise click.UsageError("a question is missing: memline search 'what to look for'")
    settings = invocation.agent()
    if not settings.memory.enabled:
        return _disabled(settings.agent, as_json)
    request = SearchRequest(
        query=question,
        max_results=max_results,
        min_score=min_score,
        source="" if source is None or source == "all" else source,
        path_glob=path_glob or "",
        since=since or "",
        until=until or "",
        explain=explain,
    )
    found = answer(invocation.settings, settings, request)
    if session_key is not None:
        found = _as_agent_sees(settings, session_key, found)
    if as_json:
        print_json(found)
    else:
        _print(found)
    return None


def _as_agent_sees(settings: AgentSettings, session_key: str, found: dict[str, Any]) -> dict[str, Any]:
    from producers.memory_tools import no_memory, seen_in
    from shared.search.chats import chat_of

    chat = chat_of(session_key)
    refused = no_memory(settings, chat)
    return seen_in(chat, settings, found) if refused is None else refused


def _disabled(agent: str, as_json: bool) -> int:
    if as_json:
        print_json({"results": [], "disabled": True, "agentId": agent})
    else:
        click.echo(f"Memory search is disabled for agent {agent} (memorySearch.enabled).", err=True)
    return 0


def _print(answer: dict[str, Any]) -> None:
    for hit in answer["results"]:
        _print_hit(hit)
    if not answer["results"]:
        click.echo("No matches.")
    for line in (answer["notice"], answer["warning"]):
        if line:
            click.echo(line, err=True)
    if answer["action"]:
        click.echo(f"Try: {answer['action']}", err=True)
    if answer["stale"]:
        behind = answer["behind"]
        click.echo(
            f"Stale: {behind['files']} files and {behind['vectors']} vectors are not in the index yet"
            " (memline index, or leave memline up running).",
            err=True,
        )


def _print_hit(hit: dict[str, Any]) -> None:
    score = click.style(f"{hit['score']:.3f}", bold=True)
    citation = click.style(hit.get("citation", hit["path"]), fg="cyan")
    click.echo(f"{score} {citation}  (vector {hit['vectorScore']:.2f}, text {hit['textScore']:.2f})")
    for line in hit["snippet"].splitlines():
        click.echo(f"    {line}")
    if "explain" in hit:
        parts = ((key, value) for key, value in hit["explain"].items() if value not in (None, "", []))
        click.echo("    " + ", ".join(f"{key}={_short(value)}" for key, value in parts))
    click.echo()


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
