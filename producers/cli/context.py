"""`memline context`: what an agent reads when a session starts."""

from __future__ import annotations

import click

from producers.cli.options import Invocation, examples, global_options, json_option, print_json


@click.command(
    epilog=examples(
        "memline context",
        "memline context --private",
        "memline context --agent work --session-key agent:work:discord:group:1 --json",
    )
)
@click.option("--private", is_flag=True, help="The session is the owner's own: MEMORY.md is part of it.")
@click.option(
    "--session-key",
    metavar="KEY",
    default="",
    help="Session that starts, agent:<id>:<rest>; a group is never private, and memory.scope applies.",
)
@json_option
@global_options
def context(invocation: Invocation, private: bool, session_key: str, as_json: bool) -> None:
    """Print the daily logs of today and yesterday, and in a private session MEMORY.md.

    Cut to context.maxChars characters in all; where something was cut, the text says so.
    """
    from producers.session_context import session_context
    from shared.clock import SystemClock
    from shared.config.faces import ChatScope
    from shared.errors import AccessDenied
    from shared.search.chats import chat_of, may_use_memory

    settings = invocation.agent()
    chat = chat_of(session_key)
    scope: ChatScope | None = settings.scope if session_key else None
    if not may_use_memory(scope, chat):
        raise AccessDenied(f"memory may not be used in this chat ({chat})", hint="memline config show")
    found = session_context(settings, chat, is_private=private, clock=SystemClock())
    if as_json:
        print_json(found)
    elif found["text"]:
        click.echo(found["text"])
    else:
        click.echo(f"There is no log of {found['date']} or the day before.", err=True)
