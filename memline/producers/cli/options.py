"""What commands share: how one is declared, global options, questions, and what stands beside a result."""

import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from memline.producers.cli.invocation import Invocation
from memline.producers.cli.output import echo
from memline.producers.cli.root import GIVEN, GLOBAL_OPTIONS, examples
from memline.shared.errors import ConfigError, MemlineError
from memline.shared.visible_text import visible


def invocation_of(context: click.Context) -> Invocation:
    """Build the invocation from the global options before and after the command's name."""
    return Invocation.of(context.meta.get(GIVEN, {}))


#: Prints the result as JSON.
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")


def command(
    *lines: str, parent: click.Group | None = None, **settings: Any
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a function a command with the global options; its docstring is the help, `lines` the examples.

    The function gets its `Invocation` first. It returns None, or another exit status than 0. With `parent` it
    is a command of a group.
    """

    def make(function: Callable[..., int | None]) -> click.Command:
        @wraps(function)
        def act(**arguments: Any) -> int | None:
            invocation = invocation_of(click.get_current_context())
            try:
                return function(invocation, **arguments)
            except MemlineError as error:
                error.hint = invocation.as_typed(error.hint)
                raise

        declare: Any = click.command(epilog=examples(*lines), **settings)
        made: click.Command = declare(act)
        for each in made.params:
            each.callback = _refuse_empty
        made.params += GLOBAL_OPTIONS
        if parent is not None:
            parent.add_command(made)
        return made

    return make


def group(*lines: str, **settings: Any) -> Callable[[Callable[..., int | None]], click.Group]:
    """Make a function a group of commands, as `command` does."""
    return command(*lines, **{"cls": click.Group, **settings})  # type: ignore[return-value]


def _refuse_empty(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuse an empty text: a variable that is not set, and as a path the current folder."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise click.BadParameter("must not be empty", ctx=context, param=parameter)
    return value


def advise(text: str) -> None:
    """Print what to do next, with this command line's global options in its commands."""
    context = click.get_current_context(silent=True)
    echo(f"Try: {invocation_of(context).as_typed(text) if context else text}", err=True)


def confirm(question: str, *, is_answered: bool) -> bool:
    """Ask before something is changed for good; `is_answered`: `--yes` was given.

    Raises ConfigError where no user can answer.
    """
    if is_answered:
        return True
    if not sys.stdin.isatty():
        raise ConfigError("this asks before it changes anything, and there is no terminal", hint="add --yes")
    return click.confirm(visible(question), default=False, err=True)


def once_a_minute(*, at_once: bool = False) -> Callable[[str], None]:
    """Give a function that prints a line on stderr, unless it is empty or the last one is of this minute.

    `at_once`: the first line is not held back for a minute.
    """
    next_line_at = time.monotonic() + 60 * (not at_once)

    def say(text: str) -> None:
        nonlocal next_line_at
        if text and time.monotonic() >= next_line_at:
            next_line_at = time.monotonic() + 60
            echo(text, err=True)

    return say
