"""Make commands of the rows of the table: their options, help and examples, and whole actions.

    @asks(CALLS["get"])
    def get(invocation: Invocation, path: str, first: int | None, …, as_json: bool) -> int:

The function has the parameters by their names in Python; one that was not given is None, a flag False.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from memline.producers.actions.perform import Asker, audited, perform
from memline.producers.calls.rows import CLI, Call, Parameter
from memline.producers.cli.invocation import Invocation, echo, print_result
from memline.producers.cli.options import OneOf, command, invocation_of
from memline.shared.errors import MemlineError
from memline.shared.index.jobs import asker as this_user
from memline.shared.values import replace

if TYPE_CHECKING:
    from memline.shared.config.schema import AgentSettings


#: Ends the key of the option that gives the same as an argument.
_AS_OPTION = "_option"

#: Where a click context keeps the fields of the audit line.
_LINE = "memline.audit"


def asks(
    call: Call,
    *,
    parent: click.Group | None = None,
    cls: type[click.Command] = click.Command,
    **settings: Any,
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a function the command of a call, in the group `parent` where its name has two words."""

    def audits(function: Callable[..., int | None]) -> Callable[..., int | None]:
        def act(invocation: Invocation, **arguments: Any) -> int | None:
            if arguments.get("new_agent"):
                # The agent that the command makes may be unknown.
                invocation = Invocation(options=replace(invocation.options, new_agent=True))
            with audited(call, this_user(), invocation.settings.account_path) as line:
                click.get_current_context().meta[_LINE] = line
                return function(invocation, **arguments)

        # What `perform` does, it writes down itself.
        return act if call.audit and not call.run else function

    def merges(function: Callable[..., int | None]) -> Callable[..., int | None]:
        twice = [each.key for each in call.parameters if each.as_option]

        def act(invocation: Invocation, **arguments: Any) -> int | None:
            for key in twice:
                if (option := arguments.pop(f"{key}{_AS_OPTION}")) is not None:
                    arguments[key] = option
            return function(invocation, **arguments)

        return act if twice else function

    make = command(
        *call.examples,
        parent=parent,
        name=call.name.split()[-1],
        json=call.has_json,
        cls=cls,
        help=call.text or call.title,
        short_help=call.title,
        params=[made for each in call.parameters if CLI in each.faces for made in _parameters(each)],
        **settings,
    )
    return lambda function: make(audits(merges(function)))


def note(**fields: object) -> None:
    """Add fields to the audit line of the action that a command is: names and counts."""
    click.get_current_context().meta[_LINE].update(fields)


def add_actions(group: click.Group, calls: Iterable[Call]) -> None:
    """Add the actions of a group that have a function: `memline jobs pause`."""
    for call in calls:
        if call.audit and call.run and call.name.startswith(f"{group.name} "):
            asks(call, parent=group)(_acting(call))


def _acting(call: Call) -> Callable[..., int | None]:
    def act(invocation: Invocation, as_json: bool, **arguments: Any) -> int | None:
        return act_on(invocation, call, as_json, **arguments)

    return act


def act_on(
    invocation: Invocation,
    call: Call,
    as_json: bool,
    *,
    agents: Iterable[AgentSettings] | None = None,
    **arguments: Any,
) -> int | None:
    """Perform an action, for these agents or those of the options, and print what came of it.

    The exit status is 1 when the state did not allow it.
    """
    done = perform(call, asker(invocation, agents), **arguments)
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


def _parameters(each: Parameter) -> Iterator[click.Parameter]:
    yield _parameter(each)
    if each.as_option:
        names = [each.option, f"{each.key}{_AS_OPTION}"]
        yield click.Option(names, metavar=each.key.upper(), help=each.as_option)


def _parameter(each: Parameter) -> click.Parameter:
    kind = _type(each)
    complete = _completer(each.known) if each.known else None
    if each.argument:
        metavar = each.metavar or None
        is_required = each.argument == "required"
        return click.Argument(
            [each.key], type=kind, required=is_required, metavar=metavar, shell_complete=complete
        )
    names = [each.option, *filter(None, [each.short]), each.key]
    words = f"{each.words}  [default: {each.default}]" if each.default else each.words
    if each.kind == "boolean":
        return click.Option(names, is_flag=True, help=words)
    return click.Option(
        names,
        type=kind,
        multiple=each.kind == "array",
        required=each.is_required,
        metavar=each.metavar or None,
        help=words,
        shell_complete=complete,
    )


def _type(each: Parameter) -> click.ParamType[Any] | None:
    if choices := each.allowed:
        return OneOf(choices)
    if each.kind == "integer":
        low, high = (None if limit is None else int(limit) for limit in (each.minimum, each.maximum))
        return click.IntRange(low, high)
    return click.FloatRange(each.minimum, each.maximum) if each.kind == "number" else None


def _completer(known: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Complete a word to one of the values that are known; none when the configuration cannot be read."""

    def complete(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        module, _, name = known.partition(":")
        try:
            found = getattr(import_module(module), name)(invocation_of(context).agents())
        except MemlineError:
            return []
        return [CompletionItem(value, help=words) for value, words in found if value.startswith(incomplete)]

    return complete
