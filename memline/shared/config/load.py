"""Read the configuration: file, environment and options become the settings of all agents.

From the weakest to the strongest: defaults, `memory.qmd`, the old place `memorySearch`,
`agents.defaults.memorySearch`, `memory.search`, the agent's own block, environment variables, options.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from memline.shared.clock import time_zone
from memline.shared.config import config_file, environment, installation, openclaw, schema
from memline.shared.config.agents import (
    AgentList,
    Agents,
    Place,
    ResolveContext,
    check_index_paths,
    read_agents,
)
from memline.shared.config.check import RawConfig, Warnings, check_block, mismatch
from memline.shared.config.environment import Environment
from memline.shared.config.keys import Block, build
from memline.shared.config.layers import adjust, expand_references, merge
from memline.shared.errors import ConfigError
from memline.shared.patterns import late
from memline.shared.values import replace, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Variables that win over a key of the file.
_VARIABLES = {
    "queue.url": environment.QUEUE_URL,
    "queue.name": environment.QUEUE_NAME,
    "serve.token": environment.SERVE_TOKEN,
}

#: A command in a hint, and the global options that it has.
_COMMAND = late(r"\bmemline ((?:--[a-z]+ \S+ )*)(?=[a-z])")

#: Characters of a token at least.
_SHORTEST_TOKEN = 8

#: Characters of the name of a token at most, and what its role needs.
_LONGEST_NAME = 80


@value
class Options(Block):
    """The global options of the command line; None: not given."""

    config: Path | None = None
    home: Path | None = None
    workspace: Path | None = None
    agent: str | None = None
    #: Whether the process serves the configuration: with several agents, or a queue, the current folder is
    #: not asked which notes are meant.
    is_service: bool = False

    def given(self) -> list[str]:
        """Return the options that were given, as words of a command line."""
        named = ((name, getattr(self, name)) for name in ("config", "home", "workspace", "agent"))
        return [word for name, chosen in named if chosen is not None for word in (f"--{name}", str(chosen))]

    def as_typed(self, text: str) -> str:
        """Put these options into the commands of a hint, so that they work as typed.

        What a command names already stays.
        """
        given = self.given()
        if not given:
            return text

        def fill(match: re.Match[str]) -> str:
            named = match[1].split()
            pairs = zip(given[::2], given[1::2], strict=True)
            words = [f"{name} {shlex.quote(chosen)} " for name, chosen in pairs if name not in named]
            return f"memline {''.join(words)}{match[1]}"

        return _COMMAND.sub(fill, text)


@value
class Loaded(Block):
    """A configuration that was read."""

    settings: schema.Settings
    context: ResolveContext
    #: The agent named by `--agent`; None without the option.
    chosen: str | None
    #: Values that have no effect, or another one than written.
    warnings: tuple[str, ...] = ()

    def agent(self, agent: str | None = None) -> schema.AgentSettings:
        """Return the settings of this agent, else of the chosen one, else of the default one.

        An agent that is not listed is a `ConfigError`, but without `agents.list` any valid id has the
        default settings.
        """
        wanted = agent or self.chosen or self.settings.default_agent
        return self.settings.agents[self.context.agents.require(wanted)]

    def agents(self) -> tuple[schema.AgentSettings, ...]:
        """Return the settings of the chosen agent, or of all of them."""
        return tuple(self.agent(agent) for agent in self.agent_ids())

    def agent_ids(self) -> tuple[str, ...]:
        """Return the chosen agent, or all of them in the order of the file."""
        return (self.chosen,) if self.chosen else tuple(self.settings.agents)


def load(options: Options | None = None, env: Environment = os.environ) -> Loaded:
    """Read the configuration. Raises ConfigError for the first problem."""
    options = options or Options()
    path = config_file.find(options.config, env)
    file_read = config_file.SettingsFile(path or config_file.default_places(env)[0])
    warnings = Warnings()

    def tell_twice(key: str) -> None:
        warnings.warn(f"{path}: {key[:80]} is there twice in one object, the last one counts")

    content = config_file.read(path, tell_twice=tell_twice) if path else {}
    raw = RawConfig(content=content, name=str(path or ""), env=env, warnings=warnings)
    agents = read_agents(raw)
    chosen = agents.require(options.agent) if options.agent else None
    usual = agents.default
    if chosen and not agents.is_listed:
        agents, usual = replace(agents, ids=(chosen,)), chosen
    qmd = openclaw.read_qmd(raw)
    shared = _read_shared(raw, qmd, options)
    file = build(schema.ConfigFile, shared)
    defaults = file.agents.defaults
    _check_tokens(raw, file.serve, agents)
    prices = {
        model: check_block(installation.PriceEntry, entry, at=raw.at(f"prices.{model}"), warnings=warnings)
        for model, entry in raw.get("prices").items()
    }
    context = ResolveContext(
        agents=agents,
        env=env,
        home=_home(options, env),
        state_dir=environment.state_dir(env),
        name=raw.name,
        base=path.parent if path else Path(),
        named_workspace=_folder(options, "workspace", environment.WORKSPACE, env),
        named_for=chosen or agents.default,
        is_chosen=chosen is not None,
        takes_folder=not (options.is_service and (len(agents.ids) > 1 or file.queue.url)),
        is_openclaw=path is not None and path.parent == environment.state_dir(env),
        memory={},
        providers={
            name: build(schema.ProviderEntry, entry) for name, entry in openclaw.read_providers(raw).items()
        },
        file=file,
        sessions=schema.Sessions(
            context_tokens=defaults.context_tokens,
            context_windows=openclaw.context_windows(raw),
            user_timezone=defaults.user_timezone,
            compaction=defaults.compaction,
        ),
        prices=prices,
    )
    context = replace(context, memory=_merge_memory(raw, qmd, agents))
    check_index_paths(context, warnings)
    openclaw.warn_of_includes(raw)
    return Loaded(
        settings=schema.Settings(
            agents=Agents(context),
            default_agent=usual,
            home=context.home,
            queue=file.queue,
            serve=file.serve,
            limits=file.limits,
            prices=context.prices,
            path=path,
            file=file_read,
        ),
        context=context,
        chosen=chosen,
        warnings=tuple(warnings),
    )


def _read_shared(raw: RawConfig, qmd: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """Return the settings that hold for all agents, by dotted path."""
    env, warnings = raw.env, raw.warnings
    settings = {path: setting for path, setting in qmd.items() if path.startswith("memory.")}
    content = dict(raw.content)
    if isinstance(memory := content.get("memory"), dict):
        # Read before, and only with the backend that it is about.
        content["memory"] = {name: each for name, each in memory.items() if name != "qmd"}
    serve = content.get("serve")
    if isinstance(serve, dict) and isinstance(tokens := serve.get("tokens"), dict):
        # The short form: the token of each agent, by its id.
        entries = []
        for agent, token in tokens.items():
            if not isinstance(token, str):
                # Checked here, where the key that was written is known.
                raise mismatch(raw.at(f"serve.tokens.{agent}"), token, "text", '"…"')
            entries.append({"name": f"tokens.{agent}", "token": token, "agent": agent})
        content["serve"] = {**serve, "tokens": entries}
    settings |= check_block(schema.ConfigFile, content, at=raw.name, warnings=warnings)
    settings = expand_references(schema.ConfigFile, settings, env, warnings, at=raw.at(""))
    for path, variable in _VARIABLES.items():
        if text := environment.secret(env, variable):
            settings[path] = text
    url, name = settings.get("queue.url"), settings.get("queue.name")
    if url and not url.startswith(("redis://", "rediss://", "unix://")):
        raise ConfigError(
            f"{_place(raw, 'queue.url')}: not the address of a Redis server",
            hint="write redis://HOST:6379/0, with TLS rediss://HOST:6379/0, or unix:///SOCKET; it has to be"
            " one server: neither Sentinel nor Cluster is supported",
        )
    if name and not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        allowed = "use letters, digits, '.', '_' and '-', 64 at most"
        raise ConfigError(f"{_place(raw, 'queue.name')}: not a valid name", hint=allowed)
    if url and not name:
        settings["queue.name"] = environment.fleet_name(_home(options, env))
    if zone := settings.get("agents.defaults.userTimezone"):
        try:
            time_zone(zone)
        except (KeyError, ValueError, OSError):
            del settings["agents.defaults.userTimezone"]
            at = raw.at("agents.defaults.userTimezone")
            warnings.warn(f"{at}: {zone!r} is not a valid time zone, the machine's own is used")
    return settings


def _place(raw: RawConfig, path: str) -> str:
    """Name where a value comes from that a variable may give."""
    variable = _VARIABLES[path]
    is_variable = environment.secret(raw.env, variable)
    return environment.secret_name(raw.env, variable) if is_variable else raw.at(path)


def _home(options: Options, env: Environment) -> Path:
    home = _folder(options, "home", environment.HOME, env)
    return home.path if home else environment.xdg(env, "XDG_DATA_HOME", ".local/share")


def _merge_memory(raw: RawConfig, qmd: Mapping[str, Any], agents: AgentList) -> dict[str, Mapping[str, Any]]:
    """Merge `memorySearch` of every agent that has its own; under "" that of an agent without overrides."""
    layers = [{path: setting for path, setting in qmd.items() if not path.startswith("memory.")}]
    defaults, warnings = raw.get("agents", "defaults"), raw.warnings
    for block, place in ((raw.content, "memorySearch"), (defaults, "agents.defaults.memorySearch")):
        if "memorySearch" in block:
            at = raw.at(place)
            layers.append(check_block(schema.MemorySearch, block["memorySearch"], at=at, warnings=warnings))
    if "search" in (memory := raw.get("memory")):
        layers.append(openclaw.read_search(raw, memory["search"], at=raw.at("memory.search")))
    merged: dict[str, Mapping[str, Any]] = {}
    own: dict[str, Mapping[str, Any]] = {"": {}, **agents.overrides}
    for agent, override in own.items():
        at = raw.at("memorySearch.")
        try:
            settings = merge([*layers, override])
            settings = expand_references(schema.MemorySearch, settings, raw.env, warnings, at=at)
        except ConfigError:
            # No agent uses the defaults alone when every agent has overrides.
            if agent or len(agents.overrides) < len(agents.ids):
                raise
            settings = {}
        merged[agent] = adjust(settings, warnings, at=at)
    return merged


def _folder(options: Options, name: str, variable: str, env: Environment) -> Place | None:
    """Return the folder of an option, else of a variable."""
    option: Path | None = getattr(options, name)
    text, origin = (str(option), f"--{name}") if option else (environment.value(env, variable), variable)
    if not text:
        return None
    return Place(path=Path(environment.expand_user(text, env)).absolute(), origin=origin)


def _check_tokens(raw: RawConfig, serve: installation.Serve, agents: AgentList) -> None:
    named = [(_place(raw, "serve.token"), serve.token)] if serve.token else []
    for each in serve.tokens:
        place = raw.at(f"serve.{each.name[:_LONGEST_NAME]}")
        named.append((place, each.token))
        if each.agent and not agents.has(each.agent):
            known = f"name one of these: {', '.join(agents.ids)}"
            raise ConfigError(f"{place}: there is no agent {each.agent!r}", hint=known)
    seen: set[str] = set()
    for place, text in named:
        if len(text) < _SHORTEST_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
            raise ConfigError(
                f"{place}: not usable as a token",
                hint=f"use at least {_SHORTEST_TOKEN} visible ASCII characters: openssl rand -hex 24",
            )
        if text in seen:
            raise ConfigError(f"{place}: another entry has the same token", hint="give each its own")
        seen.add(text)
