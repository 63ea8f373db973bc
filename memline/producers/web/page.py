"""Define what a page and an action of the dashboard are, and what they are asked with."""

from __future__ import annotations

import secrets
import shlex
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.datastructures import QueryParams

from memline.producers.actions.perform import Asker, Done, perform
from memline.producers.agents.tools import MemoryTools
from memline.producers.calls.arguments import by_key, parse_texts, read
from memline.producers.calls.rows import Call
from memline.producers.http.auth import Access
from memline.producers.memory import Memory
from memline.producers.web.rendering import path_of
from memline.producers.web.strip import Link, link_of
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import AccessDenied, BadRequest, MemlineError
from memline.shared.finding import Finding
from memline.shared.logs import Log
from memline.shared.values import field, replace, value

if TYPE_CHECKING:
    from memline.producers.web.live import LiveFigures
    from memline.shared.config.load import Loaded


#: Fields of every form that are not parameters of its call.
_FRAME = ("form_token", "next", "agent", "once", "ask")

#: The largest number of a query.
_HIGHEST = 10**9


class Redirect(Exception):
    """Sends the browser to another page: `target` is its address."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target


class PageMissing(MemlineError):
    """There is no such thing to show."""


class Runs:
    """Index runs that were started from the pages: one an agent at a time, each in a thread.

    They end with the process: an index can be left at any moment, and the next run goes on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Agent -> what its last run says.
        self._said: dict[str, str] = {}
        self._running: set[str] = set()

    def said(self, agent: str) -> str:
        return self._said.get(agent, "")

    def start(self, memory: Memory, *, force: bool = False, re_embed: bool = False) -> None:
        """Begin a run of the agent of `memory`. Raises BadRequest while one is running."""
        agent = memory.settings.agent
        with self._lock:
            if agent in self._running:
                raise BadRequest(f"{agent} is being indexed already", hint="wait for its end")
            self._running.add(agent)
            self._said[agent] = "Indexing now."
        args = (memory, force, re_embed)
        threading.Thread(target=self._run, args=args, name=f"index {agent}", daemon=True).start()

    def _run(self, memory: Memory, force: bool, re_embed: bool) -> None:
        agent = memory.settings.agent
        try:
            report = memory.index(force=force, re_embed=re_embed)
            said = f"Indexed in {report.seconds:.1f} s."
            if report.warning:
                said = f"{said} {report.warning}"
        except MemlineError as error:
            said = f"Failed: {error.message}"
        except Exception as error:  # The thread's end would say nothing to the user of the page.
            Log("web").exception("run.failed", agent=agent, kind=type(error).__name__)
            said = f"Failed: {type(error).__name__}, see the log of the server"
        with self._lock:
            self._running.discard(agent)
            self._said[agent] = said


@value
class Site:
    """What all pages of a server are made from."""

    tools: MemoryTools
    #: Where each value of the configuration comes from; None for a server that was made of settings alone.
    loaded: Loaded | None
    live: LiveFigures
    runs: Runs
    is_read_only: bool
    #: Whether a page, by its path below ROOT, opens for a token: of the agent named here, empty for all.
    has_page: Callable[[str, str], bool]

    @property
    def settings(self) -> Settings:
        return self.tools.settings

    @property
    def has_queue(self) -> bool:
        return bool(self.settings.queue.url)


@value
class View:
    """One request to the dashboard: who asks, and for what."""

    site: Site
    access: Access
    query: QueryParams = field(default_factory=QueryParams)
    #: The parts of the address that a page's path names.
    path: Mapping[str, str] = field(default_factory=dict)
    #: The fields of an action's form.
    form: QueryParams = field(default_factory=QueryParams)

    @property
    def is_owner(self) -> bool:
        """Say whether the token opens all agents."""
        return not self.access.only

    @property
    def can_act(self) -> bool:
        return self.access.can_act and not self.site.is_read_only

    @property
    def queue_url(self) -> str:
        """The address of the queue; empty without one."""
        return self.site.settings.queue.address

    @property
    def agents(self) -> tuple[AgentSettings, ...]:
        """The agents that the token opens."""
        names = (self.access.only,) if self.access.only else self.site.tools.agents
        return tuple(self.site.settings.agents[name] for name in names)

    def told(self, *pages: str) -> tuple[Link, ...]:
        """Return the findings of these pages, or of all, and what is well; their commands work as typed."""
        found = (each for each in self.site.live.read().told(self.access.only))
        return tuple(self._led(each) for each in found if not pages or each.page in pages)

    def _led(self, found: Finding) -> Link:
        """Make the link of a finding for who asks."""
        link = link_of(
            found,
            has_page=lambda path: self.site.has_page(path, self.access.only),
            is_owner=self.is_owner,
            has_queue=self.site.has_queue,
        )
        typed = partial(self.site.tools.hint, found.agent or "")
        return replace(link, finding=replace(found, action=typed(found.action)), command=typed(link.command))

    def agent(self, name: str = "") -> AgentSettings:
        """Return the agent of this name, or the token's own. Raises AccessDenied and UnknownAgent."""
        return self.site.tools.memory(self.access.caller(name).agent).settings

    def asker(self, *, is_of_one: bool = False) -> Asker:
        """Return who sent a form, for the agent that it names, or for all that the token opens.

        `is_of_one`: it has to name one. Raises BadRequest, AccessDenied and UnknownAgent.
        """
        named = self.form.get("agent", "")
        if is_of_one and "agent" not in self.form:
            raise BadRequest("no agent is named", hint="choose one")
        agents = (self.agent(named),) if named or is_of_one else self.agents
        return Asker(settings=self.site.settings, agents=agents, agent=named, by=self.access.client)

    def arguments(self, call: Call) -> dict[str, Any]:
        """Read the parameters of a call from a form, by their names in Python. Raises BadRequest."""
        texts = {name: text for name, text in self.form.items() if text and name not in _FRAME}
        return by_key(call, read(call.takes_json, parse_texts(call.takes_json, texts)))

    def number(self, name: str, default: int, *, low: int = 0) -> int:
        """Read a whole number of the query. Raises BadRequest."""
        text = self.query.get(name, "").strip()
        if not text:
            return default
        if not text.isascii() or not text.isdecimal() or not low <= int(text[:12]) <= _HIGHEST:
            words = f"{name} has to be a whole number from {low} to {_HIGHEST}"
            raise BadRequest(words, hint="change the address")
        return int(text)


#: What a page shows, by the names of its template.
Data = Mapping[str, object]


#: Groups of the navigation, in order; one of a single page is that page's link.
GROUPS = ("Overview", "Search", "Memory", "Work", "Fleet", "History", "Configuration")


@value
class Page:
    """A page: its place, its words, its template and where its rows come from."""

    #: Below ROOT; may have parts such as `{agent}`.
    path: str
    title: str
    template: str
    data: Callable[[View], Data]
    #: Its group of the navigation, of GROUPS; empty: the page is reached from another.
    group: str = ""
    #: Whether only a token for all agents opens it.
    is_for_all: bool = False
    needs_queue: bool = False
    #: Pages whose findings stand above its content: each has its button there.
    tells: tuple[str, ...] = ()


@value
class FormFrame:
    """What the macro for forms needs."""

    #: The double-submit token.
    token: str
    can_act: bool
    #: The page on which it stands, with its query: where an action leads back to.
    here: str

    @property
    def once(self) -> str:
        """A number for one form: pressed twice, it acts once."""
        return secrets.token_urlsafe(9)


@value
class Action:
    """Something that a form of a page does: a POST, refused where the server is read-only.

    `call` is its row in the table, which has its rights and its audit line.
    """

    call: Call
    run: Callable[[View], Done]
    #: Where its form is not made by `ui.act`: its address, below ROOT.
    path: str = ""

    @property
    def needs_queue(self) -> bool:
        return self.call.needs_queue


def acting(call: Call) -> Action:
    """Make the action of a call that has a function in the table."""

    def run(view: View) -> Done:
        arguments = view.arguments(call)
        return perform(call, view.asker(is_of_one=call.is_of_one_agent), **arguments)

    return Action(call=call, run=run, path=path_of(call))


def require_owner(view: View) -> None:
    """Raise AccessDenied unless the token opens all agents."""
    if not view.is_owner:
        raise AccessDenied(
            "this is of all agents", hint=f"look at the agent {view.access.only}, or use a token of all"
        )


def command_line(*words: str) -> str:
    """Write the equal command: `memline` and these words, quoted for a shell; empty words are left out."""
    return shlex.join(["memline", *filter(None, words)])
