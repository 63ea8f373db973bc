"""Commands for agents: `setup` connects a client, `hook` and `context` start a session, `flush` ends one."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click

from memline.producers.agents.session_context import answer_hook, session_context
from memline.producers.bridges.clients import CLIENTS, Server, own_command
from memline.producers.chats import chat_for, denied_answer
from memline.producers.cli.invocation import AS_JSON, Invocation, command, confirm
from memline.producers.cli.output import echo, echo_file, note, print_json
from memline.shared.clock import SystemClock
from memline.shared.config import config_file, environment
from memline.shared.embedders.choice import choose
from memline.shared.errors import AccessDenied, MemlineError, NoWorkspace


@command(
    "memline setup claude",
    "memline --workspace ~/notes setup cursor --write",
    "memline setup codex --write --yes",
    "memline setup claude --write --file ~/projects/shop/.mcp.json",
)
@click.argument("client", type=click.Choice(list(CLIENTS)))
@click.option("--write/--print", "is_written", help="Run the client's command, or change its file.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.option("--file", metavar="FILE", help="The client's file, where it is not the usual one.")
@click.option("--name", default="memline", show_default=True, help="What the client calls the memory.")
def setup(
    invocation: Invocation, client: str, is_written: bool, yes: bool, file: str | None, name: str
) -> int | None:
    """Connect an MCP client to this memory: print what goes into its file, or write it.

    --write runs the client's own command where it has one, or changes its file where that is plain JSON; all
    else in the file stays. A file with comments is not changed: what to add is printed. No key is ever
    written.
    """
    if yes and not is_written:
        raise click.UsageError("--yes goes with --write")
    known = CLIENTS[client]
    path = Path(file).expanduser().absolute() if file else known.file(os.environ)
    server, settings = _server(invocation), invocation.agent()
    snippet = known.snippet(name, server)
    note(f"Memory: {settings.workspace} ({settings.workspace_origin})")
    if is_written and not file and (words := known.add_command(name, server)):
        if not confirm(f"Run {shlex.join(words)}?", is_answered=yes):
            return 1
        return subprocess.run(words).returncode
    content = known.plain_content(path) if is_written else None
    command = known.command.format(name=name, line=server.line)
    if content is not None:
        before = json.dumps(content)
        text = known.with_server(content, name, server)
        if before == json.dumps(content):
            echo(f"{path} has it already.")
        elif confirm(f"Write {path}?", is_answered=yes):
            config_file.write(path, text)
            echo(f"Wrote {path}. Start {known.title} again.")
        else:
            return 1
        if known.is_of_folder and not file:
            note(f"It is for sessions in {path.parent} alone. For all: {command}")
    else:
        click.echo(snippet, nl=False)
        note(f"{'Add it yourself to' if is_written else f'For {known.title}:'} {path}")
        if command:
            note(f"Or: {command}")
    if server.key_variable:
        note(f"{known.title} has to be started with {server.key_variable} set.")
    return 1 if is_written and content is None else None


def _server(invocation: Invocation) -> Server:
    """Return how a client starts this memory: what it is found by here may not hold there."""
    settings = invocation.agent()
    choice = choose(settings)
    has_key = choice.identity is not None and choice.provider in settings.environment_keys
    variable = environment.provider_key_name(os.environ, choice.provider) if has_key else ""
    return Server(
        command=own_command(),
        args=(*invocation.settings.everywhere(settings).words(), "mcp"),
        key_variable=variable,
    )


@command("""echo '{"hook_event_name": "SessionStart", "cwd": "'"$PWD"'"}' | memline hook""")
def hook(invocation: Invocation) -> None:
    """Answer a hook of Claude Code: an event as JSON on standard input, the answer on standard output.

    SessionStart gives the session its context, as memline context --private does. PreCompact writes the
    session down before it is compacted, where a flush is configured. The plugin of the repository calls it. A
    problem is a message for the user, and never stops the session.
    """
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
        print_json(answered, indent=None)


@command("memline context", "memline context --private", "memline context --agent work --json")
@click.option("--private", is_flag=True, help="The session is the owner's own: MEMORY.md is part of it.")
@AS_JSON
def context(invocation: Invocation, private: bool, as_json: bool) -> None:
    """Print the daily logs of today and yesterday, and in a private session MEMORY.md.

    The text says where it was shortened.
    """
    settings = invocation.agent()
    chat = chat_for(settings, "")
    # The owner asks, and memory.scope is about chats.
    if not settings.memory.enabled and (denied := denied_answer(settings, chat)) is not None:
        raise AccessDenied(denied["warning"], hint=denied["action"])
    report = session_context(settings, chat, is_private=private, clock=SystemClock())
    if as_json:
        print_json(report)
    elif report["text"]:
        echo_file(report["text"])
    else:
        note(f"There is no log of {report['date']} or the day before.")


@command("memline flush 4f9c2e1a-….jsonl", "memline flush 4f9c2e1a --json")
@click.argument("session")
@AS_JSON
def flush(invocation: Invocation, session: str, as_json: bool) -> int | None:
    """Ask a chat model what is worth keeping of a session, and append its answer to today's note.

    SESSION is the name of a transcript of OpenClaw. `memline up` and `memline watch` do so before OpenClaw
    compacts a session, the hook of Claude Code before each compaction.
    """
    # Its HTTP client takes 60 ms, which a hook at the start of a session does not need.
    from memline.shared.flush.flush import SKIPPED, folder_of
    from memline.shared.flush.flush import flush as flush_now

    settings = invocation.agent()
    name = f"{session.removesuffix('.jsonl')}.jsonl"
    if "/" in session:
        raise click.UsageError(f"{session[:80]!r} is not a name of a transcript")
    flushed = flush_now(settings, folder_of(settings) / name, SystemClock())
    if as_json:
        print_json({"session": name, "outcome": flushed.outcome, "reason": flushed.reason})
    else:
        echo(f"{flushed.outcome}: {flushed.reason}")
    return 1 if flushed.outcome == SKIPPED else 0
