"""Define what a page and an action of the dashboard are, and what they are asked with."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from starlette.datastructures import QueryParams

from memline.producers.agents.tools import MemoryTools
from memline.producers.http.auth import Access
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import AccessDenied, BadRequest, MemlineError
from memline.shared.values import field, value

if TYPE_CHECKING:
    from memline.producers.web.background_runs import Runs
    from memline.producers.web.findings import Findings
    from memline.producers.web.live import LiveFigures
    from memline.shared.config.load import Loaded


class Redirect(Exception):
    """Sends the browser to another page: `target` is its address."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target


class PageMissing(MemlineError):
    """There is no such thing to show."""


@value
class Site:
    """What all pages of a server are made from."""

    tools: MemoryTools
    #: Where each value of the configuration comes from; None for a server that was made of settings alone.
    loaded: Loaded | None
    live: LiveFigures
    findings: Findings
    runs: Runs
    is_read_only: bool

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
        return not self.site.is_read_only

    @property
    def queue_url(self) -> str:
        """The address of the queue; empty without one."""
        return self.site.settings.queue.address

    @property
    def agents(self) -> tuple[AgentSettings, ...]:
        """The agents that the token opens."""
        names = (self.access.only,) if self.access.only else self.site.tools.agents
        return tuple(self.site.settings.agents[name] for name in names)

    def agent(self, name: str = "") -> AgentSettings:
        """Return the agent of this name, or the token's own. Raises AccessDenied and UnknownAgent."""
        return self.site.tools.memory(self.access.caller(name).agent).settings

    def number(self, name: str, default: int, *, low: int = 0, high: int = 10**9) -> int:
        """Read a whole number of the query. Raises BadRequest."""
        text = self.query.get(name, "").strip()
        if not text:
            return default
        if not text.isascii() or not text.isdecimal() or not low <= int(text[:12]) <= high:
            raise BadRequest(
                f"{name} has to be a whole number from {low} to {high}", hint="change the address"
            )
        return int(text)


#: What a page shows, by the names of its template.
Data = Mapping[str, object]


@value
class Page:
    """A page: its place, its words, its template and where its rows come from."""

    #: Below ROOT; may have parts such as `{agent}`.
    path: str
    title: str
    template: str
    data: Callable[[View], Data]
    #: Whether the navigation names it; else the page is reached from another.
    is_in_nav: bool = True
    #: Whether only a token for all agents opens it.
    is_for_all: bool = False
    needs_queue: bool = False


@value
class FormFrame:
    """What the macro for forms needs."""

    #: The double-submit token.
    token: str
    can_act: bool


@value
class Done:
    """What came of an action."""

    #: One sentence for the reader.
    words: str
    #: The page to show next, below ROOT.
    page: str
    #: Fields of the audit line: names and counts, no text, no secret. None: what was called wrote it.
    audit: Mapping[str, object] | None = field(default_factory=dict)


@value
class Action:
    """Something that a form of a page does: a POST, refused where the server is read-only."""

    path: str
    #: What it does, as on the command line; the audit line is `audit.<verb>`.
    verb: str
    run: Callable[[View], Done]
    is_for_all: bool = False
    needs_queue: bool = False


def require_owner(view: View) -> None:
    """Raise AccessDenied unless the token opens all agents."""
    if not view.is_owner:
        raise AccessDenied("this is of all agents", hint=f"this token opens the agent {view.access.only}")


def command_line(*words: str) -> str:
    """Write the equal command: `memline` and these words, quoted for a shell; empty words are left out."""
    return shlex.join(["memline", *filter(None, words)])
