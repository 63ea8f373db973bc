"""From merged leaves to the settings of one agent: workspace, index file, paths made absolute.

An agent is resolved when it is asked for. So a configuration without a workspace can still be shown and
checked, and is an error only for a command that needs the workspace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.config import environment
from shared.config.check import Leaf, Report
from shared.config.environment import Environment
from shared.config.keys import build
from shared.config.roster import Roster
from shared.config.schema import AgentSettings, ExtraPath, MemorySearch, ProviderEntry, Sessions
from shared.errors import ConfigError

if TYPE_CHECKING:
    from shared.config.faces import ChatScope

NO_WORKSPACE_HINT = "memline --workspace DIR … (or agents.defaults.workspace in the configuration)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Ground:
    """What all agents of one configuration stand on."""

    roster: Roster
    env: Environment
    home: Path
    state_dir: Path
    #: Folder of the file that was read: relative paths in it begin there.
    base: Path
    #: `--workspace` or `MEMLINE_WORKSPACE`, with the agent that it is for.
    named_workspace: Leaf | None = None
    named_for: str = ""
    memory: Mapping[str, Mapping[str, Leaf]] = field(default_factory=dict)
    providers: Mapping[str, ProviderEntry] = field(default_factory=dict)
    citations: str = "auto"
    sessions: Sessions = field(default_factory=Sessions)
    max_injected_chars: int = 0
    scope: ChatScope | None = None

    def leaves(self, agent: str) -> Mapping[str, Leaf]:
        """The agent's `memorySearch` by dotted path; an agent that is not listed has the defaults."""
        return self.memory.get(agent, self.memory[""])

    def workspace(self, agent: str) -> Leaf:
        """The agent's workspace and who says so; an error when nobody does."""
        if self.named_workspace is not None and agent == self.named_for:
            return self._existing(self.named_workspace)
        if own := self.roster.workspaces.get(agent):
            return self._absolute(own)
        path, origin = self._default_workspace()
        if agent == self.roster.default:
            return path, origin
        return Path(f"{path}-{agent}"), origin

    def _default_workspace(self) -> Leaf:
        if self.named_workspace is not None and self.named_for == self.roster.default:
            return self._existing(self.named_workspace)
        if self.roster.default_workspace is not None:
            return self._absolute(self.roster.default_workspace)
        usual = environment.user_home(self.env) / ".openclaw" / "workspace"
        if usual.is_dir():
            return usual, "default"
        raise ConfigError("no workspace is configured", hint=NO_WORKSPACE_HINT)

    def index_path(self, agent: str) -> Leaf:
        """The agent's index file and who says so."""
        named, origin = self.leaves(agent).get("store.path", ("", "default"))
        if named:
            path = self.path(named.replace("{agentId}", agent))
            if not self.is_of_the_original(path, agent):
                return path, origin
        return self.home / "memory" / f"{agent}.sqlite", "default"

    def is_of_the_original(self, path: Path, agent: str) -> bool:
        """Whether this is the file in which the original keeps this agent's index: never ours."""
        return path in (
            self.state_dir / "memory" / f"{agent}.sqlite",
            self.state_dir / "agents" / agent / "agent" / "openclaw-agent.sqlite",
        )

    def path(self, text: str) -> Path:
        """A path of the file: `~` expanded, relative to the file's folder."""
        return Path(os.path.normpath(self.base / environment.expand_user(text, self.env)))

    def _absolute(self, leaf: Leaf) -> Leaf:
        text, origin = leaf
        return self.path(text), origin

    def _existing(self, leaf: Leaf) -> Leaf:
        """A folder named by hand: when it is not there, it is a slip of the pen."""
        path, origin = leaf
        if not path.is_dir():
            raise ConfigError(f"{path}: no such folder (named by {origin})", hint=f"mkdir -p {path}")
        return leaf


class Agents(Mapping[str, AgentSettings]):
    """The settings of every agent, each made when it is first asked for."""

    __slots__ = ("_away", "_ground", "_made")

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._made: dict[str, AgentSettings] = {}
        self._away: dict[str, AgentSettings] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._ground.roster.ids)

    def __len__(self) -> int:
        return len(self._ground.roster.ids)

    def __contains__(self, agent: object) -> bool:
        return isinstance(agent, str) and self._ground.roster.has(agent)

    def __getitem__(self, agent: str) -> AgentSettings:
        """The agent's settings; `KeyError` when there is no such agent, `ConfigError` without a workspace.

        Without `agents.list` every valid id is an agent: a worker may be sent one that it has never met.
        """
        if not self._ground.roster.has(agent):
            raise KeyError(agent)
        return self.resolve(agent)

    def __repr__(self) -> str:
        return f"Agents({', '.join(self)})"

    def resolve(self, agent: str) -> AgentSettings:
        """The agent's settings, whether it is listed or has the defaults."""
        if agent not in self._made:
            self._made[agent] = resolve_agent(self._ground, agent)
        return self._made[agent]

    def resolve_away(self, agent: str) -> AgentSettings:
        """The same without a workspace."""
        if agent not in self._away:
            self._away[agent] = resolve_agent(self._ground, agent, needs_workspace=False)
        return self._away[agent]


def away_from_files(agents: Mapping[str, AgentSettings], agent: str) -> AgentSettings:
    """The settings for a process that only calls the provider: there need be no workspace, and none is named.

    `KeyError` when there is no such agent.
    """
    if not isinstance(agents, Agents):
        return agents[agent]
    if agent not in agents:
        raise KeyError(agent)
    return agents.resolve_away(agent)


def resolve_agent(ground: Ground, agent: str, *, needs_workspace: bool = True) -> AgentSettings:
    """Everything one agent needs, with absolute paths."""
    workspace = ground.workspace(agent)[0] if needs_workspace else Path()
    index_path, _ = ground.index_path(agent)
    values = {path: value for path, (value, _origin) in ground.leaves(agent).items()}
    return AgentSettings(
        agent=agent,
        workspace=workspace,
        index_path=index_path,
        state_dir=ground.state_dir,
        memory=build(MemorySearch, _with_paths(values, ground)),
        providers=ground.providers,
        environment_keys=environment.provider_keys(ground.env),
        citations=ground.citations,
        max_injected_chars=ground.max_injected_chars,
        scope=ground.scope,
        home=ground.home,
        sessions=ground.sessions,
    )


def _with_paths(values: dict[str, Any], ground: Ground) -> dict[str, Any]:
    """The values with their paths expanded; those of `extraPaths` stay relative to the workspace."""
    for key in ("local.modelCacheDir", "store.vector.extensionPath"):
        if values.get(key):
            values[key] = str(ground.path(values[key]))
    model_path = values.get("local.modelPath", "")
    if model_path and not model_path.startswith(("hf:", "http://", "https://")):
        values["local.modelPath"] = str(ground.path(model_path))
    if "extraPaths" in values:
        values["extraPaths"] = tuple(
            dict.fromkeys(
                ExtraPath(path=environment.expand_user(entry.path, ground.env), pattern=entry.pattern)
                for entry in values["extraPaths"]
            )
        )
    return values


def check_index_paths(ground: Ground, report: Report) -> None:
    """Two agents in one index would see each other's notes: a problem; the original's index: a warning."""
    owners: dict[Path, str] = {}
    for agent in ground.roster.ids:
        path, origin = ground.index_path(agent)
        named, named_by = ground.leaves(agent).get("store.path", ("", ""))
        if named and origin == "default":
            report.warn(f"{named_by}: this is OpenClaw's own index, Memline keeps its own in {path}")
        if path in owners:
            report.problem(
                f"{origin}: the agents {owners[path]!r} and {agent!r} would share the index {path}",
                "put {agentId} into store.path",
            )
        owners.setdefault(path, agent)
