"""The command line as click knows it: it runs a command, prints its help and names what is wrong with it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from io import StringIO
from typing import Any

import click

from memline.producers.calls.table import CALLS
from memline.producers.cli.command_list import COMMANDS, EXAMPLES, PLAIN, PROGRAM, SUMMARY
from memline.producers.cli.invocation import echo, put
from memline.producers.cli.options import GLOBAL_OPTIONS, examples, invocation_of
from memline.producers.cli.table_commands import asks
from memline.producers.interrupts import exit_status, tell
from memline.shared.config import environment
from memline.shared.errors import MemlineError
from memline.shared.note_names import is_markdown
from memline.shared.version import own_version


class Interrupted(Exception):
    """A Ctrl-C during a command; its words say what is kept. click would end a KeyboardInterrupt itself."""


class LazyGroup(click.Group):
    """Imports the module of a command when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        found = getattr(import_module(module), name)
        command: click.Command = asks(CALLS[cmd_name])(found) if cmd_name in PLAIN else found
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(*error.args) from None
        except MemlineError as error:
            error.hint = invocation_of(ctx).as_typed(error.hint)
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            name = error.command_name
            known = ["--help"] if name == "help" else COMMANDS
            raise click.exceptions.NoSuchCommand(name, possibilities=known, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _print_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    click.echo(f"{PROGRAM} {own_version()}")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    name=PROGRAM,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=list(GLOBAL_OPTIONS),
    help=SUMMARY,
    epilog=examples(*EXAMPLES),
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Version."
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Obey what holds for all commands."""
    # None: colours go to terminals alone. It holds for all commands below.
    context.color = environment.colour()


def _as_question(error: click.ClickException, args: Sequence[str]) -> str:
    """Return the command line in which all words are the question; empty where an option was meant.

    Only of commands that take a question, or the name of a note.
    """
    context = getattr(error, "ctx", None)
    asked = context.command if context is not None else None
    if isinstance(error, click.BadOptionUsage):
        # click does not say of which command an option lacks its value.
        name = next((each for each in args if each in PLAIN), "")
        asked = cli.get_command(click.Context(cli), name) if name else None
    if asked is None or asked.name not in PLAIN or asked.name not in args:
        return ""
    if not any(isinstance(each, click.Argument) for each in asked.params):
        return ""
    options = (each for each in asked.params if isinstance(each, click.Option))
    takes_value = {name: not option.is_flag for option in options for name in option.opts}
    at = args.index(asked.name) + 1
    given, words, left = [*args[:at]], list[str](), [*reversed(args[at:])]
    while left and left[-1] != "--":
        word = left.pop()
        is_long = word.startswith("--")
        name = word.partition("=")[0] if is_long else word[:2]
        is_short_of = not left and takes_value.get(name, False) and name == word
        is_other = name not in takes_value or is_short_of or (not is_long and " " in word)
        if not word.startswith("-") or is_other:
            words.append(word)
        else:
            given += [word, *([left.pop()] if takes_value[name] and name == word else [])]
    words += reversed(left[:-1])
    # Beside other words what is nearly an option is meant as one.
    if len(words) > 1 and isinstance(error, click.NoSuchOption) and error.possibilities:
        return ""
    if asked.name == "get" and len(words) > 1 and all(is_markdown(word) for word in words):
        # A glob of the shell.
        return f"{shlex.join([PROGRAM, *given, words[0]])}   (one note at a time)"
    if any(word.startswith("-") for word in words):
        given.append("--")
    elif len(words) < 2:
        return ""
    return f"{shlex.join([PROGRAM, *given])} {_in_quotes(' '.join(words))}"


def _in_quotes(text: str) -> str:
    quoted = shlex.quote(text)
    return quoted if quoted != text else f"'{text}'"


def run_command(args: Sequence[str] | None) -> Any:
    """Run one command line and return what the command does, or the exit status of click's own errors."""
    try:
        return cli.main(args=args, prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        # As all errors are printed: one that cannot be ends with its own status too.
        shown = StringIO()
        error.show(shown)
        put(shown.getvalue(), err=True, end="")
        if hint := _as_question(error, sys.argv[1:] if args is None else args):
            echo(f"Try: {hint}", err=True)
        return error.exit_code
    except (click.Abort, Interrupted) as error:
        tell(str(error))
        return exit_status()
