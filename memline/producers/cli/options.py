"""What commands share: global options, `--json`, examples in help, and the end by a signal.

A command looks like this:

    @command("memline search 'redis timeout'", json=True)
    @click.argument("query")
    def search(invocation: Invocation, query: str, as_json: bool) -> None:
        '''Answer a question from the notes.'''
        settings = invocation.agent()

One that succeeds returns None; another exit status is returned, and an error raised as `MemlineError`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memline.producers.cli.command_list import GLOBALS
from memline.producers.cli.invocation import Invocation, Misuse, echo
from memline.shared.config.check import nearest
from memline.shared.errors import ConfigError
from memline.shared.visible_text import visible

if TYPE_CHECKING:
    pass

#: Where a click context keeps the global options of the command line.
_META_KEY = "memline.options"

C = TypeVar("C", bound=click.Command)


def command(
    *example_lines: str,
    parent: click.Group | None = None,
    name: str | None = None,
    json: bool = False,
    cls: type[C] = click.Command,  # type: ignore[assignment]
    **settings: Any,
) -> Callable[[Callable[..., int | None]], C]:
    """Make a function a command, or with `cls` a group, with examples in its help and the global options.

    The function gets its `Invocation` first, and with `json` the option `--json` as `as_json`. A global
    option after the command's name wins over the same option before it.
    """

    def make(function: Callable[..., int | None]) -> C:
        def with_invocation(*args: Any, **kwargs: Any) -> int | None:
            context = click.get_current_context()
            try:
                return function(invocation_of(context), *args, **kwargs)
            except Misuse as error:
                raise click.UsageError(str(error), ctx=context) from None

        callback = update_wrapper(with_invocation, function)
        made = click.command(name, cls, epilog=examples(*example_lines), **settings)(callback)
        made.params += [*[_JSON] * json, *GLOBAL_OPTIONS]
        if parent is not None:
            parent.add_command(made)
        return made

    return make


def invocation_of(context: click.Context) -> Invocation:
    """Build the invocation from the global options before and after the command's name."""
    return Invocation.of(context.meta.get(_META_KEY, {}))


def _keep(context: click.Context, option: click.Parameter, text: str | None) -> None:
    """Remember an option for `invocation_of`; the context's `meta` is one for the whole command line."""
    if text is None:
        return
    if not text.strip():
        raise click.BadParameter("must not be empty", ctx=context, param=option)
    context.meta.setdefault(_META_KEY, {})[option.name] = text


#: Accepted before and after the name of a command; `invocation_of` has their values.
GLOBAL_OPTIONS: list[click.Parameter] = [
    click.Option([f"--{name}"], metavar=metavar, help=text, expose_value=False, callback=_keep)
    for name, metavar, text in GLOBALS
]

_JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON on standard output.")


class OneOf(click.Choice[str]):
    """One of some words; a wrong one is named with the word that resembles it most."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        near = nearest(str(value), self.choices)
        message = super().get_invalid_choice_message(value, ctx)
        return f"{message} Did you mean {near}?" if near else message


def examples(*lines: str) -> str:
    """Format the examples at the end of a command's help, one a line, as they are typed."""
    # click keeps the lines of a paragraph that begins with \b as they are.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


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


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a list as a table: as wide as the terminal, and not folded for a pipe."""
    drawing().draw_table(columns, rows)


def drawing() -> Any:
    """Import what draws tables and bars: rich, which only a command pays that draws."""
    from memline.producers.cli import drawing

    return drawing
