"""Open one agent's memory as a Python object, `memline.Memory`: the base of every face.

The command line, MCP and HTTP call the same methods, so all of them search, read and write alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from contextlib import closing, suppress
from functools import update_wrapper
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import msgspec
from msgspec.structs import replace

from memline.producers.actions.append_entry import append
from memline.producers.backends import Asked, Entry, IndexReport, LinkCheck, RunProgress
from memline.producers.builtin import Builtin
from memline.producers.chats import Chat
from memline.shared.clock import Clock, SystemClock
from memline.shared.config.agents import Settings
from memline.shared.config.load import Options, load
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import ConfigError, IndexFault
from memline.shared.finding import NOTE, Finding
from memline.shared.search.request import SearchRequest, from_workspace, search_request
from memline.shared.search.results import Answer
from memline.shared.sources.excerpt import Excerpt
from memline.shared.sources.paths import is_storable
from memline.shared.sync.plan import Plan

P = ParamSpec("P")
T = TypeVar("T")


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory holds, and what is missing."""

    agent: str
    provider: str
    model: str
    #: hybrid or keyword: how questions are answered.
    mode: str
    files: int
    chunks: int
    #: Files and vectors that are not in the index yet.
    files_behind: int
    vectors_behind: int
    #: What is not as it should be, and what to do about it; empty when all is well.
    warning: str
    action: str
    #: What `memory_status` answers to an agent, and everything that `memline status --json` says.
    summary: dict[str, Any]
    details: dict[str, Any]

    @property
    def stale(self) -> bool:
        """Say whether something on disk, or a vector, is not in the index yet."""
        return bool(self.files_behind or self.vectors_behind)


def backend_of(settings: Settings, agent: AgentSettings, *, long_lived: bool, clock: Clock) -> Builtin:
    """Make the backend that the configuration names."""
    if agent.content.memory.backend != "qmd":
        return Builtin(settings, agent, long_lived=long_lived, clock=clock)
    # 20 ms, which only those pay who have it.
    from memline.producers.qmd import QmdBackend

    return QmdBackend(settings, agent, long_lived=long_lived, clock=clock)


def met_by_backend(settings: Settings, agent: AgentSettings) -> tuple[Finding, ...]:
    """Return what keeps the configured backend of an agent from answering."""
    with closing(backend_of(settings, agent, long_lived=False, clock=SystemClock())) as backend:
        return backend.met()


def sees_private(settings: AgentSettings, chat: Chat | None) -> bool:
    """Say whether this chat may search and read the long-term note; without a chat the owner asks."""
    return chat is None or chat.is_private or settings.content.memory.private_in_groups


def _awaitable(
    method: Callable[Concatenate[Memory, P], T],
) -> Callable[Concatenate[Memory, P], Coroutine[Any, Any, T]]:
    """Make the twin of a method that does the same in a thread, for an event loop."""

    async def awaited(self: Memory, /, *args: P.args, **options: P.kwargs) -> T:
        import asyncio  # 20 ms, which a one-shot search does not pay

        return await asyncio.to_thread(method, self, *args, **options)

    # Its parameters and what it does are those of the method, also to a framework that makes a tool of it.
    twin = update_wrapper(awaited, method)
    twin.__name__, twin.__qualname__ = f"a{method.__name__}", f"Memory.a{method.__name__}"
    return twin


class Memory:
    """The memory of one agent. Safe to use from several threads.

    Close it when done, or use it in a `with` block. `asearch` and the other `a…` methods do the same in a
    thread, for an event loop.
    """

    def __init__(
        self,
        workspace: str | PathLike[str] | None = None,
        *,
        config: str | PathLike[str] | None = None,
        home: str | PathLike[str] | None = None,
        agent: str | None = None,
    ) -> None:
        """Open the memory of a folder of notes, else of the workspace in the configuration.

        The arguments are the global options of the command line: `config` is a configuration file, `home` the
        folder of the indexes, `agent` an agent's id. Nothing is read but the configuration until the first
        call. Raises ConfigError.
        """
        for name, given in (("workspace", workspace), ("config", config), ("home", home)):
            # As a path it would be the current folder: a variable that is not set would have that indexed.
            if given == "":
                raise ConfigError(f"{name} is an empty text", hint="name a path, or leave it out")
            if given is not None and (not is_storable(str(given)) or "\0" in str(given)):
                raise ConfigError(f"{name} is not a path: {str(given)!a}", hint="name a file or folder")
        folder, file, data = (
            None if path is None else Path(path).expanduser() for path in (workspace, config, home)
        )
        loaded = load(Options(workspace=folder, config=file, home=data, agent=agent))
        self._open(loaded, loaded.agent(), long_lived=True, clock=SystemClock())

    @classmethod
    def of(
        cls, settings: Settings, agent: AgentSettings, *, long_lived: bool = False, clock: Clock | None = None
    ) -> Self:
        """Make the memory of an agent whose settings are read; `long_lived` keeps vectors and answers."""
        memory = cls.__new__(cls)
        memory._open(settings, agent, long_lived=long_lived, clock=clock or SystemClock())
        return memory

    def _open(self, settings: Settings, agent: AgentSettings, *, long_lived: bool, clock: Clock) -> None:
        #: The settings of this agent.
        self.settings = agent
        self._clock = clock
        self._backend = backend_of(settings, agent, long_lived=long_lived, clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index and free the vectors; the next call opens them again."""
        self._backend.close()

    def search(
        self,
        query: str,
        *,
        max_results: int | None = None,
        min_score: float | None = None,
        source: str = "",
        path: str = "",
        exclude: str = "",
        tag: str | Collection[str] = (),
        since: str = "",
        until: str = "",
        explain: bool = False,
        chat: Chat | None = None,
    ) -> Answer:
        """Find what the notes say about `query`: hits with citations, best first.

        The options are those of `memline search`. In a `chat` that is not private the long-term note is left
        out. With `sync.onSearch` changed files are brought into the keyword index first; their vectors are
        left to `index`. Raises IndexFaults, BadRequest for a value that is not allowed, and ConfigError for a
        bad date.
        """
        request = search_request(
            query,
            private=sees_private(self.settings, chat),
            max_results=max_results,
            min_score=min_score,
            source=source,
            path=path,
            exclude=exclude,
            tag=tag,
            since=since,
            until=until,
            explain=explain,
        )
        return self.ask(request)

    def ask(self, request: SearchRequest) -> Answer:
        """Answer a request, as `search` does."""
        where = str(self.settings.workspace)
        return replace(self._backend.ask(from_workspace(request, where)), workspace=where)

    def get(
        self,
        path: str | PathLike[str],
        *,
        first: int | None = None,
        lines: int | None = None,
        max_chars: int | None = None,
        chat: Chat | None = None,
    ) -> Excerpt:
        """Read lines of a note by its path, its citation (`path#L5-L7`, `path:5-7`), or its name.

        Case does not matter, nor does `.md`; a name is a title, an alias or a file name. `first` wins over
        the citation. The citation of a past conversation gives what was said. At most `max_chars` characters,
        by default 12,000. A note that does not exist has the status `not_found`. Raises PathNotAllowed for
        every other file, AccessDenied for the long-term note and conversations in a `chat` that is not
        private, and BadRequest for a name that several notes have, with these.
        """
        asked = Asked(path=fspath(path), first=first, lines=lines, max_chars=max_chars)
        excerpt = self._backend.get(asked, private=sees_private(self.settings, chat))
        return replace(excerpt, workspace=str(self.settings.workspace))

    def lint(self, *, chat: Chat | None = None) -> LinkCheck:
        """Name the links of the notes that lead nowhere, and the notes that no link joins with another one.

        Changed notes are brought into the index first, as a search does it. Raises IndexFaults.
        """
        return self._backend.lint(private=sees_private(self.settings, chat))

    def append(self, text: str, *, target: str = "daily", chat: Chat | None = None) -> Entry:
        """Write one entry into today's log, or with `target="longTerm"` into MEMORY.md, and index it.

        Raises BadRequest for an entry that is empty or too long, and AppendRefused when it cannot be written.
        """
        entry = append(self.settings, text, target=target, chat=chat, clock=self._clock)
        # It is found by its words from now on. It is in its note even if the index has a problem, and the
        # next search reports that.
        with suppress(IndexFault):
            self._backend.look()
        return entry

    def index(
        self,
        *,
        force: bool = False,
        re_embed: bool = False,
        accept_removals: bool = False,
        on_progress: Callable[[RunProgress], None] = lambda _: None,
        on_plan: Callable[[Plan], None] = lambda _: None,
        on_note: Callable[[str], None] = lambda _: None,
    ) -> IndexReport:
        """Bring the index up to date and wait until every vector is ready or failed.

        `force` splits every file again, `re_embed` pays for every vector again, `accept_removals` removes
        the files of a root that was emptied. With `queue.url` the fleet does the work. Raises
        IndexFaults.
        """
        return self._backend.sync(
            force=force,
            re_embed=re_embed,
            accept_removals=accept_removals,
            on_progress=on_progress,
            on_plan=on_plan,
            on_note=on_note,
        )

    def status(self, *, deep: bool = False) -> Status:
        """Say what is indexed and what is stale; `deep` asks the provider for one vector."""
        details = self._backend.status(deep=deep)
        summary = digest(self.settings, details)
        names = ("provider", "model", "mode", "files", "chunks", "warning", "action")
        return Status(
            agent=self.settings.agent,
            files_behind=summary["behind"]["files"],
            vectors_behind=summary["behind"]["vectors"],
            summary=summary,
            details=details,
            **{name: summary[name] for name in names},
        )

    asearch = _awaitable(search)
    aget = _awaitable(get)
    alint = _awaitable(lint)
    aappend = _awaitable(append)
    aindex = _awaitable(index)
    astatus = _awaitable(status)


def digest(settings: AgentSettings, collected: dict[str, Any]) -> dict[str, Any]:
    """Pick the part of a status that helps an agent: what can be searched, what is missing, what to do."""
    status, found = collected["status"], collected["findings"]
    worst = next((each for each in found if each["level"] != NOTE), {"what": "", "action": ""})
    same = ("provider", "model", "files", "chunks", "sources", "sourceCounts", "behind")
    has_vectors = status["vector"]["ready"] and status["provider"] != "none"
    return {
        "agentId": settings.agent,
        "enabled": settings.memory.enabled,
        **{name: status[name] for name in same},
        "mode": status["qmd"]["mode"] if "qmd" in status else "hybrid" if has_vectors else "keyword",
        "vectors": {name: status["vector"][name] for name in ("ready", "wanted", "failed")},
        "stale": status["dirty"],
        "append": settings.memory.append.enabled,
        "warning": worst["what"],
        "action": worst["action"],
        "findings": found,
    }
