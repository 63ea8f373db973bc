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
    from producers.memory_tools import no_memory
    from producers.session_context import session_context
    from shared.clock import SystemClock
    from shared.errors import AccessDenied
    from shared.search.chats import chat_of

    settings = invocation.agent()
    chat = chat_of(session_key)
    # Without a session it is the owner who asks, and memory.scope is about chats.
    if (session_key or not settings.memory.enabled) and (refused := no_memory(settings, chat)) is not None:
        raise AccessDenied(refused["warning"], hint=refused["action"])
    found = session_context(settings, chat, is_private=private, clock=SystemClock())
    if as_json:
        print_json(found)
    elif found["text"]:
        click.echo(found["text"])
    else:
        click.echo(f"There is no log of {found['date']} or the day before.", err=True)
