"""How good a ranking is, against questions whose evidence is known by file and line.

    R@k         share of the evidence that the first k hits cover
    hit@6       1 when they cover any of it
    MRR@10      1 / rank of the first hit that covers something new; 0 when none of ten does
    nDCG@10     a piece counts 1 / log2(rank + 1) at the first hit that covers it; the sum over what one new
                piece a rank would give
    snippet@6   of the evidence that the first six hits cover, the share that can be read in their snippets

A hit covers a line of its file that lies within its lines. A piece that several lines answer (a note and a
transcript of the same talk) is covered by any of them, and counts once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.errors import MemlineError
from shared.search.results import Hit

#: Hits a question is asked for.
DEPTH = 10

METRICS = ("R@3", "R@6", "R@10", "hit@6", "MRR@10", "nDCG@10", "snippet@6")

#: Characters of an evidence line that must be readable: a longer line cannot be in a snippet whole.
READABLE_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a piece of evidence stands."""

    path: str
    #: None: anywhere in the file.
    line: int | None
    #: What the line says; empty when it is not known.
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledQuestion:
    """A question with its evidence: each piece with the places that hold it."""

    id: str
    text: str
    workspace: str
    category: str
    evidence: tuple[tuple[Place, ...], ...]


def read_questions(path: Path, root: Path, view: str) -> list[LabelledQuestion]:
    """The questions of a JSONL file, with the evidence of one view. Raises MemlineError for a bad line."""
    questions: list[LabelledQuestion] = []
    lines: dict[Path, list[str]] = {}
    for number, row in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not row.strip():
            continue
        try:
            question = _question(json.loads(row), root, view, lines)
        except (ValueError, KeyError, TypeError) as error:
            raise MemlineError(
                f"{path}, line {number} is not a labelled question: {type(error).__name__}: {error}",
                hint="see the format in docs/search.md",
            ) from error
        if question.evidence:
            questions.append(question)
    if not questions:
        raise MemlineError(
            f"{path} has no question with evidence of the view {view!r}", hint="try another --view"
        )
    return questions


def _question(row: Any, root: Path, view: str, lines: dict[Path, list[str]]) -> LabelledQuestion:
    folder = root / row["workspace"]
    pieces = (
        tuple(_place(folder, place, lines) for place in places if place.get("view", view) == view)
        for places in row["evidence"]
    )
    return LabelledQuestion(
        id=str(row["query_id"]),
        text=str(row["query"]),
        workspace=str(row["workspace"]),
        category=str(row.get("category", "")),
        evidence=tuple(piece for piece in pieces if piece),
    )


def _place(folder: Path, place: Mapping[str, Any], lines: dict[Path, list[str]]) -> Place:
    file, number = folder / place["path"], place.get("line")
    if file not in lines:
        # Only the lines of a note are what a hit shows; those of a transcript are JSON.
        is_note = file.suffix == ".md" and file.is_file()
        lines[file] = file.read_text(encoding="utf-8").split("\n") if is_note else []
    text = lines[file][number - 1] if number is not None and 0 < number <= len(lines[file]) else ""
    return Place(path=place["path"], line=number, text=text.strip())


def score(question: LabelledQuestion, hits: Sequence[Hit]) -> dict[str, float | None]:
    """The metrics of one question; None where one means nothing for it."""
    wanted = len(question.evidence)
    first = [_first_rank(piece, hits[:DEPTH]) for piece in question.evidence]
    ranks = sorted(rank for rank in first if rank)
    ideal = sum(_gain(rank) for rank in range(1, min(wanted, DEPTH) + 1))
    metrics: dict[str, float | None] = {
        f"R@{depth}": sum(rank <= depth for rank in ranks) / wanted for depth in (3, 6, 10)
    }
    metrics["hit@6"] = float(bool(ranks) and ranks[0] <= 6)
    metrics["MRR@10"] = 1 / ranks[0] if ranks else 0.0
    metrics["nDCG@10"] = min(1.0, sum(map(_gain, ranks)) / ideal)
    metrics["snippet@6"] = _readable(question, hits[:6])
    return metrics


def mean(rows: Iterable[Mapping[str, float | None]]) -> dict[str, float | None]:
    """The mean of each metric over the questions it means something for; None where there is none."""
    rows = list(rows)
    means: dict[str, float | None] = {}
    for metric in METRICS:
        values = [value for row in rows if (value := row[metric]) is not None]
        means[metric] = sum(values) / len(values) if values else None
    return means


def _first_rank(piece: Sequence[Place], hits: Sequence[Hit]) -> int:
    """Rank of the first hit that covers a piece of evidence; 0 when none does."""
    return next((rank for rank, hit in enumerate(hits, 1) if any(_covers(hit, place) for place in piece)), 0)


def _covers(hit: Hit, place: Place) -> bool:
    if hit.path != place.path and not hit.path.endswith(f"/{place.path}"):
        return False
    return place.line is None or hit.start_line <= place.line <= hit.end_line


def _gain(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def _readable(question: LabelledQuestion, hits: Sequence[Hit]) -> float | None:
    shown = covered = 0
    for piece in question.evidence:
        pairs = [(hit, place) for place in piece if place.text for hit in hits if _covers(hit, place)]
        covered += bool(pairs)
        shown += any(place.text[:READABLE_CHARS] in hit.snippet for hit, place in pairs)
    return shown / covered if covered else None
