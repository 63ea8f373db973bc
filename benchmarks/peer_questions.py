"""What peers find: the questions of a folder, and the published metrics."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.children import ROOT
from benchmarks.questions import QUESTIONS, read_questions

#: Lie beside the repository; they are no part of it.
FILE = ROOT.parent / "shared/models/all-MiniLM-L6-v2-q8_0.gguf"
FOLDER = ROOT.parent / "shared/eval/dev/locomo"

#: Notes that are indexed, and questions that are asked: one that embeds in its own process takes a second of
#: CPU for a note.
NOTES, ASKED = 30, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What the embedding server is asked for. memsearch expects the dimensions of a name that it knows."""

    name: str = "text-embedding-3-small"
    dims: int = 1536
    #: The same model for a peer that cannot ask the server; None of what is no real one.
    file: Path | None = None


STUB = Model()

#: Words of a question, and the names of the files that answer it.
Question = tuple[str, AbstractSet[str]]


def file_of(folder: Path) -> Path | None:
    """The file of the questions in a folder; None where there is none."""
    return next((folder / name for name in (QUESTIONS, "queries.jsonl") if (folder / name).is_file()), None)


def real(questions: Path, file: Path) -> Model | str:
    """The real model, or why nothing is asked with it."""
    if file_of(questions) is None:
        return f"There are no questions in {questions}: what each finds with a real model is not measured."
    if not (find_spec("llama_cpp") and file.is_file()):
        return f"The extra `local` or {file} is not there: what each finds with it is not measured."
    return Model(name="all-MiniLM-L6-v2", dims=384, file=file)


def write(folder: Path, notes: Path) -> list[Question]:
    """Write the first notes of a folder of questions flat into `notes`; return questions that they answer."""
    file = file_of(folder)
    assert file is not None, folder
    kept: dict[tuple[str, str], str] = {}
    for note in sorted(folder.rglob("*.md"))[:NOTES]:
        workspace, *_, name = note.relative_to(folder).parts
        kept[workspace, name] = f"{workspace}-{name}"
        target = notes / "memory" / f"{workspace}-{name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(note.read_bytes())
    questions: list[Question] = []
    for each in read_questions(file):
        wanted = {(each.workspace, Path(place.path).name) for piece in each.evidence for place in piece}
        if wanted and wanted <= kept.keys():
            questions.append((each.text.replace('"', ""), {kept[place] for place in wanted}))
    return random.Random(5).sample(questions, min(ASKED, len(questions)))


def scores(found: Sequence[Sequence[str]], questions: Sequence[Question]) -> dict[str, float]:
    """The metrics over the files that were found for each question, best first, each counted once."""
    rows: list[dict[str, float]] = []
    for names, (_, wanted) in zip(found, questions, strict=True):
        ranks = [rank for rank, name in enumerate(dict.fromkeys(names), 1) if name in wanted]
        within = {depth: sum(rank <= depth for rank in ranks) for depth in (5, 10)}
        rows.append(
            {f"recall@{depth}": within[depth] / len(wanted) for depth in within}
            | {f"recall_any@{depth}": float(within[depth] > 0) for depth in within}
            | {"MRR": 1 / ranks[0] if within[10] else 0.0}
        )
    return {metric: statistics.fmean(row[metric] for row in rows) for metric in rows[0]}
