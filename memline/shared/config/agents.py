"""Resolve the settings of each agent: workspace, index file, absolute paths.

An agent is resolved when it is asked for. So a configuration without a workspace can still be shown and
checked, and is an error only for a command that needs the workspace. An index is

    <home>/memory/<agent>.sqlite                 for the workspace that is configured for the agent
    <home>/memory/<agent>-<digest>.sqlite        for any other workspace that the agent is used with

Nothing else is written down about a folder. Settings are never read from a workspace: a repository that was
cloned could set an address that every note is sent to.
"""

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
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


class Agents(Mapping[str, AgentSettings]):
    """Maps agents to their settings, each resolved when it is first asked for.

    An unknown agent is a `KeyError`, one without a workspace a `ConfigError`. Without `agents.list` every
    valid id is an agent: a worker may be sent one that it has never met.
    """

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
        self.content, self._memory = content, memory
        self._env, self.home = env, home_of(options, env)
        self._name = str(path or "")
        self.state_dir = environment.state_dir(env)
        self._is_openclaw = path is not None and path.parent == self.state_dir
        #: Whether agents come from `agents.entries`: then other ones are below the common workspace.
        self._is_newest = bool(block.entries)
        self._listed = tuple(block.entries.values()) or block.list
        self._entries = {each.id: each for each in self._listed}
        self._chosen = options.agent
        self._ids = tuple(self._entries) or (options.agent or MAIN,)
        #: For the chosen agent, else the default one.
        self._workspace_option = folder_of(options.workspace, WORKSPACE_OPTION, environment.WORKSPACE, env)
        self._takes_folder = not (options.is_service and (len(self._entries) > 1 or content.queue))
        owners = [each.id for each in self._listed if each.default]
        if self._is_newest:
            owners += [str(block.defaults.system_agent.get("agentId")), MAIN]
        #: The agent that owns what names none.
        self.default = next((each for each in owners if each in self._entries), [*self._entries, MAIN][0])
        self._resolved = cache(self._resolve)

    def __repr__(self) -> str:
        return f"Agents({', '.join(self._ids)})"

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, agent: object) -> bool:
        return agent in self._entries if self._entries else isinstance(agent, str) and is_agent_id(agent)

    def __getitem__(self, agent: str) -> AgentSettings:
        return self.resolve(agent)

    def resolve(self, agent: str, *, needs_workspace: bool = True) -> AgentSettings:
        """Return the agent's settings; a process that only calls the provider needs no workspace."""
        if agent not in self:
            raise KeyError(agent)
        return self._resolved(agent, needs_workspace=needs_workspace)

    def require(self, agent: str) -> str:
        """Return the id itself. Raises ConfigError, with the ids, when there is no such agent."""
        if not is_agent_id(agent):
            raise ConfigError(f"{agent!r} is not a valid agent id", hint=f"use {AGENT_ID.description}")
        if agent not in self:
            raise ConfigError(
                f"there is no agent {agent!r} in agents.list",
                hint=f"name one of these: --agent {', '.join(self._ids)}",
            )
        return agent

    def workspace(self, agent: str) -> Place:
        """Return the agent's workspace. Raises NoWorkspace when nothing says which one it is.

        For the agent of `--agent` it is the one that is configured for that agent, unless `--workspace` names
        another. Else it is the one of `--workspace` or `MEMLINE_WORKSPACE`, the nearest folder at or above
        the current one that has an index, or the configured one.
        """
        option, configured = self._workspace_option, self._configured_workspace(agent)
        if agent != (self._chosen or self.default):
            place = configured or (self._beside(option, agent) if option else None)
        elif option and not (self._chosen and configured and option.origin != WORKSPACE_OPTION):
            if not option.path.is_dir() and not self._usual_index(agent, option.path).exists():
                # A slip of the pen, unlike a workspace of the file. One with an index answers from that.
                words = f"{option.path}: no such folder (named by {option.origin})"
                raise ConfigError(words, hint="check the path, or name another: memline --workspace DIR …")
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
            if self._usual_index(agent, each).exists():
                return Place(each, "nearest folder with an index")
        return None

    def _configured_workspace(self, agent: str) -> Place | None:
        """Return the workspace that the file gives the agent, or the original's usual one where it exists."""
        if (entry := self._entries.get(agent)) and entry.workspace:
            return Place(Path(entry.workspace), f"{self._name}: agents, {agent}")
        if text := self.content.agents.defaults.workspace:
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

    def _usual_index(self, agent: str, workspace: Path) -> Path:
        configured = self._configured_workspace(agent)
        is_own = configured is not None and is_same(workspace, configured.path)
        name = agent if is_own else f"{agent}-{digest(workspace)}"
        return self.home / "memory" / f"{name}.sqlite"

    def index_path(self, agent: str) -> Path:
        """Return the index file of the agent and its workspace."""
        if text := self._of(agent).store.path:
            return Path(text.replace("{agentId}", agent))
        try:
            return self._usual_index(agent, self.workspace(agent).path)
        except ConfigError:
            # Shown and checked without one, never opened.
            return self.home / "memory" / f"{agent}.sqlite"

    def examine(self, reading: Reading) -> None:
        """Raise ConfigError for agents that would see each other's notes.

        Ids become file names, and some file systems take upper and lower case for the same.
        """
        ids, owners = set[str](), dict[Path, str]()
        for each in self._listed:
            if each.id.casefold() in ids:
                words = f"{reading.at('agents')}: there is another agent {each.id!r}"
                raise ConfigError(words, hint="give each agent its own id")
            ids.add(each.id.casefold())
        for agent in self._ids:
            path = self.index_path(agent)
            if (owner := owners.setdefault(path, agent)) != agent:
                words = f"{self._name}: the agents {owner!r} and {agent!r} would share the index {path}"
                raise ConfigError(words, hint="put {agentId} into store.path")

    def _of(self, agent: str) -> MemorySearch:
        """Return the agent's `memorySearch`; one that is not listed has the defaults."""
        return self._memory.get(agent) or self._memory[""]

    def _resolve(self, agent: str, *, needs_workspace: bool = True) -> AgentSettings:
        workspace = self.workspace(agent) if needs_workspace else Place(Path(), "")
        return AgentSettings(
            agent=agent,
            workspace=workspace.path,
            workspace_origin=workspace.origin,
            index_path=self.index_path(agent),
            state_dir=self.state_dir,
            transcript_places={name: environment.place_of(name, self._env) for name in environment.PROGRAMS},
            memory=self._of(agent),
            content=self.content,
            environment_keys=environment.provider_keys(self._env),
            has_saved_keys=self._is_openclaw,
            program_environment=environment.for_programs(self._env),
            home=self.home,
        )


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration, as it was read at the start of a process."""

    #: The settings of each agent, resolved when they are first asked for.
    agents: Agents
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

        An agent that is not listed is a `ConfigError`, but without `agents.list` any valid id has the
        default settings.
        """
        return self.agents[self.agents.require(agent or self.chosen or self.default_agent)]

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


def is_agent_id(text: str) -> bool:
    """Tell whether the text may name an agent."""
    return re.fullmatch(str(AGENT_ID.pattern), text) is not None


def digest(workspace: str | Path) -> str:
    """Identify a workspace in the names of files, whatever links lead to it."""
    return sha256(os.fsencode(os.path.realpath(workspace))).hexdigest()[:12]


def is_same(one: str | Path, other: str | Path) -> bool:
    """Tell whether two paths lead to one workspace."""
    return str(one) == str(other) or os.path.realpath(one) == os.path.realpath(other)
