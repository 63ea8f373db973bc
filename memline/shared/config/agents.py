"""Resolve the settings of each agent: workspace, index file, absolute paths.

An agent is resolved when it is asked for. So a configuration without a workspace can still be shown and
checked, and is an error only for a command that needs the workspace.
"""

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from memline.shared.config import environment, workspaces
from memline.shared.config.environment import Environment
from memline.shared.config.openclaw import QMD_SCOPE
from memline.shared.config.schema import (
    AGENT_ID,
    AgentEntry,
    AgentSettings,
    ConfigFile,
    MemorySearch,
    Sessions,
)
from memline.shared.errors import ConfigError, NoWorkspace

MAIN = "main"

#: Origin of the original's usual workspace.
USUAL = "default"

#: Origins of a folder that the command line names, and of one that is found.
WORKSPACE_OPTION = "--workspace"
NEAREST = "nearest folder with an index"


class Place(NamedTuple):
    """A folder, and what says so: `<file>: <key>`, a variable, an option, or `default`."""

    path: Path
    origin: str


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the settings of an agent are resolved from."""

    env: Environment
    home: Path
    state_dir: Path
    #: The file that was read, empty without one, and its folder: relative paths in it begin there.
    name: str
    base: Path
    file: ConfigFile
    #: `memorySearch` of each agent, merged; under "" that of all others.
    memory: Mapping[str, MemorySearch]
    entries: Mapping[str, AgentEntry]
    #: Ids in the order of the file; the chosen one, or `main` alone, when the file lists none.
    ids: tuple[str, ...]
    default: str
    #: False: the file lists no agent, and any valid id has the defaults.
    is_listed: bool = False
    #: Whether they come from `agents.entries`: then other agents are below the common workspace.
    is_newest: bool = False
    #: The agent of `--agent`; None without the option.
    chosen: str | None = None
    #: `--workspace` or `MEMLINE_WORKSPACE`, for the chosen agent, else the default one.
    named_workspace: Place | None = None
    #: Whether the current folder may say which notes are meant.
    takes_folder: bool = True
    #: Whether the file is the original's own: keys that it has saved may be used.
    is_openclaw: bool = False
    sessions: Sessions = Sessions()
    prices: Mapping[str, Mapping[str, Any]] = {}

    def __repr__(self) -> str:
        return f"Setup({self.name!r})"


def is_agent_id(text: str) -> bool:
    """Tell whether the text may name an agent."""
    return re.fullmatch(AGENT_ID, text) is not None


class Agents(Mapping[str, AgentSettings]):
    """Maps agents to their settings, each resolved when it is first asked for.

    An unknown agent is a `KeyError`, one without a workspace a `ConfigError`. Without `agents.list` every
    valid id is an agent: a worker may be sent one that it has never met.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._resolved = cache(self._resolve)

    def __iter__(self) -> Iterator[str]:
        return iter(self.setup.ids)

    def __len__(self) -> int:
        return len(self.setup.ids)

    def __contains__(self, agent: object) -> bool:
        return isinstance(agent, str) and (
            agent in self.setup.ids if self.setup.is_listed else is_agent_id(agent)
        )

    def __getitem__(self, agent: str) -> AgentSettings:
        return self.resolve(agent)

    def resolve(self, agent: str, *, needs_workspace: bool = True) -> AgentSettings:
        """Return the agent's settings, also without a workspace."""
        if agent not in self:
            raise KeyError(agent)
        return self._resolved(agent, needs_workspace=needs_workspace)

    def require(self, agent: str) -> str:
        """Return the id itself. Raises ConfigError, with the ids, when there is no such agent."""
        if not is_agent_id(agent):
            raise ConfigError(
                f"{agent!r} is not a valid agent id",
                hint="use up to 64 letters, digits, - and _, and begin with a letter or digit",
            )
        if agent not in self:
            raise ConfigError(
                f"there is no agent {agent!r} in agents.list",
                hint=f"name one of these: --agent {', '.join(self.setup.ids)}",
            )
        return agent

    def memory(self, agent: str) -> MemorySearch:
        """Return the agent's `memorySearch`; an agent that is not listed has the defaults."""
        return self.setup.memory.get(agent) or self.setup.memory[""]

    def workspace(self, agent: str) -> Place:
        """Return the agent's workspace. Raises NoWorkspace when nothing says which one it is.

        For the agent of `--agent` it is the one that is configured for that agent, unless `--workspace` names
        another. Else it is the one of `--workspace` or `MEMLINE_WORKSPACE`, the nearest folder at or above
        the current one that has an index, or the configured one.
        """
        setup, named = self.setup, self.setup.named_workspace
        configured = self.configured_workspace(agent)
        is_chosen = setup.chosen is not None
        if agent != (setup.chosen or setup.default):
            found = configured or (self._beside(named, agent) if named else None)
        elif named is not None and not (is_chosen and configured and named.origin != WORKSPACE_OPTION):
            if not named.path.is_dir() and not self._usual_index(agent, named.path).exists():
                # A slip of the pen, unlike a workspace of the file. One with an index answers from that.
                words = f"{named.path}: no such folder (named by {named.origin})"
                raise ConfigError(words, hint="check the path, or name another: memline --workspace DIR …")
            found = named
        elif is_chosen:
            found = configured or self._nearest(agent)
        else:
            found = self._nearest(agent) or configured
        if found is None:
            hint = "memline init   (for the current folder; or: memline --workspace DIR …)"
            raise NoWorkspace("no workspace is configured, and no folder here has an index", hint=hint)
        return found

    def _nearest(self, agent: str) -> Place | None:
        """Return the nearest folder at or above the current one that has an index of the agent."""
        if not self.setup.takes_folder or self.memory(agent).store.path:
            return None
        folders = (Path.cwd(), *Path.cwd().parents)
        found = next((each for each in folders if self._usual_index(agent, each).exists()), None)
        return Place(found, NEAREST) if found else None

    def configured_workspace(self, agent: str) -> Place | None:
        """Return the workspace that the file gives the agent, or the original's usual one where it exists."""
        setup = self.setup
        if (entry := setup.entries.get(agent)) and entry.workspace:
            return Place(self._path(entry.workspace), f"{setup.name}: agents, {agent}")
        if text := setup.file.agents.defaults.workspace:
            common = Place(self._path(text), f"{setup.name}: agents.defaults.workspace")
            if setup.is_newest and agent != setup.default:
                return common._replace(path=common.path / agent)
            return self._beside(common, agent)
        usual = environment.user_home(setup.env) / ".openclaw" / "workspace"
        return self._beside(Place(usual, USUAL), agent) if usual.is_dir() else None

    def _beside(self, workspace: Place, agent: str) -> Place:
        """Return the workspace itself for the default agent, for another one the folder beside it."""
        is_default = agent == self.setup.default
        return workspace if is_default else workspace._replace(path=Path(f"{workspace.path}-{agent}"))

    def _usual_index(self, agent: str, workspace: Path) -> Path:
        configured = self.configured_workspace(agent)
        return workspaces.index_file(
            self.setup.home, agent, workspace, configured.path if configured else None
        )

    def index_path(self, agent: str) -> Path:
        """Return the index file of the agent and its workspace; never the one of the original itself."""
        if (path := self._named_index(agent)) is not None and path not in self._originals(agent):
            return path
        try:
            workspace = self.workspace(agent).path
        except ConfigError:
            # Shown and checked without one, never opened.
            return self.setup.home / "memory" / f"{agent}.sqlite"
        return self._usual_index(agent, workspace)

    def check_indexes(self) -> list[str]:
        """Refuse two agents in one index, who would see each other's notes.

        Returns a warning for each agent whose `store.path` is the original's own index.
        """
        owners: dict[Path, str] = {}
        warnings, name = [], self.setup.name
        for agent in self.setup.ids:
            path = self.index_path(agent)
            if self._named_index(agent) in self._originals(agent):
                words = f"this is OpenClaw's own index, Memline keeps its own in {path}"
                warnings.append(f"{name}: memorySearch.store.path: {words}")
            if path in owners:
                raise ConfigError(
                    f"{name}: the agents {owners[path]!r} and {agent!r} would share the index {path}",
                    hint="put {agentId} into store.path",
                )
            owners[path] = agent
        return warnings

    def _named_index(self, agent: str) -> Path | None:
        """Return the file that `store.path` names."""
        named = self.memory(agent).store.path
        return self._path(named.replace("{agentId}", agent)) if named else None

    def _originals(self, agent: str) -> tuple[Path, Path]:
        """Return the files of the original's own index."""
        folder = self.setup.state_dir
        return (
            folder / "memory" / f"{agent}.sqlite",
            folder / "agents" / agent / "agent" / "openclaw-agent.sqlite",
        )

    def _path(self, text: str) -> Path:
        """Make a path of the file absolute: `~` expanded, relative to the file's folder."""
        # The current folder is looked up for a relative one alone: it may have been deleted.
        path = self.setup.base / environment.expand_user(text, self.setup.env)
        return Path(os.path.normpath(path.absolute()))

    def _with_paths(self, memory: MemorySearch) -> MemorySearch:
        """Make the paths of the block absolute; those of `extraPaths` stay relative to the workspace."""

        def path(text: str) -> str:
            is_address = text.startswith(("hf:", "http://", "https://"))
            return str(self._path(text)) if text and not is_address else text

        change, env, local, vector = (
            msgspec.structs.replace,
            self.setup.env,
            memory.local,
            memory.store.vector,
        )
        extra = (change(each, path=environment.expand_user(each.path, env)) for each in memory.extra_paths)
        return change(
            memory,
            local=change(
                local, model_path=path(local.model_path), model_cache_dir=path(local.model_cache_dir)
            ),
            store=change(memory.store, vector=change(vector, extension_path=path(vector.extension_path))),
            extra_paths=tuple(dict.fromkeys(extra)),
        )

    def _resolve(self, agent: str, *, needs_workspace: bool = True) -> AgentSettings:
        setup, memory = self.setup, self.setup.file.memory
        workspace = self.workspace(agent) if needs_workspace else Place(Path(), "")
        is_qmd = memory.backend == "qmd"
        return AgentSettings(
            agent=agent,
            workspace=workspace.path,
            workspace_origin=workspace.origin,
            index_path=self.index_path(agent),
            state_dir=setup.state_dir,
            transcript_places={name: environment.place_of(name, setup.env) for name in environment.PROGRAMS},
            memory=self._with_paths(self.memory(agent)),
            providers=setup.file.models.providers,
            environment_keys=environment.provider_keys(setup.env),
            has_saved_keys=setup.is_openclaw,
            citations=memory.citations,
            max_injected_chars=memory.qmd.limits.max_injected_chars if is_qmd else 0,
            private_in_groups=memory.private_in_groups,
            scope=memory.scope or ((memory.qmd.scope or QMD_SCOPE) if is_qmd else None),
            backend=memory.backend,
            qmd=memory.qmd,
            program_environment=environment.for_programs(setup.env),
            home=setup.home,
            sessions=setup.sessions,
            limits=setup.file.limits,
            prices=setup.prices,
        )


def without_workspace(agents: Mapping[str, AgentSettings], agent: str) -> AgentSettings:
    """Return the settings for a process that only calls the provider: it needs no workspace.

    `KeyError` when there is no such agent.
    """
    return agents.resolve(agent, needs_workspace=False) if isinstance(agents, Agents) else agents[agent]
