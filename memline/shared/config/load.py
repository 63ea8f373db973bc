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
    ResolveContext,
    check_index_paths,
    read_agents,
)
from memline.shared.config.check import Issues, RawConfig, check_block
from memline.shared.config.environment import Environment
from memline.shared.config.keys import Block, Setting, build, given, values
from memline.shared.config.layers import adjust, expand_references, merge
from memline.shared.errors import ConfigError
from memline.shared.patterns import late
from memline.shared.values import field, replace, value

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
    """A configuration that was read, with the origin of every value."""

    settings: schema.Settings
    context: ResolveContext
    #: The agent named by `--agent`; None without the option.
    chosen: str | None
    #: Always empty in what `load` returns.
    problems: tuple[ConfigError, ...] = ()
    #: Values that have no effect, or another one than written.
    warnings: tuple[str, ...] = ()
    #: What is set of `models.providers` and of `prices`, by name.
    providers: Mapping[str, Mapping[str, Setting]] = field(repr=False)
    prices: Mapping[str, Mapping[str, Setting]]

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
    """Read the configuration; the first problem is raised as `ConfigError`."""
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
    """Read the configuration as far as it can be understood, with everything wrong in `problems`.

    A file that cannot be read or parsed at all, and options that cannot be used, are raised.
    """
    options = options or Options()
    path = config_file.find(options.config, env)
    file_read = config_file.SettingsFile(path or config_file.default_places(env)[0])
    issues = Issues()

    def tell_twice(key: str) -> None:
        issues.warn(f"{path}: {key[:80]} is there twice in one object, the last one counts")

    content = config_file.read(path, tell_twice=tell_twice) if path else {}
    raw = RawConfig(content=content, name=str(path or ""), env=env, issues=issues)
    agents = read_agents(raw)
    chosen = agents.require(options.agent) if options.agent else None
    usual = agents.default
    if chosen and not agents.is_listed:
        agents, usual = replace(agents, ids=(chosen,)), chosen
    qmd = openclaw.read_qmd(raw)
    shared = _read_shared(raw, qmd, options)
    file = build(schema.ConfigFile, values(shared))
    defaults = file.agents.defaults
    _check_tokens(shared, agents, issues)
    providers = openclaw.read_providers(raw)
    prices = {
        model: check_block(installation.PriceEntry, entry, at=raw.at(f"prices.{model}"), issues=issues)
        for model, entry in raw.get("prices").items()
    }
    context = ResolveContext(
        agents=agents,
        env=env,
        home=shared["home"].value,
        state_dir=shared["stateDir"].value,
        base=path.parent if path else Path(),
        named_workspace=_folder(options, "workspace", environment.WORKSPACE, env),
        named_for=chosen or agents.default,
        is_chosen=chosen is not None,
        takes_folder=not (options.is_service and (len(agents.ids) > 1 or file.queue.url)),
        is_openclaw=path is not None and path.parent == shared["stateDir"].value,
        memory={},
        providers={name: build(schema.ProviderEntry, values(entry)) for name, entry in providers.items()},
        shared=shared,
        file=file,
        sessions=schema.Sessions(
            context_tokens=defaults.context_tokens,
            context_windows=openclaw.context_windows(raw),
            user_timezone=defaults.user_timezone,
            compaction=defaults.compaction,
        ),
        prices={model: values(entry) for model, entry in prices.items()},
    )
    context = replace(context, memory=_merge_memory(raw, qmd, agents))
    check_index_paths(context, issues)
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
        problems=tuple(issues.problems),
        warnings=tuple(issues.warnings),
        providers=providers,
        prices=prices,
    )


def _read_shared(raw: RawConfig, qmd: Mapping[str, Setting], options: Options) -> dict[str, Setting]:
    """Return the settings that hold for all agents, by dotted path."""
    env, issues = raw.env, raw.issues
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
            if isinstance(token, str):
                entries.append({"name": f"tokens.{agent}", "token": token, "agent": agent})
            else:
                # Checked here, where the key that was written is known.
                issues.mismatch(raw.at(f"serve.tokens.{agent}"), token, "text", '"…"')
        content["serve"] = {**serve, "tokens": entries}
    settings |= check_block(schema.ConfigFile, content, at=raw.name, issues=issues)
    if "scope" in raw.get("memory") and settings.get("memory.scope") is qmd.get("memory.scope"):
        # What was meant to keep a chat out must not let it in because of a slip of the pen.
        settings["memory.scope"] = Setting(
            value=installation.ChatScope(default="deny"), origin=raw.at("memory.scope")
        )
    settings = expand_references(schema.ConfigFile, settings, env, issues)
    for path, variable in _VARIABLES.items():
        if text := environment.secret(env, variable):
            settings[path] = Setting(value=text, origin=environment.secret_name(env, variable))
    url, origin = given(settings, "queue.url")
    if url and not url.startswith(("redis://", "rediss://", "unix://")):
        issues.problem(
            f"{origin}: not the address of a Redis server",
            "write redis://HOST:6379/0, with TLS rediss://HOST:6379/0, or unix:///SOCKET; it has to be one"
            " server: neither Sentinel nor Cluster is supported",
        )
    name, origin = given(settings, "queue.name")
    if name and not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        issues.problem(f"{origin}: not a valid name", "use letters, digits, '.', '_' and '-', 64 at most")
    zone, origin = given(settings, "agents.defaults.userTimezone")
    if zone:
        try:
            time_zone(zone)
        except (KeyError, ValueError, OSError):
            del settings["agents.defaults.userTimezone"]
            issues.warn(f"{origin}: {zone!r} is not a valid time zone, the machine's own is used")
    moved = environment.STATE_DIR if environment.value(env, environment.STATE_DIR) else "default"
    home = _folder(options, "home", environment.HOME, env)
    home = home or Setting(value=environment.xdg(env, "XDG_DATA_HOME", ".local/share"), origin="default")
    if url and not name:
        settings["queue.name"] = Setting(value=environment.fleet_name(home.value), origin="default")
    return {"home": home, "stateDir": Setting(value=environment.state_dir(env), origin=moved), **settings}


def _merge_memory(
    raw: RawConfig,
    qmd: Mapping[str, Setting],
    agents: AgentList,
) -> dict[str, Mapping[str, Setting]]:
    """Merge `memorySearch` of every agent that has its own; under "" that of an agent without overrides."""
    layers = [{path: setting for path, setting in qmd.items() if not path.startswith("memory.")}]
    defaults = raw.get("agents", "defaults")
    for block, place in ((raw.content, "memorySearch"), (defaults, "agents.defaults.memorySearch")):
        if "memorySearch" in block:
            at = raw.at(place)
            layers.append(check_block(schema.MemorySearch, block["memorySearch"], at=at, issues=raw.issues))
    if "search" in (memory := raw.get("memory")):
        layers.append(openclaw.read_search(raw, memory["search"], at=raw.at("memory.search")))
    merged: dict[str, Mapping[str, Setting]] = {}
    own: dict[str, Mapping[str, Setting]] = {"": {}, **agents.overrides}
    for agent, override in own.items():
        # No agent uses the defaults alone when every agent has overrides.
        issues = Issues() if not agent and len(agents.overrides) == len(agents.ids) else raw.issues
        settings = expand_references(schema.MemorySearch, merge([*layers, override]), raw.env, issues)
        merged[agent] = adjust(settings, issues)
    return merged


def _folder(options: Options, name: str, variable: str, env: Environment) -> Setting | None:
    """Return the folder of an option, else of a variable."""
    option: Path | None = getattr(options, name)
    text, origin = (str(option), f"--{name}") if option else (environment.value(env, variable), variable)
    if not text:
        return None
    folder = Path(environment.expand_user(text, env))
    return Setting(value=folder.absolute(), origin=origin)


def _check_tokens(settings: Mapping[str, Setting], agents: AgentList, issues: Issues) -> None:
    token, token_origin = given(settings, "serve.token")
    tokens, origin = given(settings, "serve.tokens", ())
    named = [(token_origin, token)] if token else []
    for each in tokens:
        place = f"{origin}: {each.name[:_LONGEST_NAME]!r}"
        named.append((place, each.token))
        if each.agent and not agents.has(each.agent):
            issues.problem(
                f"{origin}: there is no agent {each.agent!r}", f"name one of these: {', '.join(agents.ids)}"
            )
    seen: set[str] = set()
    for place, text in named:
        if len(text) < _SHORTEST_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
            issues.problem(
                f"{place}: not usable as a token",
                f"use at least {_SHORTEST_TOKEN} visible ASCII characters: openssl rand -hex 24",
            )
        if text in seen:
            issues.problem(f"{place}: another entry has the same token", "give each its own")
        seen.add(text)
