"""Read the configuration: file, environment and options become the settings of all agents.

From the weakest to the strongest: defaults, `memory.qmd`, the old place `memorySearch`,
`agents.defaults.memorySearch`, `memory.search`, the agent's own block, environment variables, options. A
later layer replaces single keys of an earlier one, `sources` and `headers` as a whole; `extraPaths` and
`exclude` add up.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from memline.shared.clock import time_zone
from memline.shared.config import config_file, environment, openclaw
from memline.shared.config.agents import MAIN, Agents, Place, Setup
from memline.shared.config.check import Reading
from memline.shared.config.environment import Environment
from memline.shared.config.installation import Serve
from memline.shared.config.schema import AgentSettings, ConfigFile, Hybrid, MemorySearch, Sessions, Settings
from memline.shared.errors import ConfigError
from memline.shared.tables import as_dict
from memline.shared.words import counted

#: Keys whose texts may hold `${NAME}`.
_WITH_REFERENCES = ("apiKey", "headers", "baseUrl", "url", "token", "tokens")
_GROUPS = ("headers", "tokens")

#: A command in a hint, and the global options that it has.
_COMMAND = re.compile(r"\bmemline ((?:--[a-z]+ \S+ )*)(?=[a-z])")

#: Characters of a token at least.
_SHORTEST_TOKEN = 8


class Options(msgspec.Struct, frozen=True, kw_only=True):
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

        import shlex  # few commands print a hint

        def fill(match: re.Match[str]) -> str:
            named = match[1].split()
            pairs = zip(given[::2], given[1::2], strict=True)
            words = [f"{name} {shlex.quote(chosen)} " for name, chosen in pairs if name not in named]
            return f"memline {''.join(words)}{match[1]}"

        return _COMMAND.sub(fill, text)


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that was read."""

    settings: Settings
    resolver: Agents
    #: The agent named by `--agent`; None without the option.
    chosen: str | None
    #: Values that have no effect, or another one than written.
    warnings: tuple[str, ...] = ()

    def agent(self, agent: str | None = None) -> AgentSettings:
        """Return the settings of this agent, else of the chosen one, else of the default one.

        An agent that is not listed is a `ConfigError`, but without `agents.list` any valid id has the
        default settings.
        """
        wanted = agent or self.chosen or self.settings.default_agent
        return self.settings.agents[self.resolver.require(wanted)]

    def agents(self) -> tuple[AgentSettings, ...]:
        """Return the settings of the chosen agent, or of all of them."""
        return tuple(self.agent(agent) for agent in self.agent_ids())

    def agent_ids(self) -> tuple[str, ...]:
        """Return the chosen agent, or all of them in the order of the file."""
        return (self.chosen,) if self.chosen else tuple(self.settings.agents)


def load(options: Options | None = None, env: Environment = os.environ) -> Loaded:
    """Read the configuration. Raises ConfigError for the first problem."""
    options = options or Options()
    path = config_file.find(options.config, env)
    # Noted before it is read: a change in between is a newer file.
    settings_file = config_file.SettingsFile(path or config_file.default_places(env)[0])
    raw = config_file.read(path) if path else {}
    state_dir, home = environment.state_dir(env), _home(options, env)
    is_openclaw = path is not None and (path.name == "openclaw.json" or path.parent == state_dir)
    reading = Reading(str(path or ""), is_openclaw=is_openclaw)
    if "$include" in raw:
        reading.warn("$include", "not followed, put the keys that Memline reads into this file")
    windows = openclaw.context_windows(raw)
    openclaw.translate(raw, env, reading)
    _name_entries(raw)
    content = _expand(reading.check(ConfigFile, raw), env, reading)
    _with_variables(content, env, reading, home)
    agents = content.get("agents", {})
    entries, is_newest = list(agents.get("entries", {}).values()), True
    if not entries:
        entries, is_newest = agents.get("list", []), False
    ids = _ids(entries, reading)
    default = _default(entries, ids, raw, reading) if entries else MAIN
    blocks = _blocks(content, entries, reading)
    file = msgspec.convert(content, ConfigFile)
    prices = content.get("prices", {})
    defaults = file.agents.defaults
    resolver = Agents(
        Setup(
            env=env,
            home=home,
            state_dir=state_dir,
            name=reading.name,
            base=path.parent if path else Path(),
            file=file,
            memory=blocks,
            entries={each.id: each for each in (*file.agents.entries.values(), *file.agents.list)},
            ids=ids or (options.agent or MAIN,),
            default=default,
            is_listed=bool(entries),
            is_newest=is_newest and bool(entries),
            chosen=options.agent,
            named_workspace=_folder(options, "workspace", environment.WORKSPACE, env),
            takes_folder=not (options.is_service and (len(ids) > 1 or file.queue.url)),
            is_openclaw=path is not None and path.parent == state_dir,
            sessions=Sessions(
                context_tokens=defaults.context_tokens,
                context_windows=windows,
                user_timezone=defaults.user_timezone,
                compaction=defaults.compaction,
            ),
            prices=prices,
        )
    )
    if options.agent:
        resolver.require(options.agent)
    _check_tokens(file.serve, reading, resolver)
    warnings = (*reading.warnings, *resolver.check_indexes())
    settings = Settings(
        agents=resolver,
        default_agent=default if entries else (options.agent or MAIN),
        home=home,
        queue=file.queue,
        serve=file.serve,
        limits=file.limits,
        prices=prices,
        path=path,
        file=settings_file,
    )
    return Loaded(settings=settings, resolver=resolver, chosen=options.agent, warnings=warnings)


def _name_entries(raw: dict[str, Any]) -> None:
    """Give each entry of `agents.entries` its id, which is its key there."""
    for name, entry in as_dict(as_dict(raw.get("agents")).get("entries")).items():
        if isinstance(entry, dict):
            entry["id"] = name


def _ids(entries: list[dict[str, Any]], reading: Reading) -> tuple[str, ...]:
    ids = [each["id"] for each in entries]
    # Ids become file names, and some file systems take upper and lower case for the same.
    folded = [each.casefold() for each in ids]
    if twice := [name for at, name in enumerate(ids) if name.casefold() in folded[:at]]:
        raise ConfigError(
            f"{reading.at('agents')}: there is another agent {twice[0]!r}", hint="give each agent its own id"
        )
    return tuple(ids)


def _default(
    entries: list[dict[str, Any]], ids: tuple[str, ...], raw: dict[str, Any], reading: Reading
) -> str:
    """Return the agent that owns what names none: the marked one, the system agent, `main`, the first."""
    marked: list[str] = [each["id"] for each in entries if each.get("default")]
    for other in marked[1:]:
        # As in the original, which uses such a file too.
        reading.warn("agents", f"{other} is marked as the default agent, and {marked[0]} is it")
    agents = as_dict(raw.get("agents"))
    if not agents.get("entries"):
        return [*marked, ids[0]][0]
    system = as_dict(as_dict(agents.get("defaults")).get("systemAgent")).get("agentId")
    found: str = next(each for each in (*marked, system, MAIN, ids[0]) if each in ids)
    return found


def merge(weak: Mapping[str, Any], strong: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two objects of the file at any depth, as the head of this module says."""
    merged = dict(weak)
    for name, each in strong.items():
        if name in ("extraPaths", "exclude"):
            each = [*merged.get(name, ()), *each]
        elif name != "headers" and isinstance(each, dict) and isinstance(merged.get(name), dict):
            each = merge(merged[name], each)
        merged[name] = each
    return merged


def _blocks(
    content: dict[str, Any], entries: list[dict[str, Any]], reading: Reading
) -> dict[str, MemorySearch]:
    """Return the `memorySearch` of each agent; without `agents.list` that of all, under an empty name."""
    agents, memory = content.get("agents", {}), content.get("memory", {})
    layers = [
        openclaw.of_qmd(memory.get("qmd", {})) if memory.get("backend") == "qmd" else {},
        content.get("memorySearch", {}),
        agents.get("defaults", {}).get("memorySearch", {}),
        memory.get("search", {}),
    ]
    own = {
        each["id"]: each.get("memorySearch") or each.get("memory", {}).get("search", {}) for each in entries
    }
    blocks = {name: _memory([*layers, block], reading) for name, block in own.items()}
    if not entries:
        blocks[""] = _memory(layers, reading)
    return blocks


def _memory(layers: list[dict[str, Any]], reading: Reading) -> MemorySearch:
    """Make the `memorySearch` of these layers, and correct keys that contradict each other."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = merge(merged, layer)
    sources = merged.get("sources", [])
    if "sessions" in sources and not merged.get("experimental", {}).get("sessionMemory"):
        sources = [each for each in sources if each != "sessions"]
        words = '"sessions" is left out until experimental.sessionMemory is true'
        reading.warn("memorySearch.sources", words)
    merged["sources"] = list(dict.fromkeys(sources)) or ["memory"]
    if chunking := merged.get("chunking"):
        tokens, overlap = chunking.get("tokens", 400), chunking.get("overlap", 80)
        if overlap >= tokens:
            words = (
                f"the overlap of {overlap} does not fit into {counted(tokens, 'token')}, {tokens - 1} is used"
            )
            reading.warn("memorySearch.chunking.overlap", words)
            chunking["overlap"] = tokens - 1
    if hybrid := merged.get("query", {}).get("hybrid"):
        _weigh(hybrid, reading)
    return msgspec.convert(merged, MemorySearch)


def _weigh(hybrid: dict[str, Any], reading: Reading) -> None:
    """Scale the weights to a sum of 1. One alone means that the other is the rest, as with 0.7 and 0.3."""
    names = ("vectorWeight", "textWeight")
    weights = [hybrid[name] for name in names if name in hybrid]
    if not weights:
        return
    rest = 1 - weights[0]
    total = sum(hybrid.get(name, rest) for name in names)
    if total == 0:
        reading.warn("memorySearch.query.hybrid", "both weights are 0, the defaults are used")
    defaults = (Hybrid().vector_weight, Hybrid().text_weight)
    scaled = [hybrid.get(name, rest) / total for name in names] if total else defaults
    hybrid.update(zip(names, scaled, strict=True))


def _with_variables(content: dict[str, Any], env: Environment, reading: Reading, home: Path) -> None:
    """Put what variables say over what the file says, and check the queue and the time zone."""
    queue, serve = content.setdefault("queue", {}), content.setdefault("serve", {})
    places = {"url": reading.at("queue.url"), "name": reading.at("queue.name")}
    for block, key, variable in (
        (queue, "url", environment.QUEUE_URL),
        (queue, "name", environment.QUEUE_NAME),
        (serve, "token", environment.SERVE_TOKEN),
    ):
        if text := environment.secret(env, variable):
            block[key], places[key] = text, environment.secret_name(env, variable)
    url, name = queue.get("url"), queue.get("name")
    if url and not url.startswith(("redis://", "rediss://", "unix://")):
        raise ConfigError(
            f"{places['url']}: not the address of a Redis server",
            hint="write redis://HOST:6379/0, with TLS rediss://HOST:6379/0, or unix:///SOCKET; it has to be"
            " one server: neither Sentinel nor Cluster is supported",
        )
    if name and not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        allowed = "use letters, digits, '.', '_' and '-', 64 at most"
        raise ConfigError(f"{places['name']}: not a valid name", hint=allowed)
    if url and not name:
        queue["name"] = environment.fleet_name(home)
    defaults = content.get("agents", {}).get("defaults", {})
    if zone := defaults.get("userTimezone"):
        try:
            time_zone(zone)
        except (KeyError, ValueError, OSError):
            del defaults["userTimezone"]
            words = f"{zone!r} is not a valid time zone, the machine's own is used"
            reading.warn("agents.defaults.userTimezone", words)


def _expand(tree: Any, env: Environment, reading: Reading, path: str = "", key: str = "") -> Any:
    """Replace `${NAME}` in keys, headers, tokens and addresses.

    A variable that is not set is a ConfigError: with another key than the one meant, a request might go to
    the wrong place. Below `models`, which is OpenClaw's, the value is empty instead, with a warning.
    """
    if isinstance(tree, dict):
        return {
            name: _expand(each, env, reading, f"{path}.{name}".lstrip("."), key if key in _GROUPS else name)
            for name, each in tree.items()
        }
    if isinstance(tree, list):
        return [_expand(each, env, reading, f"{path}[{at}]") for at, each in enumerate(tree)]
    if key not in _WITH_REFERENCES or not isinstance(tree, str):
        return tree
    if key == "apiKey" and any(tree in names for names in environment.PROVIDER_KEYS.values()):
        # The name of a key's variable, written in the place of the key.
        tree = f"${{{tree}}}"
    missing: list[str] = []
    text = environment.expand(tree, env, missing)
    if missing and path.startswith("models."):
        reading.warn(path, f"without effect, the variable {', '.join(missing)} is not set")
        return ""
    if missing:
        words = f"{reading.at(path)}: the variable {missing[0]} is not set"
        raise ConfigError(words, hint=f"export {missing[0]}=…")
    if key == "baseUrl" and text and not re.match(r"(?i)https?://[^\s/?#:]", text.strip()):
        # It may hold a password, so it is not repeated.
        reading.warn(path, "not the address of a server, such as http://127.0.0.1:11434/v1")
    return text


def _home(options: Options, env: Environment) -> Path:
    home = _folder(options, "home", environment.HOME, env)
    return home.path if home else environment.xdg(env, "XDG_DATA_HOME", ".local/share")


def _folder(options: Options, name: str, variable: str, env: Environment) -> Place | None:
    """Return the folder of an option, else of a variable."""
    option: Path | None = getattr(options, name)
    text, origin = (str(option), f"--{name}") if option else (environment.read(env, variable), variable)
    return Place(Path(environment.expand_user(text, env)).absolute(), origin) if text else None


def _check_tokens(serve: Serve, reading: Reading, agents: Agents) -> None:
    """Refuse tokens that are too easy, are there twice, or are for an agent that does not exist."""
    named = [("token", serve.token)] if serve.token else []
    named += [(f"tokens.{agent[:80]}", token) for agent, token in serve.tokens.items()]
    for agent in serve.tokens:
        if agent not in agents:
            place = reading.at(f"serve.tokens.{agent[:80]}")
            known = f"name one of these: {', '.join(agents)}"
            raise ConfigError(f"{place}: there is no agent {agent!r}", hint=known)
    seen: set[str] = set()
    for name, text in named:
        place = reading.at(f"serve.{name}")
        if len(text) < _SHORTEST_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
            raise ConfigError(
                f"{place}: not usable as a token",
                hint=f"use at least {_SHORTEST_TOKEN} visible ASCII characters: openssl rand -hex 24",
            )
        if text in seen:
            raise ConfigError(f"{place}: another entry has the same token", hint="give each its own")
        seen.add(text)
