"""`memline get` and `memline context`: notes as an agent reads them."""

from __future__ import annotations

import click

from memline.producers.cli.options import Invocation, command, echo, echo_file, print_json


@command(
    "memline get MEMORY.md",
    "memline get memory/2026-02-10.md --from 40 --lines 20",
    "memline get 'Deploy plan'",
    "memline get memory/2026-02-10.md --json",
    "memline get 'sessions/4f9c2e1a.jsonl#L4-L9' --around 3",
    json=True,
)
@click.argument("path")
@click.option("--from", "first", type=click.IntRange(min=0), help="First line.  [default: 1]")
@click.option("--lines", type=click.IntRange(min=1), help="How many lines.  [default: 120]")
@click.option(
    "--around",
    type=click.IntRange(min=0, max=200),
    default=0,
    help="Lines of a note, or turns of a past conversation, before and after.",
)
def get(
    invocation: Invocation, path: str, first: int | None, lines: int | None, around: int, as_json: bool
) -> int:
    """Print a memory file, some of its lines, or what was said in a past conversation.

    PATH is a path as `memline search` cites it, `path#L5-L7`, or the title, an alias or the file name of a
    note.
    """
    from memline.producers.memory import Memory

    memory = Memory.of(invocation.settings, invocation.agent())
    excerpt = memory.get(path, first=first, lines=lines, around=around)
    if as_json:
        print_json(excerpt.to_json())
    elif excerpt.status == "not_found":
        echo(f"{excerpt.path} does not exist.", err=True)
    else:
        echo_file(excerpt.text)
        if excerpt.next_from:
            echo(f"[more: --from {excerpt.next_from}]", err=True)
    return 1 if excerpt.status == "not_found" else 0


@command(
    "memline context",
    "memline context --private",
    "memline context --agent work --session-key agent:work:discord:group:1 --json",
    json=True,
)
@click.option("--private", is_flag=True, help="The session is the owner's own: MEMORY.md is part of it.")
@click.option(
    "--session-key",
    metavar="KEY",
    default="",
    help="Session that starts, agent:<id>:<rest>; a group is never private, and memory.scope applies.",
)
def context(invocation: Invocation, private: bool, session_key: str, as_json: bool) -> None:
    """Print the daily logs of today and yesterday, and in a private session MEMORY.md.

    Cut to context.maxChars characters in all; where something was cut, the text says so.
    """
    from memline.producers.agents.session_context import session_context
    from memline.producers.agents.tools import chat_for, denied_answer
    from memline.shared.clock import SystemClock
    from memline.shared.errors import AccessDenied

    settings = invocation.agent()
    chat = chat_for(settings, session_key)
    # Without a session it is the owner who asks, and memory.scope is about chats.
    if (session_key or not settings.memory.enabled) and (denied := denied_answer(settings, chat)) is not None:
        raise AccessDenied(denied["warning"], hint=denied["action"])
    report = session_context(settings, chat, is_private=private, clock=SystemClock())
    if as_json:
        print_json(report)
    elif report["text"]:
        echo_file(report["text"])
    else:
        echo(f"There is no log of {report['date']} or the day before.", err=True)
