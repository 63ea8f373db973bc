"""Reading the configuration: file, environment and options become the settings of all agents.

From the weakest to the strongest: defaults, `memory.qmd`, the old place `memorySearch`,
`agents.defaults.memorySearch`, the agent's own `memorySearch`, environment variables, options.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.config import environment, files
from shared.config.check import Leaf, Report, check_block, check_leaf, describe, nearest
from shared.config.environment import Environment
from shared.config.keys import members
from shared.config.merge import merge, settle
from shared.config.providers import expand_references, provider_entries, read_providers
from shared.config.qmd import qmd_layer
from shared.config.resolve import Agents, Ground, check_index_paths
from shared.config.roster import Roster, member, read_roster
from shared.config.schema import BACKENDS, CITATIONS, AgentSettings, MemorySearch, QueueSettings, Settings
from shared.config.sessions import read_sessions, sessions_of
from shared.errors import ConfigError

if TYPE_CHECKING:
    from shared.config.faces import Serve


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Options:
    """The global options of the command line; None: not given."""

    config: Path | None = None
    home: Path | None = None
    workspace: Path | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Loaded:
    """A configuration that was read, with where every value comes from."""

    settings: Settings
    ground: Ground
    #: The agent named by `--agent`; None: none was.
    chosen: str | None
    #: What is wrong; always empty in what `load` returns.
    problems: tuple[ConfigError, ...] = ()
    #: What was taken in another way than written, or has no effect.
    warnings: tuple[str, ...] = ()
    #: Values beside those of agents, by path: `home`, `queue.url`, `memory.citations`.
    shared_leaves: Mapping[str, Leaf] = field(default_factory=dict)
    #: What is set of `serve`, by path.
    serve_leaves: Mapping[str, Leaf] = field(default_factory=dict)
    provider_leaves: Mapping[str, Mapping[str, Leaf]] = field(default_factory=dict)
    #: What is set of `prices`, by model.
    price_leaves: Mapping[str, Mapping[str, Leaf]] = field(default_factory=dict)

    def agent(self, agent: str | None = None) -> AgentSettings:
        """The settings of this agent, else of the chosen one, else of the default one.

        An agent that is not listed is a `ConfigError`, but without `agents.list` any valid id has the
        default settings.
        """
        wanted = agent or self.chosen or self.settings.default_agent
        agents = self.settings.agents
        assert isinstance(agents, Agents)
        return agents.resolve(self.ground.roster.demand(wanted))

    def agents(self) -> tuple[AgentSettings, ...]:
        """The settings of the chosen agent, or of all of them."""
        return tuple(self.agent(agent) for agent in self.agent_ids())

    def agent_ids(self) -> tuple[str, ...]:
        """The chosen agent, or all of them in the order of the file."""
        return (self.chosen,) if self.chosen else tuple(self.settings.agents)


def load(options: Options | None = None, env: Environment = os.environ) -> Loaded:
    """The configuration; the first thing wrong in it is raised as `ConfigError`."""
    loaded = examine(options, env)
    if not loaded.problems:
        return loaded
    first, *more = loaded.problems
    if more:
        raise ConfigError(
            f"{first.message} (and {len(more)} more)", hint=f"{first.hint}; all of them: memline config check"
        )
    raise first


def examine(options: Options | None = None, env: Environment = os.environ) -> Loaded:
    """The configuration as far as it can be understood, with all that is wrong in `problems`.

    A file that cannot be read or parsed at all, and options that cannot be used, are raised.
    """
    options = options or Options()
    report = Report()
    path = files.find(options.config, env)
    content = files.read(path) if path else {}
    where = str(path) if path else ""

    roster = read_roster(content, where=where, report=report)
    chosen = roster.demand(options.agent) if options.agent else None
    usual = roster.default
    if chosen and not roster.listed:
        roster, usual = replace(roster, ids=(chosen,)), chosen
    shared_leaves = _shared_leaves(content, where, options, env, report)
    shared_leaves |= read_sessions(content, where=where, env=env, report=report)
    serve_leaves = _serve_leaves(content, where, roster, env, report)
    price_leaves = _price_leaves(content, where, report)
    provider_leaves = read_providers(content, where=where, env=env, report=report)
    named_workspace = _named_workspace(options, env)
    ground = Ground(
        roster=roster,
        env=env,
        home=shared_leaves["home"][0],
        state_dir=shared_leaves["stateDir"][0],
        base=path.parent if path else Path.cwd(),
        named_workspace=named_workspace,
        named_for=chosen or roster.default,
        memory=_memory(content, where, roster, env, report),
        providers=provider_entries(provider_leaves),
        citations=shared_leaves["memory.citations"][0],
        sessions=sessions_of(content, shared_leaves),
        max_injected_chars=shared_leaves["memory.maxInjectedChars"][0],
        scope=shared_leaves["memory.scope"][0],
    )
    check_index_paths(ground, report)
    _warn_of_other_layouts(content, where, report)
    settings = Settings(
        agents=Agents(ground),
        default_agent=usual,
        home=ground.home,
        queue=QueueSettings(url=shared_leaves["queue.url"][0]),
        serve=_serve(serve_leaves),
        prices={
            model: {name: found for name, (found, _) in entry.items()}
            for model, entry in price_leaves.items()
        },
        path=path,
    )
    return Loaded(
        settings=settings,
        ground=ground,
        chosen=chosen,
        problems=tuple(report.problems),
        warnings=tuple(report.warnings),
        shared_leaves=shared_leaves,
        serve_leaves=serve_leaves,
        provider_leaves=provider_leaves,
        price_leaves=price_leaves,
    )


def _memory(
    content: Mapping[str, Any], where: str, roster: Roster, env: Environment, report: Report
) -> dict[str, Mapping[str, Leaf]]:
    """`memorySearch` of every agent, merged; under "" that of an agent without overrides."""
    below: list[dict[str, Leaf]] = [
        qmd_layer(member(content, "memory", where, report), where=where, report=report)
    ]
    if "memorySearch" in content:
        old_place = content["memorySearch"]
        below.append(check_block(MemorySearch, old_place, at=f"{where}: memorySearch", report=report))
    below.append(dict(roster.defaults))
    merged: dict[str, Mapping[str, Leaf]] = {}
    for agent in ("", *roster.ids):
        own = roster.overrides.get(agent)
        if own is None and agent:
            merged[agent] = merged[""]
            continue
        # The defaults alone belong to nobody when every agent says something of its own.
        heard = Report() if not agent and len(roster.overrides) == len(roster.ids) else report
        leaves = merge([*below, dict(own or {})])
        merged[agent] = settle(expand_references(leaves, env, heard), heard)
    return merged


def _shared_leaves(
    content: Mapping[str, Any], where: str, options: Options, env: Environment, report: Report
) -> dict[str, Leaf]:
    memory = member(content, "memory", where, report)
    return {
        "home": _home(options, env),
        "stateDir": (
            environment.state_dir(env),
            environment.STATE_DIR if environment.value(env, environment.STATE_DIR) else "default",
        ),
        "queue.url": _queue_url(content, where, env, report),
        "memory.backend": _word(memory, "backend", BACKENDS, where, report),
        "memory.citations": _word(memory, "citations", CITATIONS, where, report),
        **_chat_leaves(memory, where, report),
    }


def _chat_leaves(memory: Mapping[str, Any], where: str, report: Report) -> dict[str, Leaf]:
    if not memory.keys() & {"scope", "maxInjectedChars", "qmd"}:
        return {"memory.maxInjectedChars": (0, "default"), "memory.scope": (None, "default")}
    from shared.config.access import read_max_injected_chars, read_scope

    return {
        "memory.maxInjectedChars": read_max_injected_chars(memory, where=where, report=report),
        "memory.scope": read_scope(memory, where=where, report=report),
    }


def _serve_leaves(
    content: Mapping[str, Any], where: str, roster: Roster, env: Environment, report: Report
) -> dict[str, Leaf]:
    if "serve" not in content and not environment.value(env, environment.SERVE_TOKEN):
        return {}
    from shared.config.access import read_serve

    return read_serve(content, where=where, env=env, roster=roster, report=report)


def _price_leaves(content: Mapping[str, Any], where: str, report: Report) -> dict[str, dict[str, Leaf]]:
    if "prices" not in content:
        return {}
    from shared.config.prices import read_prices

    return read_prices(content["prices"], at=f"{where}: prices", report=report)


def _serve(leaves: Mapping[str, Leaf]) -> Serve | None:
    if not leaves:
        return None
    from shared.config.access import serve_of

    return serve_of(leaves)


def _home(options: Options, env: Environment) -> Leaf:
    if options.home is not None:
        return Path(environment.expand_user(str(options.home), env)).absolute(), "--home"
    if named := environment.value(env, environment.HOME):
        return Path(environment.expand_user(named, env)).absolute(), environment.HOME
    return environment.data_dir(env), "default"


def _named_workspace(options: Options, env: Environment) -> Leaf | None:
    if options.workspace is not None:
        return Path(environment.expand_user(str(options.workspace), env)).absolute(), "--workspace"
    if named := environment.value(env, environment.WORKSPACE):
        return Path(environment.expand_user(named, env)).absolute(), environment.WORKSPACE
    return None


def _queue_url(content: Mapping[str, Any], where: str, env: Environment, report: Report) -> Leaf:
    url, origin = "", "default"
    queue = member(content, "queue", where, report)
    for name in queue:
        if name not in members(QueueSettings):
            near = nearest(name, members(QueueSettings))
            meant = f" (did you mean {near}?)" if near else ""
            report.warn(f"{where}: queue.{name}: unknown key, without effect{meant}")
    if "url" in queue:
        origin = f"{where}: queue.url"
        url = check_leaf(members(QueueSettings)["url"], queue["url"], at=origin, report=report) or ""
        url, missing = environment.expand(url, env)
        for name in missing:
            report.problem(f"{origin}: the variable {name} is not set", f"export {name}=…")
    if variable := environment.value(env, environment.QUEUE_URL):
        url, origin = variable, environment.QUEUE_URL
    if url and not url.startswith(("redis://", "rediss://", "unix://")):
        report.problem(f"{origin}: not the address of a Redis server", "write redis://HOST:6379/0")
    return url, origin


def _word(memory: Mapping[str, Any], name: str, choices: tuple[str, ...], where: str, report: Report) -> Leaf:
    """One of the words allowed for a key of `memory`; the first is the default."""
    if name not in memory:
        return choices[0], "default"
    found, origin = memory[name], f"{where}: memory.{name}"
    if isinstance(found, str) and found in choices:
        return found, origin
    report.problem(f"{origin}: found {describe(found)}, allowed: {', '.join(choices)}", "correct the value")
    return choices[0], "default"


def _warn_of_other_layouts(content: Mapping[str, Any], where: str, report: Report) -> None:
    """Settings that newer versions of the original keep elsewhere would otherwise be missed in silence."""
    memory, agents = content.get("memory"), content.get("agents")
    if isinstance(memory, dict) and "search" in memory:
        report.warn(f"{where}: memory.search: not read, move it to agents.defaults.memorySearch")
    if isinstance(agents, dict) and "entries" in agents:
        report.warn(f"{where}: agents.entries: not read, move it to agents.list")
    if "$include" in content:
        report.warn(f"{where}: $include: not followed, put the keys that Memline reads into this file")
