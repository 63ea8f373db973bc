"""The command `memline`: which commands there are, and how each of them ends.

A command's module is imported only when that command runs, so that `memline search` never pays for what
`memline up` needs; its line in `memline --help` stands in the table here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

import click

from producers.cli.options import declare_global_options, examples
from shared.errors import MemlineError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PROGRAM = "memline"

#: Name of a command: where it is, and its line in the list of commands.
COMMANDS = {
    "index": ("producers.cli.index:index", "Bring the index up to date with the files."),
    "search": ("producers.cli.search:search", "Answer a question from the notes, with citations."),
    "get": ("producers.cli.get:get", "Print a memory file or some of its lines."),
    "status": ("producers.cli.status:status", "Say what is indexed and what is behind."),
    "mcp": ("producers.cli.mcp:mcp", "Serve an agent's memory to an MCP client (stdio)."),
    "context": ("producers.cli.context:context", "Print what an agent reads when a session starts."),
    "serve": ("producers.cli.serve:serve", "Serve memory over HTTP: an API, and MCP at /mcp."),
    "reindex": ("producers.cli.reindex:reindex", "Ask for a reindex and return, or plan one."),
    "queue": ("producers.cli.queue:queue", "Show the queues: depth, backlog, workers, dead messages."),
    "batch": ("producers.cli.batch:batch", "List, show and cancel jobs of a provider's Batch API."),
    "metrics": ("producers.cli.metrics:metrics", "Serve the state of the fleet for Prometheus."),
    "watch": ("producers.cli.watch:watch", "Follow the files and put changes on the queue."),
    "up": ("producers.cli.up:up", "Run everything in one process."),
    "flush": ("producers.cli.flush:flush", "Show which sessions are due to be written down."),
    "doctor": ("producers.cli.doctor:doctor", "Find problems and say what fixes them."),
    "config": ("producers.cli.config:config", "Show and check the configuration."),
    "bench": ("producers.cli.bench:bench", "Measure the quality of search."),
    "completion": ("producers.cli.completion:completion", "Print the completion script for a shell."),
}

#: The reader of our output went away, or the user pressed Ctrl-C (128 + SIGINT).
INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group whose commands are imported one by one, when they are run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=COMMANDS, ctx=ctx
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def _print_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"{PROGRAM} {version(PROGRAM)}")
    except PackageNotFoundError:
        click.echo(f"{PROGRAM} (not installed: run from its sources)")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    name=PROGRAM,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "memline --workspace ~/notes index",
        "memline --workspace ~/notes search 'why did we choose redis'",
        "memline config check",
    ),
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Version."
)
@declare_global_options
def cli() -> None:
    """Memory search for AI agents: Markdown notes in, cited answers out.

    Global options may stand before or after the command's name.
    """


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status: 0 done, 1 failed, 2 usage."""
    try:
        status = cli.main(args=args, prog_name=PROGRAM, standalone_mode=False)
        # What is still buffered meets a closed pipe here, not in the interpreter's shutdown.
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except MemlineError as error:
        return _fail(error.message, error.hint, error.exit_code)
    except BrokenPipeError:
        _forget_output()
        return 1
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return _fail(f"{error.strerror or error}{where}", "", 1)
    return status if isinstance(status, int) else 0


def main() -> NoReturn:
    """The console script."""
    sys.exit(run())


def _fail(message: str, hint: str, status: int) -> int:
    click.echo(f"Error: {message}", err=True)
    if hint:
        click.echo(f"Try: {hint}", err=True)
    return status


def _forget_output() -> None:
    """Send what is left in the buffers nowhere, or the interpreter would complain of it at its end."""
    import os

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
