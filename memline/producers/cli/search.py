"""`memline search`, `get` and `lint`: questions answered from the notes, their lines, and their links."""

import shlex
from pathlib import Path
from typing import Any

import click

from memline.producers.cli.hits import for_programs, rows_of
from memline.producers.cli.invocation import AS_JSON, Invocation, command, current_folder
from memline.producers.cli.output import echo, echo_file, note, print_json, print_result, put
from memline.producers.memory import Memory
from memline.producers.read_note import cited_part
from memline.shared.errors import PathNotAllowed
from memline.shared.search.request import search_request
from memline.shared.sources.reading import READABLE
from memline.shared.values import to_json
from memline.shared.visible_text import in_name
from memline.shared.words import counted

#: More than any note has.
MAX_FILE_CHARS = 100_000_000

#: Hits.
_COUNT = click.IntRange(1)


@command(
    "memline search why did we choose redis",
    "memline search 'ERR_CONN_42' --path 'memory/**' --since 30d",
    "memline search 'deploy' --max-results 3 --json",
    "memline search 'deploy' --explain",
    "memline search 'deploy' --format files",
    "vim -q <(memline search 'deploy' --format vimgrep)",
)
@click.argument("words", nargs=-1, metavar="[QUERY]")
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
    help="Only notes with this tag, or one below it (boat/dinghy for boat); of several, with all.",
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
    invocation: Invocation, words: tuple[str, ...], query: str | None, as_json: bool, **options: Any
) -> None:
    """Answer a question from the notes, with file and line citations.

    Files that changed are brought into the keyword index first (sync.onSearch).
    """
    query = query or " ".join(words)
    if not query:
        raise click.UsageError("a question is missing: memline search 'what to look for'")
    limit, form = options.pop("limit"), options.pop("format") or ("json" if as_json else "text")
    if as_json and form != "json":
        raise click.UsageError(f"--json and --format {form} exclude each other")
    settings = invocation.agent()
    if not invocation.is_enabled(settings):
        if form == "json":
            where = {"workspace": str(settings.workspace)}
            print_json({"results": [], "disabled": True, "agentId": settings.agent, **where})
        return
    options["max_results"] = options["max_results"] or limit
    request = search_request(query, **options)
    answer = None
    if invocation.settings.queue.url and settings.content.memory.backend == "builtin":
        from memline.shared.queue.replies import ask_fleet

        answer = ask_fleet(invocation.settings.queue, settings.agent, request, index=settings.index_path.name)
    if answer is None:
        with Memory.of(invocation.settings, settings) as memory:
            answer = memory.ask(request).to_json()
    answer = invocation.typed(answer) | {"action": invocation.as_typed(answer["action"])}
    if form == "json":
        print_json(answer)
    else:
        invocation.name_workspace(settings)
        _print(answer, form, settings.workspace)


def _print(answer: dict[str, Any], form: str, workspace: Path) -> None:
    """Print the hits on standard output, and on standard error what they lack, before them, and findings."""
    if form == "text" and not answer["results"]:
        echo(answer["notice"] or "No matches.")
    elif answer["notice"]:
        note(answer["notice"])
    if form != "text":
        # What goes into another program is not coloured, and a file name with a control character no name.
        for line in for_programs(answer["results"], form, workspace):
            put(line)
    else:
        for hit in answer["results"]:
            for line in rows_of(hit, with_vectors=answer["mode"] != "keyword"):
                put(line)
            put("")
    advice = {""}
    for each in answer["findings"]:
        note(each["what"])
        # A sentence of what could be better is for `status`: a search asks for what is wrong, or one command.
        if each["action"] not in advice and (each["level"] != "note" or each["actionKind"] == "command"):
            advice.add(each["action"])
            note(f"Try: {each['action']}")


@command(
    "memline get MEMORY.md",
    "memline get memory/2026-02-10.md --from 40 --lines 20",
    "memline get 'Deploy plan'",
    "memline get memory/2026-02-10.md --json",
    "memline get 'sessions/4f9c2e1a.jsonl#L4-L9'",
)
@click.argument("path")
@click.option("--from", "first", type=click.IntRange(0), help="First line, 1-based.  [default: 1]")
@click.option(
    "--lines", type=click.IntRange(1), help="How many lines.  [default: 120, or those of the citation]"
)
@AS_JSON
def get(invocation: Invocation, path: str, first: int | None, lines: int | None, as_json: bool) -> int:
    """Print a memory file, some of its lines, or what was said in a past conversation.

    PATH is a path as `memline search` cites it, `path#L5-L7` or `path:5-7`. Or it is the title, an alias or
    the file name of a note, in any case, with .md or without. Title and aliases come before the file name,
    and the file name before the first heading. If several notes have the name, they are listed.

    With --json there are the notes that the note links to, and those that link to it.
    """
    settings = invocation.agent()
    memory = Memory.of(invocation.settings, settings)
    excerpt = memory.get(path, first=first, lines=lines)
    if as_json:
        print_json(excerpt.to_json())
        return 1 if excerpt.status == "not_found" else 0
    invocation.name_workspace(settings)
    if excerpt.status == "not_found":
        raise PathNotAllowed(f"{path} does not exist", hint=READABLE)
    if not excerpt.lines and excerpt.first > 1:
        whole = memory.get(excerpt.path, first=1, lines=excerpt.first, max_chars=MAX_FILE_CHARS)
        note(f"Error: {excerpt.path} has {counted(whole.lines, 'line')}, and no line {excerpt.first:,}")
        return 1
    if not excerpt.text and cited_part(path)[1].column > 1:
        note(f"Error: line {excerpt.first:,} of {excerpt.path} is shorter than that")
        return 1
    echo_file(excerpt.text)
    if excerpt.cut:
        rest = invocation.as_typed(f"memline get {shlex.quote(excerpt.rest)}")
        more = f": {rest}" if excerpt.rest else ""
        note(f"[line {excerpt.first:,} is longer, and cut here{more}]")
    if excerpt.next_from:
        note(f"[more: --from {excerpt.next_from}]")
    return 0


@command("memline lint", "memline lint --json", "vim -q <(memline lint)")
@AS_JSON
def lint(invocation: Invocation, as_json: bool) -> int:
    """Name the dead links of the notes, as path:line.

    `[[name]]` and Markdown links are read, but for those in code. Exit status 1 when there is one.
    """
    settings = invocation.agent()
    dead = Memory.of(invocation.settings, settings).lint()
    if not as_json:
        invocation.name_workspace(settings)
    # As an editor opens it from the current folder.
    above = "" if current_folder() == settings.workspace.resolve() else f"{settings.workspace}/"
    lines = [f"{above}{each.path}:{each.line}: dead link: {each.target}" for each in dead]
    # One line each, whatever is in the name of a file.
    answer = {
        "agentId": settings.agent,
        "workspace": str(settings.workspace),
        "deadLinks": [to_json(each) for each in dead],
    }
    print_result(answer, as_json, map(in_name, lines))
    return 1 if lines else 0
