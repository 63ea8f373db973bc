"""`memline context`: what an agent reads when a session starts."""

from __future__ import annotations

import click

from memline.producers.agent_view import chat_for, denied_answer
from memline.producers.agents.session_context import session_context
from memline.producers.cli.invocation import Invocation, echo, echo_file, print_json
from memline.producers.cli.options import AS_JSON, command
from memline.shared.clock import SystemClock
from memline.shared.errors import AccessDenied
from memline.shared.words import counted


@command("memline context", "memline context --private", "memline context --agent work --json")
@click.option("--private", is_flag=True, help="The session is the owner's own: MEMORY.md is part of it.")
@AS_JSON
def context(invocation: Invocation, private: bool, as_json: bool) -> None:
    """Print the daily logs of today and yesterday, and in a private session MEMORY.md.

    Cut to context.maxChars characters in all; where something was cut, the text says so.
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
    elif report["truncated"]:
        echo(f"No note fits into {counted(report['maxChars'], 'character')}.", err=True)
        echo("Try: set memorySearch.context.maxChars higher", err=True)
    else:
        echo(f"There is no log of {report['date']} or the day before.", err=True)
