"""`memline hook`: answer a hook of Claude Code."""

from __future__ import annotations

import os
import sys

import click

from memline.producers.cli.options import Invocation, command, json_line


@command("""echo '{"hook_event_name": "SessionStart", "cwd": "'"$PWD"'"}' | memline hook""")
def hook(invocation: Invocation) -> None:
    """Answer a hook of Claude Code: an event as JSON on standard input, the answer on standard output.

    SessionStart gives the session its context, as memline context --private does. PreCompact writes the
    session down before it is compacted, where a flush is configured (docs/flush.md). The plugin of the
    repository calls it. A problem is a message for the user, and never stops the session.
    """
    import json

    from memline.producers.agents.claude_hook import answer
    from memline.shared.errors import MemlineError, NoWorkspace

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
        answered = answer(invocation.agent(), event)
    except NoWorkspace:
        # A folder without notes: the plugin is there for others.
        answered = {}
    except MemlineError as error:
        hint = f". Try: {error.hint}" if error.hint else ""
        answered = {"systemMessage": f"memline: {error.message}{hint}"}
    if answered:
        click.echo(json_line(answered))
