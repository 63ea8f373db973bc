"""Declare commands, and give each its global options and the settings that they lead to."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Self

import click

from memline.producers.cli.output import note
from memline.producers.cli.root import GIVEN, GLOBAL_OPTIONS, examples
from memline.shared.config.agents import Settings
from memline.shared.config.load import Options, load
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import ConfigError, MemlineError
from memline.shared.visible_text import visible

#: Prints the result as JSON.
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")


class Invocation:
    """Holds the global options of a command line, and reads the configuration when it is first needed."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Make the invocation of these global options, by their names."""
        names = ("config", "home", "workspace")
        config, home, workspace = (Path(given[name]) if name in given else None for name in names)
        return cls(Options(config=config, home=home, workspace=workspace, agent=given.get("agent")))

    @cached_property
    def settings(self) -> Settings:
        return load(self.options)

    def agent(self) -> AgentSettings:
        """Return the settings of the agent of `--agent`, or of the default one."""
        return self.settings.agent()

    def agents(self) -> tuple[AgentSettings, ...]:
        """Return the settings of the agent of `--agent`, or of all agents."""
        return self.settings.chosen_agents()

    def enabled_agents(self) -> list[AgentSettings]:
        """Return those of `agents` whose memory search is switched on, and name the others on stderr."""
        return [settings for settings in self.agents() if self.is_enabled(settings)]

    def is_enabled(self, settings: AgentSettings) -> bool:
        """Tell whether the agent has a memory search; say so when it has none."""
        if not settings.memory.enabled:
            note(f"Memory search is disabled for agent {settings.agent} (memorySearch.enabled).")
        return settings.memory.enabled

    def as_typed(self, text: str) -> str:
        """Put this command line's global options into the commands of a hint, so that they work as typed."""
        return self.options.as_typed(text)

    def typed(self, report: dict[str, Any]) -> dict[str, Any]:
        """Do that to the actions of a report's findings."""
        findings = [each | {"action": self.as_typed(each["action"])} for each in report["findings"]]
        return report | {"findings": findings}

    def advise(self, text: str) -> None:
        """Print what to do next, as it is typed for this memory."""
        note(f"Try: {self.as_typed(text)}")

    def name_workspace(self, settings: AgentSettings, *, changes: bool = False) -> None:
        """Say on stderr which notes answer or change, where that can surprise.

        It cannot in their folder and below, and where this command line names them. An answer that no person
        reads on a terminal stays without; a change does not.
        """
        is_named = self.options.workspace is not None or self.options.config is not None
        here, workspace = current_folder(), os.path.realpath(settings.workspace)
        is_at_hand = here is not None and here.is_relative_to(workspace)
        if not is_named and not is_at_hand and (changes or sys.stdout.isatty()):
            verb = "Changes the notes" if changes else "The notes"
            note(f"{verb} of {settings.workspace} ({settings.workspace_origin}).")


def current_folder() -> Path | None:
    """Return the current folder; None when it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


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
            invocation = Invocation.of(click.get_current_context().meta.get(GIVEN, {}))
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
    values = value if isinstance(value, tuple) else (value,)
    if any(isinstance(each, str) and not each.strip() for each in values):
        raise click.BadParameter("must not be empty", ctx=context, param=parameter)
    return value


def confirm(question: str, *, is_answered: bool) -> bool:
    """Ask before something is changed for good; `is_answered`: `--yes` was given.

    Raises ConfigError where no user can answer.
    """
    if is_answered:
        return True
    if not sys.stdin.isatty():
        raise ConfigError("this asks before it changes anything, and there is no terminal", hint="add --yes")
    return click.confirm(visible(question), default=False, err=True)


def once_a_minute() -> Callable[[str], None]:
    """Give a function that prints a line on stderr, unless it is empty or the last one is of this minute."""
    next_line_at = 0.0

    def say(text: str) -> None:
        nonlocal next_line_at
        if text and time.monotonic() >= next_line_at:
            next_line_at = time.monotonic() + 60
            note(text)

    return say
