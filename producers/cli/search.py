"""`memline search`: a question answered from the notes."""

from __future__ import annotations

from typing import Any

import click

from memline.producers.cli.options import Invocation, command, echo, print_json, printable


@command(
    "memline search 'why did we choose redis'",
    "memline search 'ERR_CONN_42' --path 'memory/**' --since 30d",
    "memline search 'deploy' --max-results 3 --json",
    "memline search 'deploy' --explain",
    json=True,
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
    help="Show what an agent gets in this session: citations, budget, memory.scope, no MEMORY.md in groups.",
)
@click.option("--explain", is_flag=True, help="Show how each score came about.")
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
) -> None:
    """Answer a question from the notes, with file and line citations.

    Files that changed are brought into the keyword index first (sync.onSearch).
    """
    from memline.producers.memory import Memory, sees_private
    from memline.shared.search.agent_view import chat_of
    from memline.shared.search.results import SearchRequest

    question = query_option if query_option is not None else query
    if question is None:
        raise click.UsageError("a question is missing: memline search 'what to look for'")
    settings = invocation.agent()
    if not settings.memory.enabled:
        if as_json:
            print_json({"results": [], "disabled": True, "agentId": settings.agent})
        else:
            echo(f"Memory search is disabled for agent {settings.agent} (memorySearch.enabled).", err=True)
        return
    chat = None if session_key is None else chat_of(session_key)
    request = SearchRequest(
        query=question,
        max_results=max_results,
        min_score=min_score,
        source="" if source is None or source == "all" else source,
        path_glob=path_glob or "",
        since=since or "",
        until=until or "",
        explain=explain,
        private=sees_private(settings, chat),
    )
    answer = None
    if invocation.settings.queue.url:
        from memline.producers.ask import ask_fleet

        answer = ask_fleet(
            invocation.settings.queue.address, settings.agent, request, index=settings.index_path.name
        )
    if answer is None:
        with Memory.of(invocation.settings, settings) as memory:
            answer = memory.ask(request).to_json()
    if chat is not None:
        from memline.producers.agents.tools import denied_answer, view_for

        answer = denied_answer(settings, chat) or view_for(chat, settings, answer)
    if as_json:
        print_json(answer)
    else:
        _print(answer)


def _print(answer: dict[str, Any]) -> None:
    for hit in answer["results"]:
        _print_hit(hit)
    if not answer["results"]:
        echo("No matches.")
    for line in (answer["notice"], answer["warning"]):
        if line:
            echo(line, err=True)
    if answer["action"]:
        echo(f"Try: {answer['action']}", err=True)
    if answer["stale"]:
        behind = answer["behind"]
        echo(
            f"Stale: {behind['files']} files and {behind['vectors']} vectors are not in the index yet"
            " (memline index, or leave memline up running).",
            err=True,
        )


def _print_hit(hit: dict[str, Any]) -> None:
    score = click.style(f"{hit['score']:.3f}", bold=True)
    citation = click.style(printable(hit.get("citation", hit["path"])), fg="cyan")
    click.echo(f"{score} {citation}  (vector {hit['vectorScore']:.2f}, text {hit['textScore']:.2f})")
    for line in hit["snippet"].splitlines():
        echo(f"    {line}")
    if "explain" in hit:
        parts = {key: value for key, value in hit["explain"].items() if value not in (None, "", [])}
        shown = {key: round(each, 4) if isinstance(each, float) else each for key, each in parts.items()}
        echo("    " + ", ".join(f"{key}={each}" for key, each in shown.items()))
    click.echo()
