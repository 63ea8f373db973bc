"""What a memory reports of its work."""

from __future__ import annotations

from typing import Any

import msgspec

from memline.shared.finding import Finding, worst
from memline.shared.values import to_json
from memline.shared.words import cite


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
