"""`memline setup` connects an MCP client; `hook` answers Claude Code; `flush` writes a session down."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click

from memline.producers.agents.session_context import answer_hook
from memline.producers.bridges.clients import CLIENTS, Server, own_command
from memline.producers.calls.table import CALLS
from memline.producers.cli.invocation import Invocation, echo, json_line, print_json
from memline.producers.cli.options import confirm
from memline.producers.cli.table_commands import asks
from memline.shared.clock import SystemClock
from memline.shared.config import config_file, environment
from memline.shared.embedders.choice import choose
from memline.shared.errors import MemlineError, NoWorkspace


@asks(CALLS["setup"])
def setup(
    invocation: Invocation, client: str, is_written: bool, yes: bool, file: str | None, name: str | None
) -> int | None:
    if yes and not is_written:
        raise click.UsageError("--yes goes with --write")
    known, name = CLIENTS[client], name or "memline"
    path = Path(file).expanduser().absolute() if file else known.file(os.environ)
    server, settings = _server(invocation), invocation.agent()
    snippet = known.snippet(name, server)
    echo(f"{settings.workspace} ({settings.workspace_origin})", err=True)
    if is_written and not file and (words := known.add_command(name, server)):
        if not confirm(f"Run {shlex.join(words)}?", is_answered=yes):
            return 1
        return subprocess.run(words).returncode
    content = known.plain_content(path) if is_written else None
    if content is not None:
        if not confirm(CALLS["setup"].asks.format(path=path), is_answered=yes):
            return 1
        config_file.write(path, known.with_server(content, name, server))
        echo(f"Wrote {path}. Start {known.title} again.")
    else:
        click.echo(snippet, nl=False)
        echo(f"{'Add it yourself to' if is_written else f'For {known.title}:'} {path}", err=True)
        if known.command:
            echo(f"Or: {known.command.format(name=name, line=server.line)}", err=True)
    if server.key_variable:
        echo(f"{known.title} has to be started with {server.key_variable} set.", err=True)
    return 1 if is_written and content is None else None


def _server(invocation: Invocation) -> Server:
    """Return how a client starts this memory: what it is found by here may not hold there."""
    settings = invocation.agent()
    choice = choose(settings)
    has_key = choice.identity is not None and choice.provider in settings.environment_keys
    variable = environment.provider_key_name(os.environ, choice.provider) if has_key else ""
    return Server(
        command=own_command(), args=(*invocation.everywhere(settings).given(), "mcp"), key_variable=variable
    )


@asks(CALLS["hook"])
def hook(invocation: Invocation) -> None:
    try:
        event = json.loads(sys.stdin.buffer.read())
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        # Not a wrong usage: with status 2 a hook stops the compaction.
        raise MemlineError("there is no event as JSON on standard input", hint="memline hook --help")
    folder = event.get("cwd")
    if isinstance(folder, str) and os.path.isdir(folder):
        # Its notes are those of the folder in which the session works.
        os.chdir(folder)
    try:
        answered = answer_hook(invocation.agent(), event)
    except NoWorkspace:
        # A folder without notes: the plugin is there for others.
        answered = {}
    except MemlineError as error:
        hint = f". Try: {error.hint}" if error.hint else ""
        answered = {"systemMessage": f"memline: {error.message}{hint}"}
    if answered:
        click.echo(json_line(answered))


@asks(CALLS["flush"])
def flush(invocation: Invocation, session: str, as_json: bool) -> int | None:
    # Its HTTP client takes 60 ms, which a hook at the start of a session does not need.
    from memline.shared.flush.flush import SKIPPED, Session, folder_of
    from memline.shared.flush.flush import flush as flush_now

    settings = invocation.agent()
    name = f"{session.removesuffix('.jsonl')}.jsonl"
    if "/" in session:
        raise click.UsageError(f"{session[:80]!r} is not a name of a transcript")
    asked = Session(settings=settings, path=folder_of(settings) / name)
    flushed = flush_now(asked, SystemClock())
    if as_json:
        print_json({"session": name, "outcome": flushed.outcome, "reason": flushed.reason})
    else:
        echo(f"{flushed.outcome}: {flushed.reason}")
    return 1 if flushed.outcome == SKIPPED else 0
