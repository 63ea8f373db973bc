"""Resolve the settings of each agent: workspace, index file, absolute paths.

A configuration without a workspace can still be shown and checked, and is an error only for what needs the
workspace. An index is

    <home>/memory/<agent>.sqlite                 for the workspace that is configured for the agent
    <home>/memory/<agent>-<digest>.sqlite        for any other workspace that the agent is used with

Nothing else is written down about a folder. Settings are never read from a workspace: a repository that was
cloned could set an address that every note is sent to.
"""

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec.structs import replace

from memline.shared.config import environment
from memline.shared.config.check import Reading
from memline.shared.config.config_file import SettingsFile
from memline.shared.config.environment import Environment, Options, Place, folder_of, home_of
from memline.shared.config.installation import QueueAddress, Serve
from memline.shared.config.schema import ACCOUNT_FILE, AGENT_ID, AgentSettings, ConfigFile, MemorySearch
from memline.shared.errors import ConfigError, NoWorkspace

MAIN = "main"

#: Origin of a workspace that the command line names.
WORKSPACE_OPTION = "--workspace"


class Agents:
    """Finds the agents of a configuration, and the workspace and index of each."""

    def __init__(
        self,
        content: ConfigFile,
        memory: Mapping[str, MemorySearch],
        options: Options,
        env: Environment,
        path: Path | None,
    ) -> None:
        """`memory`: of each agent, and under "" that of all others. `path`: the file that was read."""
        block = content.agents
        self._content, self._memory, self._env = content, memory, env
        self._home, self._name = home_of(options, env), str(path or "")
        #: Whether agents come from `agents.entries`: then other ones are below the common workspace.
        self._is_newest = bool(block.entries)
        self._listed = tuple(block.entries.values()) or block.list
        self._entries = {each.id: each for each in self._listed}
        self._chosen = options.agent
        if options.agent is not None:
            self._check(options.agent)
        #: Without a list there is one agent, of any valid id.
        self.ids = tuple(self._entries) or (options.agent or MAIN,)
        #: For the chosen agent, else the default one.
        self._option = folder_of(options.workspace, WORKSPACE_OPTION, environment.WORKSPACE, env)
        self._takes_folder = not (options.is_service and (len(self._entries) > 1 or content.queue))
        owners = [each.id for each in self._listed if each.default]
        if self._is_newest:
            owners += [str(block.defaults.system_agent.get("agentId")), MAIN]
        #: The agent that owns what names none.
        self.default = next((each for each in owners if each in self._entries), [*self._entries, MAIN][0])

    def _check(self, agent: str) -> None:
        if re.fullmatch(str(AGENT_ID.pattern), agent) is None:
            raise ConfigError(f"{agent!r} is not a valid agent id", hint=f"use {AGENT_ID.description}")
        if self._entries and agent not in self._entries:
            raise ConfigError(
                f"there is no agent {agent!r} in agents.list",
                hint=f"name one of these: --agent {', '.join(self._entries)}",
            )

    def resolve(self, reading: Reading) -> dict[str, AgentSettings]:
        """Return the settings of all agents. Raises ConfigError for some that would see each other's notes.

        Ids become file names, and some file systems take upper and lower case for the same.
        """
        ids, owners = set[str](), dict[Path, str]()
        for each in self._listed:
            if each.id.casefold() in ids:
                words = f"{reading.at('agents')}: there is another agent {each.id!r}"
                raise ConfigError(words, hint="give each agent its own id")
            ids.add(each.id.casefold())
        keys, state_dir = environment.provider_keys(self._env), environment.state_dir(self._env)
        places = {name: environment.place_of(name, self._env) for name in environment.PROGRAMS}
        resolved = dict[str, AgentSettings]()
        for agent in self.ids:
            fault, workspace = None, Place(Path(), "")
            try:
                workspace = self._workspace(agent)
            except ConfigError as error:
                fault = error
            # Without a workspace it is shown and checked, never opened.
            path = self._index(agent, workspace.path) if not fault else self._below_home(agent)
            if (owner := owners.setdefault(path, agent)) != agent:
                words = f"{self._name}: the agents {owner!r} and {agent!r} would share the index {path}"
                raise ConfigError(words, hint="put {agentId} into store.path")
            resolved[agent] = AgentSettings(
                agent=agent,
                workspace=workspace.path,
                workspace_origin=workspace.origin,
                workspace_fault=fault,
                index_path=path,
                state_dir=state_dir,
                transcript_places=places,
                memory=self._of(agent),
                content=self._content,
                environment_keys=keys,
                has_saved_keys=Path(self._name).parent == state_dir,
                program_environment=environment.for_programs(self._env),
                home=self._home,
            )
        return resolved

    def _workspace(self, agent: str) -> Place:
        """Return the agent's workspace. Raises NoWorkspace when nothing says which one it is.

        For the agent of `--agent` it is the one that is configured for that agent, unless `--workspace` names
        another. Else it is the one of `--workspace` or `MEMLINE_WORKSPACE`, the nearest folder at or above
        the current one that has an index, or the configured one.
        """
        option, configured = self._option, self._configured(agent)
        if agent != (self._chosen or self.default):
            place = configured or (self._beside(option, agent) if option else None)
        elif option and not (self._chosen and configured and option.origin != WORKSPACE_OPTION):
            if not option.path.is_dir() and not self._index(agent, option.path).exists():
                # A slip of the pen, unlike a workspace of the file. One with an index answers from that.
                # A program gives it without an option.
                origin = "" if option.origin == WORKSPACE_OPTION else f" (named by {option.origin})"
                raise ConfigError(f"{option.path}: no such folder{origin}", hint="check the path")
            place = option
        elif self._chosen:
            place = configured or self._nearest(agent)
        else:
            place = self._nearest(agent) or configured
        if place is None:
            hint = "memline init   (for the current folder; or: memline --workspace DIR …)"
            raise NoWorkspace("no workspace is configured, and no folder here has an index", hint=hint)
        return place

    def _nearest(self, agent: str) -> Place | None:
        """Return the nearest folder at or above the current one that has an index of the agent."""
        if not self._takes_folder or self._of(agent).store.path:
            return None
        for each in (here := Path.cwd(), *here.parents):
            if self._index(agent, each).exists():
                return Place(each, "nearest folder with an index")
        return None

    def _configured(self, agent: str) -> Place | None:
        """Return the workspace that the file gives the agent, or the original's usual one where it exists."""
        if (entry := self._entries.get(agent)) and entry.workspace:
            return Place(Path(entry.workspace), f"{self._name}: agents, {agent}")
        if text := self._content.agents.defaults.workspace:
            common = Place(Path(text), f"{self._name}: agents.defaults.workspace")
            if self._is_newest and agent != self.default:
                return common._replace(path=common.path / agent)
            return self._beside(common, agent)
        usual = environment.user_home(self._env) / ".openclaw" / "workspace"
        return self._beside(Place(usual, "default"), agent) if usual.is_dir() else None

    def _beside(self, workspace: Place, agent: str) -> Place:
        """Return the workspace itself for the default agent, for another one the folder beside it."""
        is_default = agent == self.default
        return workspace if is_default else workspace._replace(path=Path(f"{workspace.path}-{agent}"))

    def _index(self, agent: str, workspace: Path) -> Path:
        """Return the index file of an agent and a workspace."""
        configured = self._configured(agent)
        is_own = configured is not None and is_same(workspace, configured.path)
        return self._below_home(agent if is_own else f"{agent}-{digest(workspace)}", agent)

    def _below_home(self, name: str, agent: str = "") -> Path:
        if text := self._of(agent or name).store.path:
            return Path(text.replace("{agentId}", agent or name))
        return self._home / "memory" / f"{name}.sqlite"

    def _of(self, agent: str) -> MemorySearch:
        """Return the agent's `memorySearch`; one that is not listed has the defaults."""
        return self._memory.get(agent) or self._memory[""]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration, as it was read at the start of a process."""

    agents: Mapping[str, AgentSettings]
    #: The agent of `--agent`; None without the option.
    chosen: str | None = None
    default_agent: str
    home: Path
    #: What the file says for all agents; `queue` and `serve` are also here.
    content: ConfigFile
    queue: QueueAddress
    serve: Serve
    #: The file that was read; None without one.
    path: Path | None
    #: The same file, or the place for one, to tell whether it was changed since.
    file: SettingsFile
    #: Values that have no effect, or another one than written.
    warnings: tuple[str, ...] = ()
    #: The options that name file and home where the default places are not meant.
    named: Options = Options()

    @property
    def account_path(self) -> Path:
        """The file of what all agents share about their provider accounts."""
        return self.home / ACCOUNT_FILE

    def agent(self, agent: str | None = None) -> AgentSettings:
        """Return the settings of this agent, else of the chosen one, else of the default one.

        Raises ConfigError for an agent that there is not, and for one without a workspace.
        """
        name = agent or self.chosen or self.default_agent
        if name not in self.agents:
            hint = f"name one of these: --agent {', '.join(self.agents)}"
            raise ConfigError(f"there is no agent {name!r}", hint=hint)
        return self.agents[name].with_workspace()

    def everywhere(self, agent: AgentSettings) -> Options:
        """Return the options that mean this agent's memory in any folder and any shell."""
        name = agent.agent if agent.agent != self.default_agent else None
        return replace(self.named, workspace=agent.workspace, agent=name)

    def chosen_ids(self) -> tuple[str, ...]:
        """Return the chosen agent, or all of them in the order of the file."""
        return (self.chosen,) if self.chosen else tuple(self.agents)

    def chosen_agents(self) -> tuple[AgentSettings, ...]:
        """Return the settings of the chosen agent, or of all of them."""
        return tuple(map(self.agent, self.chosen_ids()))


def digest(workspace: str | Path) -> str:
    """Identify a workspace in the names of files, whatever links lead to it."""
    return sha256(os.fsencode(os.path.realpath(workspace))).hexdigest()[:12]


def is_same(one: str | Path, other: str | Path) -> bool:
    """Tell whether two paths lead to one workspace."""
    return str(one) == str(other) or os.path.realpath(one) == os.path.realpath(other)
