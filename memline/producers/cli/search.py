"""`memline search`: a question answered from the notes."""

from __future__ import annotations

from pathlib import Path

import click

from memline.producers.calls.table import CALLS
from memline.producers.cli.invocation import Invocation, echo, print_json, put
from memline.producers.cli.table_commands import asks
from memline.producers.memory import Memory, sees_private
from memline.shared.search.request import search_request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@asks(CALLS["search"])
def search(
    invocation: Invocation,
    query: str | None,
    session_key: str | None,
    full: bool,
    format: str | None,
    null: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the answer to a question; `options` are those of `SearchOptions`."""
    if query is None:
        raise click.UsageError("a question is missing: memline search 'what to look for'")
    form = format or ("json" if as_json else "text")
    if as_json and form != "json":
        raise click.UsageError(f"--json and --format {form} exclude each other")
    if null and form != "files":
        raise click.UsageError("--null goes with --format files")
    settings = invocation.agent()
    if not invocation.is_enabled(settings):
        if form == "json":
            where = {"workspace": str(settings.workspace)}
            print_json({"results": [], "disabled": True, "agentId": settings.agent, **where})
        return
    chat = None
    if session_key is not None:
        from memline.producers.agents.tools import chat_for

        chat = chat_for(settings, session_key)
    request = search_request(query, private=sees_private(settings, chat), **options)
    answer = None
    if invocation.settings.queue.url and settings.backend == "builtin":
        from memline.shared.queue.replies import ask_fleet

        answer = ask_fleet(
            invocation.settings.queue.address, settings.agent, request, index=settings.index_path.name
        )
    if answer is None:
        with Memory.of(invocation.settings, settings) as memory:
            answer = memory.ask(request, face="cli").to_json()
    if chat is not None:
        from memline.producers.agents.tools import denied_answer, view_for

        answer = denied_answer(settings, chat) or view_for(chat, settings, answer)
    for each in (answer, *answer.get("findings", ())):
        each["action"] = invocation.as_typed(each["action"])
    if form == "json":
        print_json(answer)
    else:
        invocation.name_workspace(settings)
        # An agent gets whole snippets.
        _print(answer, form, settings.workspace, full=full or chat is not None, null=null)


def _print(answer: dict[str, Any], form: str, workspace: Path, *, full: bool, null: bool) -> None:
    """Print the hits on standard output, and on standard error what may be missing."""
    from memline.producers.cli import hits

    has_vectors = answer["mode"] != "keyword"
    if form != "text":
        # What goes into another program is not coloured, and a file name with a control character no name.
        for line in hits.for_programs(answer["results"], form, workspace, is_raw=null):
            put(line, end="\0" if null else "\n")
    else:
        for hit in answer["results"]:
            for line in hits.rows_of(hit, with_vectors=has_vectors, full=full, workspace=workspace):
                put(line)
            for line in hits.explained(hit) if "explain" in hit else ():
                put(line)
            put("")
        if not answer["results"]:
            echo("No matches.")
    if answer.get("timings"):
        echo("Took: " + ", ".join(f"{step} {ms:.1f} ms" for step, ms in answer["timings"].items()), err=True)
    if answer["notice"]:
        echo(answer["notice"], err=True)
    said = {""}
    for each in answer.get("findings", ()):
        echo(each["what"], err=True)
        # A sentence of what could be better is for `status`: a search asks for what is wrong, or one command.
        if each["action"] not in said and (each["level"] != "note" or each["actionKind"] == "command"):
            said.add(each["action"])
            echo(f"Try: {each['action']}", err=True)
