"""Read the configuration: file, environment and options become the settings of all agents.

From the weakest to the strongest: defaults, `memory.qmd`, the old place `memorySearch`,
`agents.defaults.memorySearch`, `memory.search`, the agent's own block, environment variables, options. A
later layer replaces single keys of an earlier one, `sources` and `headers` as a whole; `extraPaths` and
`exclude` add up.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from memline.shared.config import config_file, environment, openclaw
from memline.shared.config.agents import Agents, Settings
from memline.shared.config.check import Reading
from memline.shared.config.environment import Environment, Options, home_of
from memline.shared.config.schema import ConfigFile, MemorySearch
from memline.shared.errors import ConfigError
from memline.shared.values import as_dict

__all__ = ["Options", "load", "merge"]


def load(options: Options | None = None, env: Environment = os.environ) -> Settings:
    """Read the configuration. Raises ConfigError for the first problem."""
    options = options or Options()
    path = config_file.find(options.config, env)
    # Noted before it is read: a change in between is a newer file.
    file = config_file.SettingsFile(path or config_file.default_places(env)[0])
    raw = config_file.read(path) if path else {}
    state_dir = environment.state_dir(env)
    is_openclaw = path is not None and (path.name == "openclaw.json" or path.parent == state_dir)
    reading = Reading(env, str(path or ""), is_openclaw=is_openclaw)
    if "$include" in raw:
        reading.warn("$include", "not followed, put the keys that Memline reads into this file")
    openclaw.translate(raw, reading)
    blocks = [(each, each.holder.pop(each.name)) for each in list(openclaw.searches(raw))]
    _with_variables(raw, reading, home_of(options, env))
    raw = reading.read(ConfigFile, raw)
    content = msgspec.convert(raw, ConfigFile)
    common, own = openclaw.of_qmd(as_dict(raw.get("memory"))), {"": dict[str, Any]()}
    for each, raw_block in blocks:
        block = reading.read(MemorySearch, raw_block, each.path)
        if each.agent:
            own[each.agent] = block
        else:
            common = merge(common, block)
    memory = {agent: _memory(merge(common, block), reading) for agent, block in own.items()}
    agents = Agents(content, memory, options, env, path)
    resolved = agents.resolve(reading)
    serve = content.serve
    tokens = [each for each in (serve.token, *serve.tokens.values()) if each]
    if len({*tokens}) < len(tokens):
        raise ConfigError(f"{reading.at('serve')}: two tokens are the same", hint="give each its own")
    home = home_of(options, env)
    is_named = options.config is not None or environment.read(env, environment.CONFIG)
    has_home = options.home is not None or environment.read(env, environment.HOME)
    return Settings(
        agents=resolved,
        chosen=options.agent,
        default_agent=agents.default if agents.default in resolved else next(iter(resolved)),
        home=home,
        queue=content.queue,
        serve=content.serve,
        content=content,
        path=path,
        file=file,
        warnings=tuple(reading.warnings),
        named=Options(config=path if is_named else None, home=home if has_home else None),
    )


def merge(weak: Mapping[str, Any], strong: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two objects of the file at any depth, as the head of this module says."""
    merged = dict(weak)
    for name, each in strong.items():
        if name in ("extraPaths", "exclude"):
            known = merged.get(name, [])
            # The order of `exclude` counts, as in .gitignore.
            each = known + [one for one in each if name == "exclude" or one not in known]
        elif name != "headers" and isinstance(each, dict) and isinstance(merged.get(name), dict):
            each = merge(merged[name], each)
        merged[name] = each
    return merged


def _memory(merged: dict[str, Any], reading: Reading) -> MemorySearch:
    """Make a `memorySearch` whose sources and index are those that may be used."""
    store = merged.get("store", {})
    if Path(store.get("path", "")).is_relative_to(environment.state_dir(reading.env)):
        merged = {**merged, "store": {**store, "path": ""}}
        words = "the indexes there are OpenClaw's own, Memline keeps its own in its home"
        reading.warn("memorySearch.store.path", words)
    sources = merged.get("sources", [])
    if "sessions" in sources and not merged.get("experimental", {}).get("sessionMemory"):
        sources = [each for each in sources if each != "sessions"]
        words = '"sessions" is left out until experimental.sessionMemory is true'
        reading.warn("memorySearch.sources", words)
    sources = list(dict.fromkeys(sources)) or ["memory"]
    return msgspec.convert({**merged, "sources": sources}, MemorySearch)


def _with_variables(raw: dict[str, Any], reading: Reading, home: Path) -> None:
    """Put what variables say over what the file says, and name the fleet."""
    for path, variable in (
        ("queue.url", environment.QUEUE_URL),
        ("queue.name", environment.QUEUE_NAME),
        ("serve.token", environment.SERVE_TOKEN),
    ):
        block, key = path.split(".")
        if text := environment.secret(reading.env, variable):
            raw[block] = {**as_dict(raw.get(block)), key: text}
            reading.variables[path] = environment.secret_name(reading.env, variable)
    if (queue := as_dict(raw.get("queue"))).get("url") and not queue.get("name"):
        queue["name"] = environment.fleet_name(home)
