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

import _thread
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memline.producers.cli.command_list import GLOBALS
from memline.shared.config import environment
from memline.shared.config.load import Options, load
from memline.shared.errors import ConfigError

if TYPE_CHECKING:
    import threading
    from types import FrameType

    from memline.shared.config.load import Loaded
    from memline.shared.config.schema import AgentSettings, Settings
    from memline.shared.liveness import Liveness

#: Where a click context keeps the global options of the command line.
_META_KEY = "memline.options"

#: What a terminal obeys: C0 but tab and line ends, DEL, and C1, among them the beginnings of CSI and OSC.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
_JSON_CONTROL = re.compile(r"[\x7f-\x9f]")

C = TypeVar("C", bound=click.Command)


class Invocation:
    """Holds the global options of a command line, and reads the configuration when it is first needed."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @cached_property
    def loaded(self) -> Loaded:
        """Read the configuration with the origin of its values."""
        return load(self.options)

    @property
    def settings(self) -> Settings:
        """Return the resolved configuration."""
        return self.loaded.settings

    def agent(self, agent: str | None = None) -> AgentSettings:
        """Return the settings of this agent, else of the one of `--agent`, else of the default one."""
        return self.loaded.agent(agent)

    def agents(self) -> tuple[AgentSettings, ...]:
        """Return the settings of the agent of `--agent`, or of all agents."""
        return self.loaded.agents()

    def enabled_agents(self) -> list[AgentSettings]:
        """Return those of `agents` whose memory search is switched on."""
        return [settings for settings in self.agents() if settings.memory.enabled]

    def as_typed(self, text: str) -> str:
        """Put this command line's global options into the commands of a hint, so that they work as typed."""
        return self.options.as_typed(text)

    def everywhere(self, settings: AgentSettings) -> Options:
        """Return the options that mean this agent's memory in any folder and any shell."""
        options, loaded = self.options, self.settings
        by_variable = environment.value(os.environ, environment.CONFIG)
        has_home = options.home is not None or environment.value(os.environ, environment.HOME)
        return Options(
            config=loaded.path if options.config is not None or by_variable else None,
            home=loaded.home if has_home else None,
            workspace=settings.workspace,
            agent=settings.agent if settings.agent != loaded.default_agent else None,
        )

    def listed(self, kind: str, agents: Sequence[AgentSettings]) -> AbstractContextManager[None]:
        """List this process among those of its home while a block runs; `kind` is that of its command."""
        from memline.shared.scheduling.home_processes import registered

        names = [settings.agent for settings in agents]
        return registered(self.agents()[0].account_path, kind, names, time.time())

    def liveness(self) -> Liveness:
        """Return what tells systemd, or the check of a container, how this process is doing."""
        from memline.shared.liveness import Liveness

        return Liveness(*environment.liveness())

    def log(self, *, default_level: str = "WARNING") -> None:
        """Write this command's log lines, as `MEMLINE_LOG_LEVEL` and `MEMLINE_LOG_FORMAT` say."""
        from memline.shared import logs

        logs.configure(*environment.log_options(default=default_level))


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
            return function(invocation_of(click.get_current_context()), *args, **kwargs)

        callback = update_wrapper(with_invocation, function)
        made = click.command(name, cls, epilog=examples(*example_lines), **settings)(callback)
        made.params += [*[_JSON] * json, *GLOBAL_OPTIONS]
        if parent is not None:
            parent.add_command(made)
        return made

    return make


def invocation_of(context: click.Context) -> Invocation:
    """Build the invocation from the global options before and after the command's name."""
    values: dict[str, str] = context.meta.get(_META_KEY, {})
    config, home, workspace = (
        Path(values[name]) if name in values else None for name in ("config", "home", "workspace")
    )
    agent = values.get("agent")
    return Invocation(options=Options(config=config, home=home, workspace=workspace, agent=agent))


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


def examples(*lines: str) -> str:
    """Format the examples at the end of a command's help, one a line, as they are typed."""
    # click keeps the lines of a paragraph that begins with \b as they are.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def printable(text: str) -> str:
    """Write control characters out, so that no note or file name commands a terminal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def one_line(name: str) -> str:
    """Write the same of a file name, and its line breaks: a name looks like no line of ours."""
    return printable(name).replace("\r", "\\x0d").replace("\n", "\\x0a")


def echo(text: str, *, err: bool = False) -> None:
    """Print a line for a reader, its control characters written out."""
    click.echo(printable(text), err=err)


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
    return click.confirm(printable(question), default=False, err=True)


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


def echo_file(text: str) -> None:
    """Print text of a file: as it is into a pipe or a file, with control characters written out elsewhere."""
    # color=True: else click removes colours from what goes into a pipe.
    click.echo(printable(text) if sys.stdout.isatty() else text, color=True)


def print_json(value: Any) -> None:
    """Print a value as JSON; characters that a terminal cannot show, or obeys, are escaped."""
    click.echo(json_line(value, indent=2))


def json_line(value: Any, *, indent: int | None = None) -> str:
    """Write a value as JSON, without `indent` on one line; see `print_json`."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent)
    # The others are escaped by JSON itself.
    return _JSON_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_result(value: Any, as_json: bool, lines: Iterable[str]) -> None:
    """Print a command's result: the value as JSON, or its lines for a reader."""
    if as_json:
        print_json(value)
        return
    for line in lines:
        echo(line)


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a list as a table: as wide as the terminal, and not folded for a pipe."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        # Text: names of models and words of a provider are no markup.
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console(width=None if Console().is_terminal else 200).print(table)


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set; a second signal changes nothing, a third ends the process.

    A supervisor that signals the whole process group reaches a process twice, once itself and once through
    its parent. Taken for "end now", the second threw away what was paid for. The handlers before are restored
    at the end; but a process that was told to end, and runs until then, is told no more while it ends.
    """
    stop = threading.Event()
    signals = 0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        # In a thread: the lock of an event cannot be taken twice, and the main thread, which runs this
        # handler, may just hold it in `stop.wait`. The process would hang for ever.
        _thread.start_new_thread(stop.set, ())
        if signals > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            is_ending = signals and number == signal.SIGTERM and handler != signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if is_ending else handler)
