"""Open one agent's memory as a Python object, `memline.Memory`: the base of every face.

The command line, MCP and HTTP call the same methods, so all of them search, read and write alike.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial, update_wrapper
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from msgspec.structs import replace

from memline.producers.actions.append_entry import append
from memline.producers.backends import DeadLink, Entry, IndexReport, RunProgress
from memline.producers.chats import Chat, sees_private
from memline.producers.read_note import check_links, cited_part, read_note
from memline.shared.clock import Clock, SystemClock
from memline.shared.config.agents import Settings
from memline.shared.config.load import Options, load
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice
from memline.shared.embedders.choice import choose as embedder_of
from memline.shared.errors import (
    ConfigError,
    IndexFault,
    MemlineError,
    PathNotAllowed,
)
from memline.shared.finding import Finding
from memline.shared.findings.answerer import Answerer
from memline.shared.search.request import SearchRequest, search_request
from memline.shared.search.results import Answer
from memline.shared.sources.paths import is_storable
from memline.shared.sources.reading import Excerpt
from memline.shared.sync.plan import plan_of
from memline.shared.sync.staleness import DiskState

P = ParamSpec("P")
T = TypeVar("T")


def met_by_backend(agent: AgentSettings) -> tuple[Finding, ...]:
    """Return what keeps the configured backend of an agent from answering."""
    qmd = _qmd_of(agent, long_lived=False, clock=SystemClock())
    return qmd.met() if qmd else ()


def _qmd_of(agent: AgentSettings, *, long_lived: bool, clock: Clock) -> Any:
    """Return qmd where it is to answer before the index does, else None."""
    if agent.content.memory.backend != "qmd":
        return None
    # 20 ms, which only those pay who have it.
    from memline.producers.qmd import Qmd

    return Qmd(agent, long_lived=long_lived, clock=clock)


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
        self._all, self._clock, self._long_lived = settings, clock, long_lived
        self._qmd = _qmd_of(agent, long_lived=long_lived, clock=clock)
        self._lock = threading.Lock()
        self._answerer: Answerer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index and free the vectors; the next call opens them again."""
        if self._qmd:
            self._qmd.close()
        with self._lock:
            if self._answerer is not None:
                self._answerer.close()
            self._answerer = None

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
        left to `index`. Raises IndexFaults, and BadRequest for a value that is not allowed.
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
        answer = self._qmd.ask(request, self._ask) if self._qmd else self._ask(request)
        return replace(answer, workspace=str(self.settings.workspace))

    def _ask(self, request: SearchRequest, met: tuple[Finding, ...] = ()) -> Answer:
        """Answer a request from the index; `met`: what was met before."""
        return self._searching().ask(request, met=met)

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
        cited, part = cited_part(fspath(path), first=first, lines=lines, max_chars=max_chars)
        private, workspace = sees_private(self.settings, chat), str(self.settings.workspace)
        read = partial(read_note, self.settings, cited, part, private=private, clock=self._clock)
        excerpt: Excerpt | None = self._qmd.get(cited, part, private=private) if self._qmd else None
        try:
            excerpt = excerpt or read()
        except PathNotAllowed:
            # A note that was saved since the last look is known by its name once it is in the index.
            if self.settings.memory.enabled and "/" not in cited:
                with suppress(MemlineError):
                    self._searching().staleness.state()
            excerpt = read()
        return replace(excerpt, workspace=workspace)

    def lint(self, *, chat: Chat | None = None) -> tuple[DeadLink, ...]:
        """Name the links of the notes that lead nowhere.

        Changed notes are brought into the index first, as a search does it. Raises IndexFaults.
        """
        self._searching().staleness.look_now()
        return check_links(self.settings, private=sees_private(self.settings, chat))

    def append(self, text: str, *, target: str = "daily", chat: Chat | None = None) -> Entry:
        """Write one entry into today's log, or with `target="longTerm"` into MEMORY.md, and index it.

        Raises BadRequest for an entry that is empty or too long, and AppendRefused when it cannot be written.
        """
        entry = append(self.settings, text, target=target, chat=chat, clock=self._clock)
        # It is found by its words from now on. It is in its note even if the index has a problem, and the
        # next search reports that.
        with suppress(IndexFault):
            if self._long_lived or self._answerer is not None:
                self._searching().staleness.look_now()
        if self._qmd:
            self._qmd.look()
        return entry

    def index(
        self,
        *,
        force: bool = False,
        re_embed: bool = False,
        accept_removals: bool = False,
        on_progress: Callable[[RunProgress], None] = lambda _: None,
        on_note: Callable[[str], None] = lambda _: None,
    ) -> IndexReport:
        """Bring the index up to date and wait until every vector is ready or failed.

        `force` splits every file again, `re_embed` pays for every vector again, `accept_removals` removes
        the files of a root that was emptied. With `queue.url` the fleet does the work. Raises
        IndexFaults.
        """
        from memline.producers.runs.index_run import bring_up_to_date

        report = bring_up_to_date(
            self._all,
            self.settings,
            force=force,
            re_embed=re_embed,
            accept_removals=accept_removals,
            clock=self._clock,
            on_progress=on_progress,
            on_note=on_note,
        )
        return self._qmd.sync(report, forced=force or re_embed) if self._qmd else report

    def status(self, *, deep: bool = False) -> dict[str, Any]:
        """Say what is indexed and what is stale, as `memline status --json` does.

        `deep` asks the provider for one vector.
        """
        from memline.producers.reports.status import report

        details = report(self._all, self.settings, deep=deep, met=self._qmd.met() if self._qmd else ())
        if self._qmd:
            self._qmd.describe(details)
        return details

    def _searching(self) -> Answerer:
        """Open what searches need, once."""
        with self._lock:
            if self._answerer is None:
                self._answerer = self._open_index()
            return self._answerer

    def _open_index(self) -> Answerer:
        agent, queue = self.settings, self._all.queue
        choice, limits = embedder_of(agent), None
        if queue:
            from memline.shared.queue.redis_limits import RedisLimits

            limits = RedisLimits(queue)
        # Beside a fleet a long-lived process leaves the index to the store worker: `watch` enqueues every
        # change. A command writes: it runs only when no query worker is alive.
        may_write = not (self._long_lived and queue)
        return Answerer(
            agent,
            choice=choice,
            long_lived=self._long_lived,
            look=partial(catch_up, agent, choice, clock=self._clock, may_write=may_write),
            limits=limits,
            queue=queue,
            clock=self._clock,
        )

    asearch = _awaitable(search)
    aget = _awaitable(get)
    alint = _awaitable(lint)
    aappend = _awaitable(append)
    aindex = _awaitable(index)
    astatus = _awaitable(status)


def catch_up(settings: AgentSettings, choice: Choice, *, clock: Clock, may_write: bool = True) -> DiskState:
    """Look at the files, and with `sync.onSearch` store those that changed; return how many are still behind.

    Their vectors are left to `index` and `up`. `may_write`: False leaves the index to its own writer,
    whatever the settings say. Raises IndexFaults.
    """
    plan = plan_of(settings, choice)
    state = DiskState.of(plan)
    if may_write and settings.memory.sync.on_search and plan.changes.to_read():
        # What writes takes 20 ms to import, which a search without changes does not pay.
        from memline.producers.store_changes import store_changes

        behind = state.files_behind - store_changes(settings, plan, clock)
        state = replace(state, files_behind=behind, removed=min(state.removed, behind))
    return state
