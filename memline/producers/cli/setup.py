"""`memline setup` connects an MCP client; `hook` answers Claude Code; `flush` writes a session down."""

from __future__ import annotations

import difflib
import json
import os
import sys
import time
from pathlib import Path

import click

from memline.producers.agents.session_context import answer_hook
from memline.producers.bridges.clients import CLIENTS, Client, Server, own_command
from memline.producers.calls.table import CALLS
from memline.producers.cli.invocation import Invocation, echo, json_line, print_json
from memline.producers.cli.options import confirm
from memline.producers.cli.table_commands import asks
from memline.shared.clock import SystemClock
from memline.shared.config import config_file, environment
from memline.shared.embedders.choice import choose
from memline.shared.errors import ConfigError, MemlineError, NoWorkspace


@asks(CALLS["setup"])
def setup(
    invocation: Invocation,
    client: str,
    is_written: bool,
    remove: bool,
    yes: bool,
    file: str | None,
    name: str | None,
) -> int | None:
    if yes and not (is_written or remove):
        raise click.UsageError("--yes goes with --write or --remove")
    known, name = CLIENTS[client], name or "memline"
    path = Path(file).expanduser().absolute() if file else known.file(os.environ)
    before = _read(path)
    if remove:
        kept = [_read(each) for each in sorted(path.parent.glob(f"{path.name}.*.bak"), reverse=True)]
        after = known.removed(before, name, [*kept, ""], where=str(path))
        if after == before:
            echo(f"{path} has no server {name}; nothing was changed.")
            return None
        return _write(known, path, before, after, yes=yes, was_empty="" in kept)
    server, settings = _server(invocation), invocation.agent()
    echo(f"{settings.workspace} ({settings.workspace_origin})", err=True)
    if is_written:
        after = known.changed(before, name, known.values(server), where=str(path))
        if after == before:
            echo(f"{path} has it already; nothing was changed.")
            return None
        return _write(known, path, before, after, yes=yes)
    click.echo(known.snippet(name, server), nl=False)
    echo(f"For {known.title}: {path}", err=True)
    if known.command:
        echo(f"Or: {known.command.format(name=name, line=server.line)}", err=True)
    if server.key_variable:
        echo(f"{known.title} has to be started with {server.key_variable} set.", err=True)
    return None


def _server(invocation: Invocation) -> Server:
    """Return how a client starts this memory: what it is found by here may not hold there."""
    settings = invocation.agent()
    choice = choose(settings)
    has_key = choice.identity is not None and choice.provider in settings.environment_keys
    variable = environment.provider_key_name(os.environ, choice.provider) if has_key else ""
    return Server(
        command=own_command(), args=(*invocation.everywhere(settings).given(), "mcp"), key_variable=variable
    )


def _write(
    client: Client, path: Path, before: str, after: str, *, yes: bool, was_empty: bool = False
) -> int | None:
    """Change the client's file once the difference is agreed to. What is empty then, and was not, goes."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{path} (as it is)", f"{path} (changed)", lineterm=""
    )
    for line in lines:
        echo(line)
    if not confirm(CALLS["setup"].asks.format(path=path), is_answered=yes):
        return 1

    if _read(path) != before:
        raise MemlineError(f"{path} was changed meanwhile; nothing was written", hint="run it again")
    if path.exists():
        # Of two changes in one second the first copy is the file as it was.
        while (copy := path.with_name(f"{path.name}.{time.strftime('%Y%m%d-%H%M%S')}.bak")).exists():
            time.sleep(0.05)
        config_file.write(copy, before)
        echo(f"Kept {copy}")
    if after or was_empty:
        config_file.write(path, after)
        echo(f"Wrote {path}. Start {client.title} again.")
    else:
        path.unlink()
        echo(f"Removed {path}, which held nothing else. Start {client.title} again.")
    return None


def _read(path: Path) -> str:
    """Return the text of a file, empty when it is not there, its mark and its line ends as they are."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not UTF-8 at byte {error.start}", hint="save the file as UTF-8"
        ) from error


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
