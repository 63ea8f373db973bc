"""`memline get` and `memline context`: notes as an agent reads them."""

from __future__ import annotations

from memline.producers.agents.session_context import session_context
from memline.producers.agents.tools import chat_for, denied_answer
from memline.producers.calls.memory_calls import CONTEXT, GET
from memline.producers.cli.options import Invocation, echo, echo_file, print_json
from memline.producers.cli.table_commands import asks
from memline.producers.memory import Memory
from memline.shared.clock import SystemClock
from memline.shared.errors import AccessDenied


@asks(GET)
def get(
    invocation: Invocation, path: str, first: int | None, lines: int | None, around: int | None, as_json: bool
) -> int:
    """Print lines of a note or of a past conversation."""
    memory = Memory.of(invocation.settings, invocation.agent())
    excerpt = memory.get(path, first=first, lines=lines, around=around or 0)
    if as_json:
        print_json(excerpt.to_json())
    elif excerpt.status == "not_found":
        echo(f"{excerpt.path} does not exist.", err=True)
    else:
        echo_file(excerpt.text)
        if excerpt.next_from:
            echo(f"[more: --from {excerpt.next_from}]", err=True)
    return 1 if excerpt.status == "not_found" else 0


@asks(CONTEXT)
def context(invocation: Invocation, private: bool, session_key: str | None, as_json: bool) -> None:
    """Print what a session starts with."""
    settings = invocation.agent()
    chat = chat_for(settings, session_key or "")
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
