"""`memline search`: a question answered from the notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memline.producers.cli.options import Invocation, advise, command, echo, print_json
from memline.shared import traces


@command(
    "memline search 'why did we choose redis'",
    "memline search 'ERR_CONN_42' --path 'memory/**' --since 30d",
    "memline search 'deploy' --max-results 3 --json",
    "memline search 'deploy' --full --explain",
    "memline search 'deploy' --format files | xargs less",
    "vim -q <(memline search 'deploy' --format vimgrep)",
    json=True,
)
@click.argument("query", required=False)
@click.option("--query", "query_option", metavar="QUERY", help="The question; wins over the argument.")
@click.option("-n", "--max-results", type=click.IntRange(min=1), help="Hits at most.  [default: 6]")
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
@click.option("--full", is_flag=True, help="Show whole snippets, not their best lines.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "jsonl", "files", "vimgrep"]),
    help="Text for a reader, or for another program: JSON, a hit a line, paths, path:line:column:text.",
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
    full: bool,
    form: str | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Answer a question from the notes, with file and line citations.

    Files that changed are brought into the keyword index first (sync.onSearch).
    """
    from memline.producers.memory import Memory, sees_private
    from memline.shared.search.results import SearchRequest

    question = query_option if query_option is not None else query
    if question is None:
        raise click.UsageError("a question is missing: memline search 'what to look for'")
    form = form or ("json" if as_json else "text")
    if as_json and form != "json":
        raise click.UsageError(f"--json and --format {form} exclude each other")
    settings = invocation.agent()
    if not settings.memory.enabled:
        if form == "json":
            print_json({"results": [], "disabled": True, "agentId": settings.agent})
        else:
            echo(f"Memory search is disabled for agent {settings.agent} (memorySearch.enabled).", err=True)
        return
    chat = None
    if session_key is not None:
        from memline.producers.agents.tools import chat_for

        chat = chat_for(settings, session_key)
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
    with traces.span("search", attributes={"memline.agent": settings.agent}):
        answer = None
        if invocation.settings.queue.url and settings.backend == "builtin":
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
    for each in (answer, *answer.get("findings", ())):
        each["action"] = invocation.as_typed(each["action"])
    if form == "json":
        print_json(answer)
    else:
        # An agent gets whole snippets.
        _print(answer, form, settings.workspace, full=full or chat is not None)


def _print(answer: dict[str, Any], form: str, workspace: Path, *, full: bool) -> None:
    """Print the hits on standard output, and on standard error what may be missing."""
    from memline.producers.cli import hits

    has_vectors = answer["mode"] != "keyword"
    if form != "text":
        # What goes into another program is not coloured, and a file name with a control character no name.
        for line in hits.for_programs(answer["results"], form, workspace):
            click.echo(line)
    else:
        for hit in answer["results"]:
            for line in hits.rows_of(hit, with_vectors=has_vectors, full=full, workspace=workspace):
                click.echo(line)
            for line in hits.explained(hit) if "explain" in hit else ():
                click.echo(line)
            click.echo()
        if not answer["results"]:
            echo("No matches.")
    if answer.get("timings"):
        echo("Took: " + ", ".join(f"{step} {ms:.1f} ms" for step, ms in answer["timings"].items()), err=True)
    for line in (answer["notice"], *(each["what"] for each in answer.get("findings", ()))):
        if line:
            echo(line, err=True)
    if answer["action"]:
        advise(answer["action"])
