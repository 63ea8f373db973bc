"""What commands share: the global options, `--json`, examples in help, and what a command is given.

A command looks like this:

    @click.command(epilog=examples("memline search 'redis timeout'"))
    @click.argument("query")
    @json_option
    @global_options
    def search(invocation: Invocation, query: str, as_json: bool) -> None:
        '''Answer a question from the notes.'''
        settings = invocation.agent()

`global_options` stands last and gives the `Invocation` as the first argument. A command ends well by
returning None, with another exit status by returning it, and with an error by raising `MemlineError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shared.config.load import Options

if TYPE_CHECKING:
    from shared.config.load import Loaded
    from shared.config.schema import AgentSettings, Settings

#: Where a click context keeps the global options given so far.
_GIVEN = "memline.options"


@dataclass(frozen=True, kw_only=True, eq=False)
class Invocation:
    """One run of the command line: its global options, and the configuration read when it is first needed."""

    options: Options

    @cached_property
    def loaded(self) -> Loaded:
        """The configuration with the origin of its values."""
        from shared.config.load import load

        return load(self.options)

    @property
    def settings(self) -> Settings:
        """The resolved configuration."""
        return self.loaded.settings

    def agent(self, agent: str | None = None) -> AgentSettings:
        """The settings of this agent, else of the one of `--agent`, else of the default one."""
        return self.loaded.agent(agent)

    def agents(self) -> tuple[AgentSettings, ...]:
        """The settings of the agent of `--agent`, or of all agents."""
        return self.loaded.agents()

    def log(self) -> None:
        """Let this command's log lines appear, as `MEMLINE_LOG_LEVEL` and `MEMLINE_LOG_FORMAT` say."""
        from shared import logs
        from shared.config import environment

        logs.configure(*environment.log_options())


def global_options(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Accept the global options after the command's name as well, and give the command its `Invocation`.

    An option after the name wins over the same option before it.
    """

    def with_invocation(*args: Any, **kwargs: Any) -> int | None:
        context = click.get_current_context()
        return command(Invocation(options=given_options(context)), *args, **kwargs)

    wrapped: Callable[..., int | None] = update_wrapper(with_invocation, command)
    return declare_global_options(wrapped)


def declare_global_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--config`, `--home`, `--workspace` and `--agent`; `given_options` has their values."""
    for name, metavar, text in reversed(_GLOBAL):
        command = click.option(f"--{name}", metavar=metavar, help=text, expose_value=False, callback=_keep)(
            command
        )
    return command


def given_options(context: click.Context) -> Options:
    """The global options given before and after the command's name."""
    given: dict[str, str] = context.meta.get(_GIVEN, {})
    paths = {name: Path(text) for name, text in given.items() if name != "agent"}
    return Options(
        config=paths.get("config"),
        home=paths.get("home"),
        workspace=paths.get("workspace"),
        agent=given.get("agent"),
    )


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json`, which the command receives as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")(command)


def examples(*lines: str) -> str:
    """The end of a command's help: its examples, one a line, as they are typed."""
    # click keeps the lines of a paragraph that begins with \b as they are.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def print_json(value: Any) -> None:
    """Print a value as JSON; characters the terminal cannot show are escaped."""
    import json
    import sys

    text = json.dumps(value, ensure_ascii=False, indent=2)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2)
    click.echo(text)


_GLOBAL = (
    ("config", "FILE", "Configuration file.  [env: MEMLINE_CONFIG]"),
    ("home", "DIR", "Where indexes and state live.  [env: MEMLINE_HOME]"),
    ("workspace", "DIR", "Folder of the notes.  [env: MEMLINE_WORKSPACE]"),
    ("agent", "ID", "The agent whose memory is meant."),
)


def _keep(context: click.Context, option: click.Parameter, given: str | None) -> None:
    """Remember an option for `given_options`; the context's `meta` is one for the whole invocation."""
    if given is None:
        return
    if not given.strip():
        raise click.BadParameter("must not be empty", ctx=context, param=option)
    context.meta.setdefault(_GIVEN, {})[option.name] = given
