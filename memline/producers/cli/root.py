"""The command line: finds a command, prints its help, and says what is wrong with it."""

import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from io import StringIO
from typing import Any

import click

from memline.producers.cli.output import note, put
from memline.shared.errors import MemlineError, not_utf_8
from memline.shared.packages import own_version
from memline.shared.values import read_table

PROGRAM = "memline"

_CLI = "memline.producers.cli."

#: The commands in five groups: the name of each, where it is, and its line in the list.
GROUPS = {
    "Notes": (
        ("init", "init:init", "Make a folder of Markdown searchable."),
        ("index", "index:index", "Bring the index up to date with the files."),
        ("search", "search:search", "Answer a question from the notes, with citations."),
        ("get", "search:get", "Print a memory file or some of its lines."),
        ("status", "status:status", "Say what is indexed and what is stale."),
        ("doctor", "status:doctor", "Find problems and say what fixes them."),
        ("lint", "search:lint", "Name the links that lead nowhere."),
        ("config", "config:config", "Show and check the configuration."),
    ),
    "Agents": (
        ("setup", "setup:setup", "Connect Claude Code, Codex, Cursor or another MCP client."),
        ("mcp", "serve:mcp", "Serve an agent's memory to an MCP client (stdio)."),
        ("serve", "serve:serve", "Serve memory over HTTP: an API, MCP and a dashboard."),
        ("hook", "setup:hook", "Answer a hook of Claude Code."),
        ("context", "setup:context", "Print what an agent reads when a session starts."),
        ("flush", "setup:flush", "Write down what is worth keeping of a session."),
    ),
    "Processes": (
        ("up", "up:up", "Run everything in one process."),
        ("watch", "up:watch", "Follow the files and put changes on the queue."),
        ("worker", "up:worker", "Work on messages of the queue, in one role or more."),
    ),
    "Queue": (
        ("queue", "queue:queue", "Show depth, backlog, workers and dead letters."),
        ("reindex", "jobs:reindex", "Ask for a reindex and return, or plan one."),
        ("jobs", "jobs:jobs", "List, show, pause, resume and cancel jobs and batches."),
    ),
    "Keep": (
        ("forget", "keep:forget", "Forget lines of notes, or sessions, for good."),
        ("import", "keep:import_command", "Take over the conversations of ChatGPT or Claude."),
        ("backup", "keep:backup", "Copy the indexes, and bring such a copy back."),
    ),
}

#: Where each command is.
COMMANDS = {name: _CLI + place for group in GROUPS.values() for name, place, _ in group}

#: What else people type for a command, and it works.
ALIASES = {"find": "search", "query": "search", "ask": "search"}

#: Exit status after Ctrl-C: 128 + SIGINT.
INTERRUPTED = 130

#: Where a click context keeps the global options of the command line.
GIVEN = "memline.options"


class LazyGroup(click.Group):
    """Imports the module of a command when that command runs."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        module, _, function = COMMANDS[name].partition(":")
        command: click.Command = getattr(import_module(module), function)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read `memline help search` as `memline search --help`."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete the name of a command from the list, or an option; no command is imported for it."""
        from click.shell_completion import CompletionItem  # for a completion only

        rows = (row for group in GROUPS.values() for row in group)
        names = [CompletionItem(name, help=text) for name, _, text in rows if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, rows in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, _, text in rows])


def _by_meaning(error: click.ClickException) -> click.ClickException:
    """Return an error that names the command or the option that a wrong word means, where one is known."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    meanings = read_table(__file__, "meanings.toml")
    word, known, meaning = "", list[str](), ""
    if isinstance(error, click.exceptions.NoSuchCommand) and context:
        word, known = error.command_name, [context.command_path]
        if context.parent is None:
            known = ["--help", "--version", *COMMANDS]
            # A question without its command.
            meaning = "" if error.possibilities else f"{PROGRAM} search {shlex.quote(word)}"
    elif isinstance(error, click.NoSuchOption) and context:
        word, known = error.option_name, [name for each in context.command.params for name in each.opts]
    meaning = next((name for name in known if word in meanings.get(name, ())), meaning)
    if not meaning:
        return error
    return click.UsageError(f"{error.message} Did you mean '{meaning}'?", ctx=context)


def _keep(context: click.Context, option: click.Parameter, text: str | None) -> None:
    """Remember a global option; the context's `meta` is one for the whole command line."""
    if text is None:
        return
    if not text.strip():
        raise click.BadParameter("must not be empty", ctx=context, param=option)
    context.meta.setdefault(GIVEN, {})[option.name] = text


#: Accepted before and after the name of a command; `Invocation.of` has their values.
GLOBAL_OPTIONS: list[click.Parameter] = [
    click.Option([name], metavar=metavar, help=text, expose_value=False, callback=_keep)
    for name, metavar, text in (
        ("--config", "FILE", "Configuration file.  [env: MEMLINE_CONFIG]"),
        ("--home", "DIR", "Where indexes and state live.  [env: MEMLINE_HOME]"),
        ("--workspace", "DIR", "Folder of the notes.  [env: MEMLINE_WORKSPACE]"),
        ("--agent", "ID", "The agent whose memory is used."),
    )
]


def examples(*lines: str) -> str:
    """Format the examples at the end of a command's help, one a line, as they are typed."""
    # click keeps the lines of a paragraph that begins with \b as they are.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@click.group(
    cls=LazyGroup,
    name=PROGRAM,
    # Not the commands themselves: click suggests their names.
    commands={name: click.Command(name) for name in COMMANDS},
    context_settings={"help_option_names": ["-h", "--help"]},
    params=GLOBAL_OPTIONS[:],
    epilog=examples(
        "memline --workspace ~/notes index",
        "memline --workspace ~/notes search 'why did we choose redis'",
        "memline config check",
    ),
)
@click.version_option(own_version(), message=f"{PROGRAM} %(version)s", help="Version.")
@click.pass_context
def cli(context: click.Context) -> None:
    """Memory search for AI agents: Markdown notes in, cited answers out.

    Global options may stand before or after the command's name.
    """
    # Pathlib and what it imports: 8 ms, which --version, --help and a completion do not pay.
    from memline.shared.config import environment

    # None: colours go to terminals alone. It holds for all commands below.
    context.color = environment.colour()


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status: 0 done, 1 failed, 2 usage."""
    try:
        status = cli.main(args=args, prog_name=PROGRAM, standalone_mode=False)
        # What is still buffered meets a closed pipe here, not in the interpreter's shutdown.
        sys.stdout.flush()
    except click.ClickException as error:
        # By `put`: what cannot be printed (a full disk, a closed pipe) does not change the status.
        shown = StringIO()
        _by_meaning(error).show(shown)
        put(shown.getvalue(), err=True, end="")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        # click has ended the line in which `^C` stands.
        tell_interrupted(str(error.__cause__ or ""))
        return INTERRUPTED
    except MemlineError as error:
        return _fail(error.message, error.hint, error.exit_code)
    except BrokenPipeError:
        # Send what is left in the buffers nowhere, or the interpreter would complain of it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return _fail(f"{error.strerror or error}{where}")
    except UnicodeEncodeError as error:
        # The bytes of an argument, or of the name of a folder in a text.
        line = error.object[error.object.rfind("\n", 0, error.start) + 1 :].partition("\n")[0]
        refused = not_utf_8(line)
        return _fail(refused.message, refused.hint, refused.exit_code)
    return status if isinstance(status, int) else 0


def tell_interrupted(words: str = "") -> None:
    """Say in one line what is kept."""
    # Not through `sys.stderr`: a signal may have met it in the middle of a line.
    os.write(2, f"Interrupted: {words or 'notes and index are whole'}.{os.linesep}".encode())


def _fail(message: str, hint: str = "", status: int = 1) -> int:
    """Print an error and what to do, and return the exit status."""
    note(f"Error: {message}")
    if hint:
        note(f"Try: {hint}")
    return status
