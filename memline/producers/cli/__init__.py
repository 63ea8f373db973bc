"""The command `memline`: which commands there are, and how each of them ends.

A command's module is imported only when that command runs, so that `memline search` never pays for what
`memline up` needs; its line in `memline --help` is in the table here.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import click

from memline.producers.cli.options import GLOBAL_OPTIONS, echo, examples, invocation_of
from memline.producers.interrupts import INTERRUPTED, tell
from memline.shared.errors import MemlineError

PROGRAM = "memline"

#: Name of a command: where it is, and its line in the list of commands.
COMMANDS = {
    "init": ("memline.producers.cli.init:init", "Make a folder of Markdown searchable."),
    "add": ("memline.producers.cli.init:add", "Search another folder beside the notes."),
    "remove": ("memline.producers.cli.init:remove", "Search a folder no longer."),
    "index": ("memline.producers.cli.index:index", "Bring the index up to date with the files."),
    "search": ("memline.producers.cli.search:search", "Answer a question from the notes, with citations."),
    "get": ("memline.producers.cli.read:get", "Print a memory file or some of its lines."),
    "status": ("memline.producers.cli.status:status", "Say what is indexed and what is behind."),
    "mcp": ("memline.producers.cli.serve:mcp", "Serve an agent's memory to an MCP client (stdio)."),
    "setup": ("memline.producers.cli.setup:setup", "Connect Claude Code, Cursor, Codex or OpenClaw."),
    "context": ("memline.producers.cli.read:context", "Print what an agent reads when a session starts."),
    "serve": ("memline.producers.cli.serve:serve", "Serve memory over HTTP: an API, MCP and a dashboard."),
    "reindex": ("memline.producers.cli.reindex:reindex", "Ask for a reindex and return, or plan one."),
    "jobs": ("memline.producers.cli.jobs:jobs", "List, show, pause, resume and cancel jobs."),
    "queue": ("memline.producers.cli.queue:queue", "Show depth, backlog, workers and dead messages."),
    "batch": ("memline.producers.cli.batch:batch", "List, show and cancel jobs of a provider's Batch API."),
    "metrics": ("memline.producers.cli.serve:metrics", "Serve the state of the fleet for Prometheus."),
    "watch": ("memline.producers.cli.up:watch", "Follow the files and put changes on the queue."),
    "worker": ("memline.producers.cli.up:worker", "Work on messages of the queue, in one role or more."),
    "agent": ("memline.producers.cli.agent:agent", "Show which host serves an agent, and move one."),
    "fleet": ("memline.producers.cli.fleet:fleet", "Run all processes of a fleet, or print their files."),
    "up": ("memline.producers.cli.up:up", "Run everything in one process."),
    "flush": ("memline.producers.cli.flush:flush", "Show which sessions are due to be written down."),
    "hook": ("memline.producers.cli.setup:hook", "Answer a hook of Claude Code."),
    "export": ("memline.producers.cli.moving:export_command", "Write notes and vectors into one file."),
    "import": ("memline.producers.cli.moving:import_command", "Take over notes and vectors from a file."),
    "forget": ("memline.producers.cli.moving:forget", "Forget lines of notes, or sessions, for good."),
    "backup": ("memline.producers.cli.moving:backup", "Copy the indexes into a folder."),
    "restore": ("memline.producers.cli.moving:restore", "Put a backup in the place of the index."),
    "doctor": ("memline.producers.cli.status:doctor", "Find problems and say what fixes them."),
    "config": ("memline.producers.cli.config:config", "Show and check the configuration."),
    "bench": ("memline.producers.cli.bench:bench", "Measure the quality of search."),
    "completion": ("memline.producers.cli.config:completion", "Print the completion script for a shell."),
}

#: Commands that run until they are told to end: a SIGTERM is no failure of theirs at any time.
UNTIL_STOPPED = {"mcp", "serve", "metrics", "watch", "worker", "fleet", "up"}


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
        command: click.Command = getattr(import_module(module), name)
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
    from memline.shared.version import own_version

    click.echo(f"{PROGRAM} {own_version()}")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    name=PROGRAM,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=list(GLOBAL_OPTIONS),
    epilog=examples(
        "memline --workspace ~/notes index",
        "memline --workspace ~/notes search 'why did we choose redis'",
        "memline config check",
    ),
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Version."
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Memory search for AI agents: Markdown notes in, cited answers out.

    Global options may stand before or after the command's name.
    """
    from memline.shared.config import environment

    # None: colours go to terminals alone. It holds for all commands below.
    context.color = environment.colour()
    is_traced, has_timeout = environment.asks_for_traces()
    if is_traced:
        from memline.shared import traces
        from memline.shared.packages import install_command
        from memline.shared.version import own_version

        resource = {"service.name": PROGRAM, "service.version": own_version()}
        if problem := traces.start(has_timeout=has_timeout, **resource):
            echo(f"Warning: {problem}", err=True)
            needed = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
            echo(f"Try: {install_command(*needed)}", err=True)


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status: 0 done, 1 failed, 2 usage."""
    try:
        status = cli.main(args=args, prog_name=PROGRAM, standalone_mode=False)
        # What is still buffered meets a closed pipe here, not in the interpreter's shutdown.
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt, Interrupted) as error:
        tell(str(error))
        return INTERRUPTED
    except MemlineError as error:
        return _fail(error.message, error.hint, error.exit_code)
    except BrokenPipeError:
        # Send what is left in the buffers nowhere, or the interpreter would complain of it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return _fail(f"{error.strerror or error}{where}", "", 1)
    return status if isinstance(status, int) else 0


def run_process() -> int:
    """Run the command line of this process and return its exit status."""
    name = next((argument for argument in sys.argv[1:] if argument in COMMANDS), "")
    if name in UNTIL_STOPPED or "--watch" in sys.argv:
        signal.signal(signal.SIGTERM, _end)
    return run()


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """End a process that is told to end before it has begun."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def _fail(message: str, hint: str, status: int) -> int:
    echo(f"Error: {message}", err=True)
    if hint:
        echo(f"Try: {hint}", err=True)
    return status
