"""Perform the actions of the table alike for each face, and write their audit lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from memline.producers.calls.rows import Call
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import MemlineError
from memline.shared.logs import AUDIT, Log
from memline.shared.values import field, value

_AUDIT = Log(AUDIT)


@value
class Asker:
    """Who asks, and for which agents."""

    settings: Settings
    #: The agents that are meant: those that the asker may touch, or the ones named among them.
    agents: tuple[AgentSettings, ...]
    #: The agent that was named; empty: none was.
    agent: str = ""
    #: For the history of jobs and the audit log: user@host, or the name of a token, never the token.
    by: str

    @property
    def queue_url(self) -> str:
        """The address of the queue; empty without one."""
        return self.settings.queue.address


@value
class Done:
    """What came of an action."""

    #: What the command prints with `--json`.
    value: Any
    #: Sentences for a reader.
    words: tuple[str, ...] = ()
    #: What may be missing, for a reader; a command prints it as an error is.
    notes: tuple[str, ...] = ()
    #: Fields of the audit line: names and counts, no text, no secret.
    audit: Mapping[str, object] = field(default_factory=dict)
    #: False when the state did not allow it: exit status 1 of the command, 409 over HTTP.
    is_changed: bool = True


def perform(call: Call, asker: Asker, **arguments: Any) -> Done:
    """Do what a call asks, and write the audit line of an action.

    `arguments` are checked, and have their names in Python. Raises MemlineError.
    """
    function = function_of(call)
    if not call.audit:
        return function(asker, **arguments)
    with audited(call, asker.by) as line:
        done = function(asker, **arguments)
        line |= done.audit
    return done


def function_of(call: Call) -> Callable[..., Done]:
    """Import the function that does what a call asks."""
    module, _, name = call.run.partition(":")
    function: Callable[..., Done] = getattr(import_module(module), name)
    return function


@contextmanager
def audited(call: Call, by: str) -> Iterator[dict[str, object]]:
    """Write the audit line of an action, `audit.<verb>`, at its end: the only place that does.

    Gives the fields of the line: names and counts, no text, no secret. That of an action that fails has its
    error; of one that is not ours, or of Ctrl-C, the kind alone, since its words may hold anything.
    """
    line: dict[str, object] = {}

    def write(**error: str) -> None:
        _AUDIT.info(f"audit.{call.audit}", by=by, **line, **error)

    try:
        yield line
    except BaseException as error:
        # Whatever stopped it: a part of it may be done.
        words = error.message if isinstance(error, MemlineError) else type(error).__name__
        write(error=words)
        raise
    write()
