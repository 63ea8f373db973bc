"""`memline search`: a question answered from the notes."""

from pathlib import Path
from typing import Any

import click

from memline.producers.cli.invocation import AS_JSON, Invocation, command
from memline.producers.cli.output import echo, note, print_json, put
from memline.producers.memory import Memory
from memline.shared.search.request import search_request

#: Hits.
_COUNT = click.IntRange(1)


@command(
    "memline search 'why did we choose redis'",
    "memline search 'ERR_CONN_42' --path 'memory/**' --since 30d",
    "memline search 'deploy' --max-results 3 --json",
    "memline search 'deploy' --explain",
    "memline search 'deploy' --format files",
    "vim -q <(memline search 'deploy' --format vimgrep)",
)
@click.argument("words", required=False, metavar="[QUERY]")
@click.option("--query", help="The question; wins over the argument.")
@click.option("--max-results", "-n", type=_COUNT, help="Hits at most.  [default: 6, as configured]")
@click.option("--limit", "-k", type=_COUNT, hidden=True)
@click.option(
    "--min-score",
    type=click.FloatRange(0, 1),
    help="Similarity below which a hit without any word of the query is left out.  [default: 0.35]",
)
@click.option(
    "--source",
    type=click.Choice(["memory", "sessions", "all"]),
    help="Where to look: memory (notes), sessions (past conversations), or all.  [default: all]",
)
@click.option("--path", metavar="GLOB", help="Only files that match this glob, such as memory/2026-02-*.md.")
@click.option("--exclude", metavar="GLOB", help="Leave out files that match this glob, such as archive/**.")
@click.option(
    "--tag",
    multiple=True,
    metavar="TAG",
    help="Only notes with this tag, or one below it (boat/dinghy for boat); of several, or a,b, with all.",
)
@click.option(
    "--since",
    metavar="DAY",
    help="Only notes from this day on: 2026-02-10, 30d, yesterday, last week, March 2026.",
)
@click.option(
    "--until",
    metavar="DAY",
    help="Only notes up to this day, or the last of these days: 2026-02-10, 30d, last week.",
)
@click.option("--explain", is_flag=True, help="Show how each score came about.")
@click.option(
    "--format",
    type=click.Choice(["text", "json", "files", "vimgrep"]),
    help="Text for a reader, or for another program: JSON, paths, path:line:column:text.  [default: text]",
)
@AS_JSON
def search(
    invocation: Invocation,
    words: str | None,
    query: str | None,
    max_results: int | None,
    limit: int | None,
    format: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Answer a question from the notes, with file and line citations.

    Files that changed are brought into the keyword index first (sync.onSearch).
    """
    query = query or words
    if query is None:
        raise click.UsageError("a question is missing: memline search 'what to look for'")
    form = format or ("json" if as_json else "text")
    if as_json and form != "json":
        raise click.UsageError(f"--json and --format {form} exclude each other")
    settings = invocation.agent()
    if not invocation.is_enabled(settings):
        if form == "json":
            where = {"workspace": str(settings.workspace)}
            print_json({"results": [], "disabled": True, "agentId": settings.agent, **where})
        return
    request = search_request(query, max_results=max_results or limit, **options)
    answer = None
    if invocation.settings.queue.url and settings.content.memory.backend == "builtin":
        from memline.shared.queue.replies import ask_fleet

        answer = ask_fleet(invocation.settings.queue, settings.agent, request, index=settings.index_path.name)
    if answer is None:
        with Memory.of(invocation.settings, settings) as memory:
            answer = memory.ask(request, face="cli").to_json()
    answer = invocation.typed(answer) | {"action": invocation.as_typed(answer["action"])}
    if form == "json":
        print_json(answer)
    else:
        invocation.name_workspace(settings)
        _print(answer, form, settings.workspace)


def _print(answer: dict[str, Any], form: str, workspace: Path) -> None:
    """Print the hits on standard output, and on standard error what may be missing."""
    from memline.producers.cli import hits

    if form != "text":
        # What goes into another program is not coloured, and a file name with a control character no name.
        for line in hits.for_programs(answer["results"], form, workspace):
            put(line)
    else:
        for hit in answer["results"]:
            for line in hits.rows_of(hit, with_vectors=answer["mode"] != "keyword"):
                put(line)
            put("")
        if not answer["results"]:
            echo("No matches.")
    if answer["notice"]:
        note(answer["notice"])
    advice = {""}
    for each in answer["findings"]:
        note(each["what"])
        # A sentence of what could be better is for `status`: a search asks for what is wrong, or one command.
        if each["action"] not in advice and (each["level"] != "note" or each["actionKind"] == "command"):
            advice.add(each["action"])
            note(f"Try: {each['action']}")
