"""What a search is asked and what it answers: the JSON contract of `memline search` (additive only)."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from shared.values import value

#: `backend` of every answer and of `status`.
BACKEND = "builtin"


@value
class SearchRequest:
    """A question and its options; None and empty take the settings, or limit nothing."""

    query: str
    max_results: int | None = None
    #: Cosine below which a hit of the vector leg alone is cut.
    min_score: float | None = None
    #: `memory` or `sessions`.
    source: str = ""
    #: `*` stays within a folder, `**` does not; without a `/` it is about the file name.
    path_glob: str = ""
    #: A date or an age (`30d`, `2w`): the day in a note's name, else the day of its file.
    since: str = ""
    until: str = ""
    explain: bool = False


@value
class Behind:
    """How much on disk is newer than the index, and how many vectors are still to come."""

    files: int = 0
    vectors: int = 0


@value
class Explanation:
    """Every contribution to the score of a hit."""

    #: The terms of the question that stand in the chunk.
    terms: tuple[str, ...]
    bm25: float | None
    keyword: float
    keyword_rank: int
    cosine: float | None
    vector_rank: int
    #: path, name or stem when the question names the file; empty otherwise.
    named: str
    fused: float
    decay: float
    mmr: float | None
    fusion: str

    def to_json(self) -> dict[str, Any]:
        return {
            "terms": list(self.terms),
            "bm25": self.bm25,
            "keyword": self.keyword,
            "keywordRank": self.keyword_rank,
            "cosine": self.cosine,
            "vectorRank": self.vector_rank,
            "named": self.named,
            "fused": self.fused,
            "decay": self.decay,
            "mmr": self.mmr,
            "fusion": self.fusion,
        }


@value
class Hit:
    """One search result."""

    path: str
    start_line: int
    end_line: int
    score: float
    #: Cosine; 0 without a vector.
    vector_score: float
    #: Keyword score over that of the best keyword hit; 0 when no term matched.
    text_score: float
    snippet: str
    source: str
    explanation: Explanation | None = None

    @property
    def citation(self) -> str:
        """`path#L5-L7`, `path#L5` for a single line."""
        end = "" if self.end_line == self.start_line else f"-L{self.end_line}"
        return f"{self.path}#L{self.start_line}{end}"

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "path": self.path,
            "startLine": self.start_line,
            "endLine": self.end_line,
            "score": self.score,
            "vectorScore": self.vector_score,
            "textScore": self.text_score,
            "snippet": self.snippet,
            "source": self.source,
            "citation": self.citation,
        }
        if self.explanation is not None:
            plain["explain"] = self.explanation.to_json()
        return plain


@value
class Answer:
    """What a search found, how, and what may be missing."""

    hits: tuple[Hit, ...] = ()
    #: hybrid, keyword or vector: which legs the hits come from.
    mode: str = "keyword"
    provider: str = "none"
    model: str = ""
    #: Why another provider than the configured one is in use: {"from", "reason"}; None when it is not.
    fallback: dict[str, str] | None = None
    behind: Behind = field(default_factory=Behind)
    #: Something is not as it should be, and what to do about it.
    warning: str = ""
    action: str = ""
    #: Why the list is as it is, when nothing is wrong: no match, an empty index, filters that leave nothing.
    notice: str = ""

    @property
    def stale(self) -> bool:
        """Whether something on disk, or a vector, is not in the index yet."""
        return bool(self.behind.files or self.behind.vectors)

    def to_json(self) -> dict[str, Any]:
        return {
            "results": [hit.to_json() for hit in self.hits],
            "totalResults": len(self.hits),
            "backend": BACKEND,
            "provider": self.provider,
            "model": self.model,
            "mode": self.mode,
            "fallback": self.fallback,
            "stale": self.stale,
            "behind": {"files": self.behind.files, "vectors": self.behind.vectors},
            "warning": self.warning,
            "action": self.action,
            "notice": self.notice,
        }
