"""What a command is given: the global options, and the settings that they lead to."""

import os
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Self

import msgspec

from memline.producers.cli.output import echo
from memline.shared.config import environment
from memline.shared.config.load import Loaded, Options, load
from memline.shared.config.schema import AgentSettings, Settings


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
    def loaded(self) -> Loaded:
        """Read the configuration."""
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

    def of_service(self) -> "Invocation":
        """Return the invocation of a process that serves what is configured (`Options.is_service`)."""
        return Invocation(msgspec.structs.replace(self.options, is_service=True))

    def enabled_agents(self) -> list[AgentSettings]:
        """Return those of `agents` whose memory search is switched on, and name the others on stderr."""
        return [settings for settings in self.agents() if self.is_enabled(settings)]

    def is_enabled(self, settings: AgentSettings) -> bool:
        """Tell whether the agent has a memory search; say so when it has none."""
        if not settings.memory.enabled:
            echo(f"Memory search is disabled for agent {settings.agent} (memorySearch.enabled).", err=True)
        return settings.memory.enabled

    def as_typed(self, text: str) -> str:
        """Put this command line's global options into the commands of a hint, so that they work as typed."""
        return self.options.as_typed(text)

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
            echo(f"{verb} of {settings.workspace} ({settings.workspace_origin}).", err=True)

    def everywhere(self, settings: AgentSettings) -> Options:
        """Return the options that mean this agent's memory in any folder and any shell."""
        options, loaded = self.options, self.settings
        by_variable = environment.read(os.environ, environment.CONFIG)
        has_home = options.home is not None or environment.read(os.environ, environment.HOME)
        return Options(
            config=loaded.path if options.config is not None or by_variable else None,
            home=loaded.home if has_home else None,
            workspace=settings.workspace,
            agent=settings.agent if settings.agent != loaded.default_agent else None,
        )


def current_folder() -> Path | None:
    """Return the current folder; None when it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None
