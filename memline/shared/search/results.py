"""Define the answer to a search: the JSON contract of `memline search` (additive only)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from memline.shared.finding import Finding, worst
from memline.shared.search.passages import matched
from memline.shared.search.terms import Needle
from memline.shared.sources.tokens import has_dense
from memline.shared.values import to_json
from memline.shared.words import cite


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """How many files on disk are newer than the index, and how many vectors are still missing."""

    files: int = 0
    vectors: int = 0


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One search result."""

    path: str
    start_line: int
    end_line: int
    #: How well this answers, 0 to 1; falls with the order.
    score: float
    #: Cosine; 0 without a vector.
    vector_score: float
    #: How much of the question's words it holds, the rarer the more; 0 when no term matched.
    text_score: float
    snippet: str
    source: str
    #: The title of the page and the headings above the lines, `A > B`.
    heading: str = ""
    #: The other files where the same text stands.
    also_in: tuple[str, ...] = ()
    #: What the question is found by.
    needles: Sequence[Needle] = ()
    #: What the score is made of, as JSON; None when it was not asked for.
    explanation: dict[str, Any] | None = None
    #: The lines of the snippet; zeros where it cites all lines.
    shown: tuple[int, int] = (0, 0)
    #: Where the snippet begins in a line that is longer than an excerpt, 1-based; 0 elsewhere.
    column: int = 0

    @property
    def citation(self) -> str:
        """Cite the lines that are shown, of a very long one with the column: `path#L5C12001`."""
        first, last = self.shown if self.shown[0] else (self.start_line, self.end_line)
        return cite(self.path, first, last, column=self.column)

    @property
    def matched(self) -> tuple[str, ...]:
        """The words of the snippet that the question matched, as they stand there."""
        return matched(self.snippet, self.needles)

    def to_json(self, *, marks: bool = True) -> dict[str, Any]:
        more = ("citation", "matched") if marks else ("citation",)
        plain = to_json(self, *more, without=("explanation", "shown", "needles", "column"))
        return plain if self.explanation is None else {**plain, "explain": self.explanation}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The hits of a search, how they were found, and what may be missing."""

    hits: tuple[Hit, ...] = ()
    #: The folder of the notes that answer.
    workspace: str = ""
    backend: str = "builtin"
    #: hybrid, keyword or vector: which retrievers the hits come from.
    mode: str = "keyword"
    provider: str = "none"
    model: str = ""
    #: Why another than the configured backend or provider is in use: {"from", "reason"}.
    fallback: dict[str, str] | None = None
    behind: Behind = Behind()
    #: What is wrong, most urgent first: what the search met, and what who answers adds.
    findings: tuple[Finding, ...] = ()
    #: Why the list is as it is, when nothing is wrong: no match, an empty index, filters that leave nothing.
    notice: str = ""
    #: Words of the question, as typed, of which no form stands in what was searched.
    missing: tuple[str, ...] = ()

    @property
    def stale(self) -> bool:
        """Whether something on disk, or a vector, is not in the index yet."""
        return bool(self.behind.files or self.behind.vectors)

    @property
    def warning(self) -> str:
        """Return the words of the first problem or warning; a note is none."""
        return worst(self.findings)[0]

    @property
    def action(self) -> str:
        """Return what to do about it."""
        return worst(self.findings)[1]

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def to_json(self, *, marks: bool = True) -> dict[str, Any]:
        """Write the answer as JSON; without `marks` for those who do not mark the matched words."""
        hits = [hit.to_json(marks=marks) for hit in self.hits]
        more = to_json(self, "stale", "warning", "action", without=("hits",), behind=to_json(self.behind))
        return {"results": hits, "totalResults": len(hits), **more}


def pattern_of(matched: Iterable[str]) -> re.Pattern[str] | None:
    """Make the pattern that finds the matched words in a snippet, the longer first; None without any."""
    # An underscore ends a word, and a character of a dense script may stand inside of a run.
    longest = map(re.escape, sorted(filter(None, matched), key=len, reverse=True))
    parts = [each if has_dense(each) else rf"(?<![^\W_]){each}(?![^\W_])" for each in longest]
    return re.compile("|".join(parts), re.IGNORECASE) if parts else None
