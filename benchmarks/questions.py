"""Read labelled questions, and score the hits that answer them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from memline.shared.search.results import Hit

#: The file of the questions; the folders beside it are the workspaces.
QUESTIONS = "questions.jsonl"

#: Hits that count.
DEPTH = 10


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a piece of evidence."""

    path: str
    #: None: anywhere in the file.
    line: int | None


class LabelledQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question with its evidence: each piece with the places that hold it."""

    text: str
    workspace: str
    evidence: tuple[tuple[Place, ...], ...]


def read_questions(path: Path) -> list[LabelledQuestion]:
    """Read the questions of a JSONL file that have evidence in notes."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [question for row in rows if (question := _question(row)).evidence]


def _question(row: Mapping[str, Any]) -> LabelledQuestion:
    pieces = (
        tuple(
            Place(path=place["path"], line=place.get("line"))
            for place in places
            if place.get("view", "memory") == "memory"
        )
        for places in row["evidence"]
    )
    evidence = tuple(piece for piece in pieces if piece)
    return LabelledQuestion(text=row["query"], workspace=row["workspace"], evidence=evidence)


def score(question: LabelledQuestion, hits: Sequence[Hit]) -> tuple[float, float]:
    """Compute R@6 and nDCG@10 of one question."""
    wanted = len(question.evidence)
    #: For each piece that is covered, the rank of the first hit that does.
    ranks: list[int] = []
    for piece in question.evidence:
        pairs = product(enumerate(hits[:DEPTH], 1), piece)
        ranks += [rank for (rank, hit), place in pairs if _covers(hit, place)][:1]
    ideal = sum(_gain(rank) for rank in range(1, min(wanted, DEPTH) + 1))
    return sum(rank <= 6 for rank in ranks) / wanted, min(1.0, sum(map(_gain, ranks)) / ideal)


def mean(scores: Sequence[tuple[float, float]]) -> str:
    """Show the means of R@6 and nDCG@10."""
    recall, gain = map(statistics.fmean, zip(*scores, strict=True))
    return f"{recall:.3f} / {gain:.3f}"


def _covers(hit: Hit, place: Place) -> bool:
    if hit.path != place.path and not hit.path.endswith(f"/{place.path}"):
        return False
    return place.line is None or hit.start_line <= place.line <= hit.end_line


def _gain(rank: int) -> float:
    return 1 / math.log2(rank + 1)
