"""Perform the actions of `verbs` alike for each face, and write their audit lines."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from memline.shared.config.agents import Settings
from memline.shared.config.installation import QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import MemlineError
from memline.shared.logs import AUDIT, Log

_AUDIT = Log(AUDIT)


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and for which agents."""

    settings: Settings
    #: The agents that are meant: those that the asker may touch, or the ones named among them.
    agents: tuple[AgentSettings, ...]
    #: The agent that was named; empty: none was.
    agent: str = ""
    #: For the audit log: user@host, or the name of a token, never the token.
    by: str

    @property
    def queue_url(self) -> QueueAddress:
        """The address of the queue; empty without one."""
        return self.settings.queue


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an action."""

    #: What the command prints with `--json`.
    value: Any
    #: Sentences for a reader.
    words: tuple[str, ...] = ()
    #: What may be missing, for a reader; a command prints it as an error is.
    notes: tuple[str, ...] = ()
    #: Fields of the audit line: names and counts, no text, no secret.
    audit: Mapping[str, object] = {}
    #: False when the state did not allow it: exit status 1 of the command, 409 over HTTP.
    is_changed: bool = True


class Verb(msgspec.Struct, frozen=True, kw_only=True):
    """An action that a person can ask for, on every face."""

    #: Takes the asker, and arguments that `producers.api.arguments.check` has checked.
    run: Callable[..., Done]
    #: The name of its line in the log: `audit.<name>`.
    audit: str
    #: Whether it destroys something, and a page asks first.
    is_danger: bool = False


def perform(verb: Verb, asker: Asker, **arguments: Any) -> Done:
    """Do what a person asks for, and write the line in the log. Raises MemlineError."""
    with audited(verb.audit, asker.by) as line:
        done = verb.run(asker, **arguments)
        line |= done.audit
    return done


@contextmanager
def audited(name: str, by: str) -> Iterator[dict[str, object]]:
    """Write the audit line of an action, `audit.<name>`, at its end: the only place that does.

    Gives the fields of the line: names and counts, no text, no secret. That of an action that fails has its
    error; of one that is not ours, or of Ctrl-C, the kind alone, since its words may hold anything.
    """
    line: dict[str, object] = {}

    def write(**error: str) -> None:
        _AUDIT.info(f"audit.{name}", by=by, **line, **error)

    try:
        yield line
    except BaseException as error:
        # Whatever stopped it: a part of it may be done.
        words = error.message if isinstance(error, MemlineError) else type(error).__name__
        write(error=words)
        raise
    write()
