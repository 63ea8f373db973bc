"""Read labelled questions, and score the hits that answer them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from memline.shared.note_names import is_markdown
from memline.shared.search.results import Hit

#: Metrics of one question, or their means; None where one means nothing.
Scored = dict[str, float | None]

#: The file of the questions; the folders beside it are the workspaces.
QUESTIONS = "questions.jsonl"

#: Hits that count.
DEPTH = 10

METRICS = ("R@3", "R@6", "R@10", "hit@6", "MRR@10", "nDCG@10", "snippet@6")

#: Characters of an evidence line that must be readable: a longer line cannot be in a snippet whole.
READABLE_CHARS = 200


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a piece of evidence."""

    path: str
    #: None: anywhere in the file.
    line: int | None
    #: What the line says; empty when it is not known.
    text: str = ""


class LabelledQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question with its evidence: each piece with the places that hold it."""

    id: str
    text: str
    workspace: str
    category: str
    evidence: tuple[tuple[Place, ...], ...]


def read_questions(path: Path, root: Path, view: str) -> list[LabelledQuestion]:
    """Read the questions of a JSONL file that have evidence in a view."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [question for row in rows if (question := _question(row, root, view)).evidence]


def _question(row: Any, root: Path, view: str) -> LabelledQuestion:
    folder = root / row["workspace"]
    pieces = (
        tuple(_place(folder, place) for place in places if place.get("view", view) == view)
        for places in row["evidence"]
    )
    return LabelledQuestion(
        id=str(row["query_id"]),
        text=str(row["query"]),
        workspace=str(row["workspace"]),
        category=str(row.get("category", "")),
        evidence=tuple(piece for piece in pieces if piece),
    )


def _place(folder: Path, place: Mapping[str, Any]) -> Place:
    lines, number = _lines(folder / place["path"]), place.get("line")
    text = lines[number - 1] if number is not None and 0 < number <= len(lines) else ""
    return Place(path=place["path"], line=number, text=text.strip())


@cache
def _lines(file: Path) -> list[str]:
    # Only the lines of a note are what a hit shows; those of a transcript are JSON.
    is_note = is_markdown(file.name) and file.is_file()
    return file.read_text(encoding="utf-8").split("\n") if is_note else []


def score(question: LabelledQuestion, hits: Sequence[Hit]) -> Scored:
    """Compute the metrics of one question; None where one means nothing for it."""
    wanted = len(question.evidence)
    #: For each piece that is covered, the rank of the first hit that does.
    ranks: list[int] = []
    shown = covered = 0
    for piece in question.evidence:
        pairs = product(enumerate(hits[:DEPTH], 1), piece)
        covering = [(rank, hit.snippet, place.text) for (rank, hit), place in pairs if _covers(hit, place)]
        ranks += [rank for rank, _, _ in covering[:1]]
        readable = [
            text[:READABLE_CHARS] in snippet for rank, snippet, text in covering if text and rank <= 6
        ]
        covered += bool(readable)
        shown += any(readable)
    ideal = sum(_gain(rank) for rank in range(1, min(wanted, DEPTH) + 1))
    return {
        **{f"R@{depth}": sum(rank <= depth for rank in ranks) / wanted for depth in (3, 6, 10)},
        "hit@6": float(any(rank <= 6 for rank in ranks)),
        "MRR@10": 1 / min(ranks) if ranks else 0.0,
        "nDCG@10": min(1.0, sum(map(_gain, ranks)) / ideal),
        "snippet@6": shown / covered if covered else None,
    }


def mean(rows: Sequence[Mapping[str, float | None]]) -> Scored:
    """Compute the mean of each metric over the questions it means something for; None where there is none."""
    means: Scored = {}
    for metric in rows[0] if rows else METRICS:
        known = [each for row in rows if (each := row[metric]) is not None]
        means[metric] = sum(known) / len(known) if known else None
    return means


def _covers(hit: Hit, place: Place) -> bool:
    if hit.path != place.path and not hit.path.endswith(f"/{place.path}"):
        return False
    return place.line is None or hit.start_line <= place.line <= hit.end_line


def _gain(rank: int) -> float:
    return 1 / math.log2(rank + 1)
