"""`memline context`: what an agent reads when a session starts."""

from __future__ import annotations

from memline.producers.agents.session_context import session_context
from memline.producers.agents.tools import chat_for, denied_answer
from memline.producers.calls.table import CALLS
from memline.producers.cli.invocation import Invocation, echo, echo_file, print_json
from memline.producers.cli.table_commands import asks
from memline.shared.clock import SystemClock
from memline.shared.errors import AccessDenied
from memline.shared.sync.vanished import KeptRoot
from memline.shared.words import counted


@asks(CALLS["context"])
def context(invocation: Invocation, private: bool, session_key: str | None, as_json: bool) -> None:
    """Print what a session starts with."""
    settings = invocation.agent()
    chat = chat_for(settings, session_key or "")
    # Without a session it is the owner who asks, and memory.scope is about chats.
    if (session_key or not settings.memory.enabled) and (denied := denied_answer(settings, chat)) is not None:
        raise AccessDenied(denied["warning"], hint=denied["action"])
    report = session_context(settings, chat, is_private=private, clock=SystemClock())
    if not as_json:
        for each in report["kept"]:
            echo(KeptRoot(**each).words(), err=True)
    if as_json:
        print_json(report)
    elif report["text"]:
        echo_file(report["text"])
    elif report["truncated"]:
        echo(f"No note fits into {counted(report['maxChars'], 'character')}.", err=True)
        echo("Try: set memorySearch.context.maxChars higher", err=True)
    else:
        echo(f"There is no log of {report['date']} or the day before.", err=True)
