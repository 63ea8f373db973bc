"""What answers the questions of a memory, and what a run of it reports: the builtin index, or qmd."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from memline.shared.finding import Finding, worst
from memline.shared.search.request import SearchRequest
from memline.shared.search.results import Answer
from memline.shared.sources.excerpt import Excerpt
from memline.shared.values import to_json
from memline.shared.words import cite


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of a note that are asked for, as `Memory.get` takes them."""

    #: A path, a citation, or a title.
    path: str
    #: Wins over the citation.
    first: int | None = None
    lines: int | None = None
    around: int = 0
    max_chars: int | None = None


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Says how far a run is, for a progress bar."""

    files_done: int = 0
    files: int = 0
    vectors_done: int = 0
    vectors: int = 0
    #: Why nothing moves, when it is known: a rate limit and until when, or a batch and how far it is.
    waiting: str = ""


class IndexReport(msgspec.Struct, frozen=True, kw_only=True):
    """Reports the result of a run for one agent: the JSON contract of `memline index`."""

    agent: str
    files: dict[str, int]
    chunks: int
    vectors: dict[str, int]
    provider: str
    model: str
    seconds: float
    failures: list[dict[str, str]]
    #: What is wrong or worth knowing when it is over, most urgent first.
    findings: tuple[Finding, ...] = ()
    #: Open batches whose texts come later.
    batches: tuple[dict[str, object], ...] = ()
    #: Whether the command ends with 1: something the user asked for is missing.
    failed: bool = False

    @property
    def warning(self) -> str:
        """Return the words of the first problem or warning."""
        return worst(self.findings)[0]

    @property
    def action(self) -> str:
        """Return what to do about it."""
        return worst(self.findings)[1]

    def to_json(self) -> dict[str, object]:
        seconds = round(self.seconds, 3)
        return to_json(self, "warning", "action", without=("failed",), seconds=seconds)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in a note: the JSON contract of `memory_append`."""

    path: str
    start_line: int
    end_line: int
    #: The entry as it is in the note.
    text: str
    #: Size of the note now.
    bytes: int

    @property
    def citation(self) -> str:
        """Cite its lines."""
        return cite(self.path, self.start_line, self.end_line)

    def to_json(self) -> dict[str, Any]:
        return to_json(self, "citation")


class DeadLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that leads to no note: where it is, and its target without heading, alias and title."""

    path: str
    line: int
    target: str


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """A note that no link joins with another one."""

    path: str
    line: int = 1


class LinkCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with the links of an agent's notes: the JSON contract of `memline lint`."""

    agent: str
    workspace: str
    dead_links: tuple[DeadLink, ...] = ()
    orphans: tuple[Orphan, ...] = ()

    def to_json(self) -> dict[str, object]:
        return to_json(self)


class Backend(Protocol):
    """Searches, reads and follows the notes of one agent. Safe to use from several threads."""

    def ask(self, request: SearchRequest, *, met: tuple[Finding, ...] = ()) -> Answer:
        """Answer a request; `met`: what the caller met before.

        Raises IndexFaults, and ConfigError for a bad date.
        """

    def get(self, asked: Asked, *, private: bool) -> Excerpt:
        """Read part of a note or a past conversation. Raises PathNotAllowed, AccessDenied and BadRequest."""

    def lint(self, *, private: bool) -> LinkCheck:
        """Look at the files, then check the links of the notes. Raises IndexFaults."""

    def sync(self, *, force: bool, re_embed: bool, accept_removals: bool, **hooks: Any) -> IndexReport:
        """Bring everything up to date and wait for it. Raises IndexFaults."""

    def status(self, *, deep: bool, met: tuple[Finding, ...] = ()) -> dict[str, Any]:
        """Collect what `memline status --json` says of the agent; `met`: as in `ask`."""

    def met(self) -> tuple[Finding, ...]:
        """Return what keeps this backend from answering by itself."""

    def look(self) -> None:
        """Take in a note that this process has just changed. Raises IndexFaults."""

    def close(self) -> None:
        """Free what is open; the next call opens it again."""
