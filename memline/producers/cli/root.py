"""The command line as click knows it: it runs a command, prints its help and names what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from memline.producers.calls.table import CALLS
from memline.producers.cli.command_list import COMMANDS, EXAMPLES, PLAIN, PROGRAM, SUMMARY
from memline.producers.cli.invocation import echo
from memline.producers.cli.options import GLOBAL_OPTIONS, examples, invocation_of
from memline.producers.cli.table_commands import asks
from memline.producers.interrupts import exit_status, tell
from memline.shared import traces
from memline.shared.config import environment
from memline.shared.errors import MemlineError
from memline.shared.packages import install_command
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
            raise click.exceptions.NoSuchCommand(name, possibilities=COMMANDS, ctx=ctx) from None

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
    is_traced, has_timeout = environment.asks_for_traces()
    if is_traced:
        resource = {"service.name": PROGRAM, "service.version": own_version()}
        if problem := traces.start(has_timeout=has_timeout, **resource):
            echo(f"Warning: {problem}", err=True)
            needed = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
            echo(f"Try: {install_command(*needed)}", err=True)


def run_command(args: Sequence[str] | None) -> Any:
    """Run one command line and return what the command does, or the exit status of click's own errors."""
    try:
        return cli.main(args=args, prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, Interrupted) as error:
        tell(str(error))
        return exit_status()
