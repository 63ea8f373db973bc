"""Make commands of the rows of the table: their options, help and examples, and whole actions.

    @asks(CALLS["get"])
    def get(invocation: Invocation, path: str, first: int | None, …, as_json: bool) -> int:

The function has the parameters by their names in Python; one that was not given is None, a flag False, and
`as_json` where the row has an answer. What it does is said in its row. One that succeeds returns None;
another exit status is returned, and an error raised as `MemlineError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memline.producers.actions.perform import Asker, audited, perform
from memline.producers.calls.rows import CLI, Call, Parameter
from memline.producers.cli.invocation import Invocation, echo, print_result
from memline.producers.cli.options import GLOBAL_OPTIONS, examples, invocation_of
from memline.shared.index.jobs import asker as this_user

if TYPE_CHECKING:
    from memline.shared.config.schema import AgentSettings


_JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON on standard output.")

C = TypeVar("C", bound=click.Command)


def asks(
    call: Call,
    *,
    parent: click.Group | None = None,
    cls: type[C] = click.Command,  # type: ignore[assignment]
    **settings: Any,
) -> Callable[[Callable[..., int | None]], C]:
    """Make a function the command of a call, or with `cls` a group; in `parent` if its name has two words.

    The function gets its `Invocation` first. A global option after the command's name wins over the same
    option before it.
    """

    def make(function: Callable[..., int | None]) -> C:
        def act(**arguments: Any) -> int | None:
            context = click.get_current_context()
            invocation = invocation_of(context)
            if not call.audit or call.run:
                # What `perform` does, it writes down itself.
                return function(invocation, **arguments)
            with audited(call, this_user()):
                return function(invocation, **arguments)

        params = [_parameter(each) for each in call.parameters if CLI in each.faces]
        if not (call.http or call.tool):
            # Elsewhere each face says it in the same words.
            for each in params:
                each.callback = _refuse_empty
        made = cls(
            call.name.split()[-1],
            callback=act,
            params=[
                *params,
                *[_JSON] * call.has_json,
                *GLOBAL_OPTIONS,
            ],
            help=call.text or call.title,
            short_help=call.title,
            epilog=examples(*call.examples),
            **settings,
        )
        if parent is not None:
            parent.add_command(made)
        return made

    return make


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


def _refuse_empty(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuse an empty text: a variable that is not set, and as a path the current folder."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise click.BadParameter("must not be empty", ctx=context, param=parameter)
    return value


def _parameter(each: Parameter) -> click.Parameter:
    kind = _type(each)
    if each.argument:
        metavar = each.metavar or None
        is_required = each.argument == "required"
        return click.Argument(
            [each.key],
            type=kind,
            nargs=-1 if each.kind == "array" else 1,
            required=is_required,
            metavar=metavar,
        )
    names = [f"{each.option}/{each.opposite}".rstrip("/"), *filter(None, [each.short]), each.key]
    words = f"{each.words}  [default: {each.default}]" if each.default else each.words
    if each.kind == "boolean":
        return click.Option(names, is_flag=True, default=each.default == each.option, help=words)
    return click.Option(
        names,
        type=kind,
        multiple=each.kind == "array",
        required=each.is_required,
        metavar=each.metavar or None,
        help=words,
    )


def _type(each: Parameter) -> click.ParamType[Any] | None:
    if choices := each.allowed:
        return click.Choice(choices)
    if each.kind == "integer":
        low, high = (None if limit is None else int(limit) for limit in (each.minimum, each.maximum))
        return click.IntRange(low, high)
    return click.FloatRange(each.minimum, each.maximum) if each.kind == "number" else None
