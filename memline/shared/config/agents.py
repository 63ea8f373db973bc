"""List the agents of a configuration and resolve the settings of one: workspace, index file, absolute paths.

An agent is resolved when it is asked for. So a configuration without a workspace can still be shown and
checked, and is an error only for a command that needs the workspace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from memline.shared.config import environment, openclaw, schema, workspaces
from memline.shared.config.check import RawConfig, Warnings, check_block, mismatch
from memline.shared.config.environment import Environment
from memline.shared.config.keys import Block, build
from memline.shared.config.transcript_programs import READ_IN_PLACE, place_of
from memline.shared.errors import ConfigError, NoWorkspace
from memline.shared.note_names import ANY_MARKDOWN
from memline.shared.values import field, replace, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAIN = "main"

#: Origin of the original's usual workspace.
USUAL = "default"

#: Origins of a folder that the command line names, and of one that is found.
WORKSPACE_OPTION = "--workspace"
NEAREST = "nearest folder with an index"


@value
class Place:
    """A file or folder, and what says so: `<file>: <key>`, a variable, an option, or `default`."""

    path: Path
    origin: str


@value
class AgentList(Block):
    """The ids of a configuration's agents, with the settings of each."""

    #: Ids in the order of the file; `main` alone when the file lists none.
    ids: tuple[str, ...] = (MAIN,)
    default: str = MAIN
    #: False: the file has no `agents.list`, and any valid id has the defaults.
    is_listed: bool = False
    #: Whether they come from `agents.entries`: then other agents are below the common workspace.
    is_newest: bool = False
    entries: Mapping[str, schema.AgentEntry] = field(default_factory=dict)
    #: `memorySearch` of each agent that has one, by dotted path.
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)

    def require(self, agent: str) -> str:
        """Return the id itself when there is such an agent; else raise an error that lists the agents."""
        if not is_agent_id(agent):
            raise ConfigError(
                f"{agent!r} is not a valid agent id",
                hint="use up to 64 letters, digits, - and _, and begin with a letter or digit",
            )
        if not self.has(agent):
            raise ConfigError(
                f"there is no agent {agent!r} in agents.list",
                hint=f"name one of these: --agent {', '.join(self.ids)}",
            )
        return agent

    def has(self, agent: str) -> bool:
        """Tell whether there is such an agent."""
        return agent in self.ids if self.is_listed else is_agent_id(agent)


def is_agent_id(text: str) -> bool:
    """Tell whether the text may name an agent."""
    return re.fullmatch(schema.AGENT_ID, text) is not None


def read_agents(raw: RawConfig) -> AgentList:
    """Read `agents.list`, or `agents.entries` of the original's newest releases, which wins."""
    warnings = raw.warnings
    newest = openclaw.entries_of(raw)
    items = newest or _listed(raw)
    if not items:
        return AgentList()
    by_id: dict[str, schema.AgentEntry] = {}
    overrides: dict[str, Mapping[str, Any]] = {}
    for place, item in items:
        entry = build(schema.AgentEntry, check_block(schema.AgentEntry, item, at=place, warnings=warnings))
        agent = entry.id
        # Ids become file names, and some file systems take upper and lower case for the same.
        if agent.casefold() in map(str.casefold, by_id):
            raise ConfigError(
                f"{place}.id: there is another agent {agent!r}", hint="give each agent its own id"
            )
        by_id[agent] = entry
        if "memorySearch" in item:
            overrides[agent] = check_block(
                schema.MemorySearch, item["memorySearch"], at=f"{place}.memorySearch", warnings=warnings
            )
        elif isinstance(memory := item.get("memory"), dict) and "search" in memory:
            overrides[agent] = openclaw.read_search(raw, memory["search"], at=f"{place}.memory.search")
    ids = tuple(by_id) or (MAIN,)
    marked = [agent for agent, entry in by_id.items() if entry.default]
    default = [*marked, _system_agent(raw, ids) if newest else ids[0]][0]
    for other in marked[1:]:
        # As in the original, which uses such a file too.
        warnings.warn(f"{raw.at('agents')}: {other} is marked as the default agent, and {default} is it")
    return AgentList(
        ids=ids,
        default=default,
        is_listed=True,
        is_newest=bool(newest),
        entries=by_id,
        overrides=overrides,
    )


def _listed(raw: RawConfig) -> list[tuple[str, Any]]:
    """List the entries of `agents.list` with their places."""
    entries, at = raw.get("agents").get("list"), raw.at("agents.list")
    if entries is not None and not isinstance(entries, list):
        raise mismatch(at, entries, "an array of { id, default, workspace }", '[{ id: "main" }]')
    return [(f"{at}[{number}]", item) for number, item in enumerate(entries or ())]


def _system_agent(raw: RawConfig, ids: Sequence[str]) -> str:
    """Return the agent of the newest releases that owns what names none: the system agent, else `main`."""
    named = raw.get("agents", "defaults").get("systemAgent")
    owner = named.get("agentId") if isinstance(named, dict) else ""
    return next((agent for agent in ids if agent == owner), MAIN if MAIN in ids else ids[0])


@value
class ResolveContext(Block):
    """Everything that the settings of an agent are resolved from."""

    agents: AgentList
    env: Environment = field(repr=False)
    home: Path
    state_dir: Path
    #: The file that was read, empty without one, and its folder: relative paths in it begin there.
    name: str
    base: Path
    #: `--workspace` or `MEMLINE_WORKSPACE`, with the agent that it is for.
    named_workspace: Place | None = None
    named_for: str = ""
    #: Whether `--agent` names it.
    is_chosen: bool = False
    #: Whether the current folder may say which notes are meant.
    takes_folder: bool = True
    #: Whether the file that was read is the original's own: its usual workspace is then the configured one.
    is_openclaw: bool = False
    #: `memorySearch`, merged, by dotted path, of the agents with overrides; under "" that of all others.
    memory: Mapping[str, Mapping[str, Any]] = field(repr=False)
    providers: Mapping[str, schema.ProviderEntry]
    #: What holds for all agents.
    file: schema.ConfigFile
    sessions: schema.Sessions
    prices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def settings(self, agent: str) -> Mapping[str, Any]:
        """Return the agent's `memorySearch`; an agent that is not listed has the defaults."""
        return self.memory.get(agent, self.memory[""])

    def workspace(self, agent: str) -> Place:
        """Return the agent's workspace. Raises NoWorkspace when nothing says which one it is.

        For the agent of `--agent` it is the one that is configured for that agent, unless `--workspace` names
        another. Else it is the one of `--workspace` or `MEMLINE_WORKSPACE`, the nearest folder at or above
        the current one that has an index, or the configured one.
        """
        named, configured = self.named_workspace, self.configured_workspace(agent)
        if agent != self.named_for:
            found = configured or (self._beside(named, agent) if named else None)
        elif named is not None and not (self.is_chosen and configured and named.origin != WORKSPACE_OPTION):
            if not named.path.is_dir() and not self._usual_index(agent, named.path).exists():
                # A slip of the pen, unlike a workspace of the file. One with an index answers from that.
                words = f"{named.path}: no such folder (named by {named.origin})"
                raise ConfigError(words, hint="check the path, or name another: memline --workspace DIR …")
            found = named
        elif self.is_chosen:
            found = configured or self._nearest(agent)
        else:
            found = self._nearest(agent) or configured
        if found is None:
            hint = "memline init   (for the current folder; or: memline --workspace DIR …)"
            raise NoWorkspace("no workspace is configured, and no folder here has an index", hint=hint)
        return found

    def _nearest(self, agent: str) -> Place | None:
        """Return the nearest folder at or above the current one that has an index of the agent."""
        if not self.takes_folder or self.settings(agent).get("store.path"):
            return None
        folders = (Path.cwd(), *Path.cwd().parents)
        found = next((each for each in folders if self._usual_index(agent, each).exists()), None)
        return Place(path=found, origin=NEAREST) if found else None

    def configured_workspace(self, agent: str) -> Place | None:
        """Return the workspace that the file gives the agent, or the original's usual one where it exists."""
        entry = self.agents.entries.get(agent)
        if entry and entry.workspace:
            origin = f"{self.name}: agents, {agent}"
            return Place(path=self.path(entry.workspace), origin=origin)
        if text := self.file.agents.defaults.workspace:
            folder, origin = self.path(text), f"{self.name}: agents.defaults.workspace"
            if agent == self.agents.default:
                return Place(path=folder, origin=origin)
            beside = folder / agent if self.agents.is_newest else Path(f"{folder}-{agent}")
            return Place(path=beside, origin=origin)
        usual = environment.user_home(self.env) / ".openclaw" / "workspace"
        return self._beside(Place(path=usual, origin=USUAL), agent) if usual.is_dir() else None

    def _beside(self, workspace: Place, agent: str) -> Place:
        """Return the workspace itself for the default agent, for another one the folder beside it."""
        is_default = agent == self.agents.default
        return workspace if is_default else replace(workspace, path=Path(f"{workspace.path}-{agent}"))

    def _usual_index(self, agent: str, workspace: Path) -> Path:
        configured = self.configured_workspace(agent)
        return workspaces.index_file(self.home, agent, workspace, configured.path if configured else None)

    def index_path(self, agent: str) -> Path:
        """Return the index file of the agent and its workspace; never the one of the original itself."""
        if (path := self.named_index(agent)) is not None and path not in self.originals(agent):
            return path
        try:
            workspace = self.workspace(agent).path
        except ConfigError:
            # Shown and checked without one, never opened.
            return self.home / "memory" / f"{agent}.sqlite"
        return self._usual_index(agent, workspace)

    def named_index(self, agent: str) -> Path | None:
        """Return the file that `store.path` names."""
        named = self.settings(agent).get("store.path")
        return self.path(named.replace("{agentId}", agent)) if named else None

    def originals(self, agent: str) -> tuple[Path, Path]:
        """Return the files of the original's own index."""
        return (
            self.state_dir / "memory" / f"{agent}.sqlite",
            self.state_dir / "agents" / agent / "agent" / "openclaw-agent.sqlite",
        )

    def path(self, text: str) -> Path:
        """Make a path of the file absolute: `~` expanded, relative to the file's folder."""
        # The current folder is looked up for a relative one alone: it may have been deleted.
        return Path(os.path.normpath((self.base / environment.expand_user(text, self.env)).absolute()))

    def resolve(self, agent: str, *, needs_workspace: bool = True) -> schema.AgentSettings:
        """Collect everything one agent needs, with absolute paths."""
        memory = dict(self.settings(agent))
        for path in ("local.modelPath", "local.modelCacheDir", "store.vector.extensionPath"):
            if memory.get(path) and not memory[path].startswith(("hf:", "http://", "https://")):
                memory[path] = str(self.path(memory[path]))
        # Those of `extraPaths` stay relative to the workspace.
        memory["extraPaths"] = tuple(
            dict.fromkeys(
                schema.ExtraPath(
                    path=environment.expand_user(entry.path, self.env),
                    pattern=entry.pattern or ANY_MARKDOWN,
                )
                for entry in memory.get("extraPaths", ())
            )
        )
        workspace = self.workspace(agent) if needs_workspace else Place(path=Path(), origin="")
        return schema.AgentSettings(
            agent=agent,
            workspace=workspace.path,
            workspace_origin=workspace.origin,
            index_path=self.index_path(agent),
            state_dir=self.state_dir,
            transcript_places={name: place_of(name, self.env) for name in READ_IN_PLACE},
            memory=build(schema.MemorySearch, memory),
            providers=self.providers,
            environment_keys=environment.provider_keys(self.env),
            has_saved_keys=self.is_openclaw,
            citations=self.file.memory.citations,
            max_injected_chars=self.file.memory.max_injected_chars,
            private_in_groups=self.file.memory.private_in_groups,
            scope=self.file.memory.scope,
            backend=self.file.memory.backend,
            qmd=self.file.memory.qmd,
            program_environment=environment.for_programs(self.env),
            home=self.home,
            sessions=self.sessions,
            limits=self.file.limits,
            prices=self.prices,
        )


class Agents(Mapping[str, schema.AgentSettings]):
    """Maps agents to their settings, each resolved when it is first asked for.

    An unknown agent is a `KeyError`, one without a workspace a `ConfigError`. Without `agents.list` every
    valid id is an agent: a worker may be sent one that it has never met.
    """

    def __init__(self, context: ResolveContext) -> None:
        self._agents = context.agents
        self._context = context
        self._resolved = cache(context.resolve)

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents.ids)

    def __len__(self) -> int:
        return len(self._agents.ids)

    def __contains__(self, agent: object) -> bool:
        return isinstance(agent, str) and self._agents.has(agent)

    def __getitem__(self, agent: str) -> schema.AgentSettings:
        return self.resolve(agent)

    def resolve(self, agent: str, *, needs_workspace: bool = True) -> schema.AgentSettings:
        """Return the agent's settings, also without a workspace."""
        if agent not in self:
            raise KeyError(agent)
        return self._resolved(agent, needs_workspace=needs_workspace)


def without_workspace(agents: Mapping[str, schema.AgentSettings], agent: str) -> schema.AgentSettings:
    """Return the settings for a process that only calls the provider: it needs no workspace.

    `KeyError` when there is no such agent.
    """
    return agents.resolve(agent, needs_workspace=False) if isinstance(agents, Agents) else agents[agent]


def check_index_paths(context: ResolveContext, warnings: Warnings) -> None:
    """Refuse two agents in one index, who would see each other's notes; warn of the original's index."""
    owners: dict[Path, str] = {}
    for agent in context.agents.ids:
        path = context.index_path(agent)
        if context.named_index(agent) in context.originals(agent):
            at = f"{context.name}: memorySearch.store.path"
            warnings.warn(f"{at}: this is OpenClaw's own index, Memline keeps its own in {path}")
        if path in owners:
            raise ConfigError(
                f"{context.name}: the agents {owners[path]!r} and {agent!r} would share the index {path}",
                hint="put {agentId} into store.path",
            )
        owners[path] = agent
