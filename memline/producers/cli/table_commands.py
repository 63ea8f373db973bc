"""Perform the actions of `actions.verbs` for the commands."""

from collections.abc import Iterable
from typing import Any

from memline.producers.actions.perform import Asker, Verb, perform
from memline.producers.cli.invocation import Invocation
from memline.producers.cli.output import echo, print_result
from memline.shared.config.schema import AgentSettings
from memline.shared.index.jobs import asker as this_user


def act_on(
    invocation: Invocation,
    verb: Verb,
    as_json: bool,
    *,
    agents: Iterable[AgentSettings] | None = None,
    **arguments: Any,
) -> int | None:
    """Perform an action, for these agents or those of the options, and print what came of it.

    The exit status is 1 when the state did not allow it.
    """
    done = perform(verb, asker(invocation, agents), **arguments)
    print_result(done.value, as_json, done.words)
    for line in done.notes:
        echo(line, err=True)
    return None if done.is_changed else 1


def asker(invocation: Invocation, agents: Iterable[AgentSettings] | None = None) -> Asker:
    """Return this process's user as the one who asks, for these agents or those that the options name."""
    named = invocation.agents() if agents is None else tuple(agents)
    return Asker(
        settings=invocation.settings,
        agents=named,
        agent=invocation.options.agent or "",
        by=this_user(),
    )
