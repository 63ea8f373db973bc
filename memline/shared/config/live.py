"""See that the settings of a running process changed, and what it can take of them while it runs.

A key says by its field `taken` how a process takes a change of it: LIVE at once; RESTART by executing itself
with the same arguments, once what it has in hand is done; NEVER, since what it holds is of the former value.
A block may say it for all its keys. The environment is that of the process for its life.
"""

from __future__ import annotations

import os
import threading
import time
from _blake2 import blake2b
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from memline.shared.config import environment
from memline.shared.config.agents import USUAL, without_workspace
from memline.shared.config.environment import Environment
from memline.shared.config.keys import LIVE, NEVER, RESTART, Block, json_name
from memline.shared.config.load import Loaded, Options, load
from memline.shared.config.schema import Settings
from memline.shared.config.workspaces import ABOVE, ONLY, SIGNED
from memline.shared.errors import ConfigError
from memline.shared.logs import Log
from memline.shared.values import replace, value

#: Seconds between two looks, 0.7 ms each: what two of them agree on holds within five seconds.
LOOK_EVERY_S = 1.5

#: A key that every agent has.
_OF_ALL = "memory.backend"

#: How a workspace is found that was not named.
_FOUND = (USUAL, ABOVE, SIGNED, ONLY)

#: Values that name a place of the host.
_PATHS = ("home", "workspace", "extraPaths", "modelCacheDir", "modelPath", "store.", "extensionPath", "qmd.")

_KEYS = tuple(names[0] for names in environment.PROVIDER_KEYS.values())
_PROVIDER = (
    *("memorySearch.provider", "memorySearch.model", "memorySearch.fallback", "memorySearch.remote"),
    *("memorySearch.outputDimensionality", "memorySearch.local", "models.providers", *_KEYS),
)
_FILES = (
    *("memorySearch.sources", "memorySearch.exclude", "memorySearch.ignoreFiles", "memorySearch.chunking"),
    *("memorySearch.experimental", "memorySearch.transcripts", "memorySearch.enabled"),
)

#: Role -> how the names of the keys begin that it uses; a role that is not here uses all.
_USED = {
    "embed": _PROVIDER,
    "batch": _PROVIDER,
    "chunk": _FILES,
    "flush": ("sessions.", "models.providers", *_KEYS),
    "query": (*_PROVIDER, *_FILES, "memorySearch.query", "memorySearch.store"),
}

#: Name of a key -> agent, empty for all of them -> value.
Flat = Mapping[str, Mapping[str, object]]


@value
class Changed:
    """What changed of the settings of a process, by the names of keys."""

    settings: Settings
    live: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return ", ".join((*self.live, *self.restart))


class SettingsWatch:
    """Compares the settings of a process with those that it was started with, or has taken since."""

    def __init__(
        self, loaded: Loaded, options: Options, env: Environment = os.environ, *, restarts: bool = True
    ) -> None:
        """`restarts`: whether the process can execute itself; one that cannot builds everything again."""
        self.settings, self.loaded = loaded.settings, loaded
        #: Why the settings cannot be read now: the last good ones stay.
        self.problem = ""
        #: Keys that changed and that this process never takes.
        self.never: tuple[str, ...] = ()
        #: Called when one of these two has changed.
        self.tell: Callable[[tuple[str, ...], str], None] = lambda never, problem: None
        with suppress(FileNotFoundError):
            # A folder that is moved takes the current one along: the notes would be looked for elsewhere.
            options = replace(options, started_in=Path.cwd())
        self._options, self._env, self._restarts = options, dict(env), restarts
        self._lock = threading.Lock()
        self._taken: dict[str, str] = {}
        self._first = self._known = self._seen = self._flat(loaded.settings)
        self._look_at = 0.0

    def look(self, *, at_once: bool = False) -> Changed | None:
        """Return what changed, once; None when nothing did, or no two looks agree yet.

        Cheap, for every round of a loop; `at_once`: both looks now.
        """
        with self._lock:
            if at_once:
                return self._read() or self._read()
            if time.monotonic() < self._look_at:
                return None
            self._look_at = time.monotonic() + LOOK_EVERY_S
            return self._read()

    def digests(self, roles: Collection[str], secret: bytes) -> dict[str, str]:
        """Return 12 hex digits of a digest for each key that these roles use, but for paths of the host."""
        return {
            name: digest(secret, f"{name}={_plain(by_agent)!r}")
            for name, by_agent in sorted(self._known.items())
            if any(name.startswith(_USED.get(role, ("",))) for role in roles)
            and not any(part in name for part in _PATHS)
        }

    def _read(self) -> Changed | None:
        before = self.never, self.problem
        changed = self._compare()
        if changed or before != (self.never, self.problem):
            if self.problem and self.problem != before[1]:
                Log("settings").warning("settings.invalid", error=self.problem)
            self.tell(self.never, self.problem)
        return changed

    def _compare(self) -> Changed | None:
        try:
            loaded = load(self._options, self._env)
            settings, found = loaded.settings, self._flat(loaded.settings)
        except ConfigError as error:
            self.problem, self._seen = error.message, self._known
            return None
        self.problem = ""
        is_agreed, self._seen = found == self._seen, self._known if found == self._known else found
        if not is_agreed:
            return None
        live, restart = (self._named(self._known, found, kind) for kind in (LIVE, RESTART))
        self.never = self._named(self._first, found, NEVER)
        self._seen = self._known = found
        if not self._restarts:
            live, restart = (*live, *restart), ()
        elif self.never:
            # A process that executed itself would take these too: the start that they need takes all.
            self.never, restart = (*self.never, *self._named(self._first, found, RESTART)), ()
        if not live and not restart:
            return None
        self.settings = _kept(settings, self.settings)
        self.loaded = replace(loaded, settings=self.settings)
        return Changed(settings=self.settings, live=live, restart=restart)

    def _named(self, before: Flat, after: Flat, kind: str) -> tuple[str, ...]:
        # Of agents that are in both, which all have this key: `agents.list` tells that another came or went.
        agents = ("", *(before[_OF_ALL].keys() & after[_OF_ALL].keys()))

        def differs(name: str) -> bool:
            old, new = before.get(name, {}), after.get(name, {})
            return any(old.get(agent) != new.get(agent) for agent in agents)

        names = dict.fromkeys((*before, *after))
        return tuple(name for name in names if self._taken[name] == kind and differs(name))

    def _flat(self, settings: Settings) -> Flat:
        """Return the value of every key for every agent, and note how it is taken."""
        found: dict[str, dict[str, object]] = {}

        def add(block: Block, agent: str, prefix: str = "", taken: str = LIVE) -> None:
            for name, member in type(block).members.items():
                path, each = f"{prefix}{name}", getattr(block, member.name)
                how = member.metadata.get("taken") or type(block).taken or taken
                if isinstance(each, Block):
                    add(each, agent, f"{path}.", how)
                else:
                    put(path, each, agent, how)

        def put(path: str, each: object, agent: str, taken: str) -> None:
            found.setdefault(path, {})[agent] = each
            self._taken[path] = taken

        for name in ("queue", "serve", "limits"):
            add(getattr(settings, name), "", f"{name}.")
        put("home", settings.home, "", NEVER)
        put("prices", settings.prices, "", LIVE)
        put("agents.list", tuple(settings.agents), "", RESTART)
        for agent in settings.agents:
            resolved = without_workspace(settings.agents, agent)
            add(resolved.memory, agent, "memorySearch.")
            for name in ("sessions", "qmd"):
                add(getattr(resolved, name), agent, f"{name}.")
            for name in ("citations", "max_injected_chars", "private_in_groups", "scope"):
                put(f"memory.{json_name(name)}", getattr(resolved, name), agent, LIVE)
            put(_OF_ALL, resolved.backend, agent, RESTART)
            put("models.providers", resolved.providers, agent, RESTART)
            for provider, key in resolved.environment_keys.items():
                put(environment.PROVIDER_KEYS[provider][0], key, agent, LIVE)
            with suppress(ConfigError):
                chosen = settings.agents[agent]
                # One that was found, and not named, may be found elsewhere once others have an index.
                if chosen.workspace_origin not in _FOUND:
                    put("workspace", chosen.workspace, agent, NEVER)
        return found


def digest(secret: bytes, text: str) -> str:
    """Return 12 hex digits of a keyed hash of a text, BLAKE2b (RFC 7693), which needs no OpenSSL."""
    return blake2b(text.encode(), key=secret, digest_size=6).hexdigest()


def _kept(settings: Settings, before: Settings) -> Settings:
    """Return new settings with what a process never takes as it was: the place of its home and indexes."""
    agents: Any = settings.agents
    agents.keep(before.agents)
    serve = replace(settings.serve, host=before.serve.host, port=before.serve.port)
    return replace(settings, home=before.home, queue=before.queue, serve=serve)


def _plain(content: object) -> object:
    """Write values out, secrets too: a block hides them when it is printed."""
    if isinstance(content, Block):
        return [_plain(getattr(content, member.name)) for member in type(content).members.values()]
    if isinstance(content, Mapping):
        return sorted((str(name), _plain(each)) for name, each in content.items())
    return [_plain(each) for each in content] if isinstance(content, list | tuple) else content
