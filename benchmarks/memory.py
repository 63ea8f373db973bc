"""Resident memory of the process that indexes and of the one that answers."""

from __future__ import annotations

import shutil
import sys

from benchmarks.bench import DIMS, Bench, unit_vectors
from benchmarks.children import PEAK, peak_mb, run
from benchmarks.corpus import questions
from benchmarks.figures import Figure, at_most
from benchmarks.provider import serving

_FILES, _SECTIONS = 20_000, 5

_ASK = """
from pathlib import Path
from memline.shared.config.load import Options, load
from memline.shared.scheduling.questions import QueryEmbedder
from memline.shared.search.request import SearchRequest
from memline.shared.findings.answerer import Answerer
QueryEmbedder.embed = lambda self, text, active, state: bytes.fromhex({vector!r})
options = Options(config=Path(sys.argv[1]), home=Path(sys.argv[2]), workspace=Path(sys.argv[3]))
memory = Answerer(load(options).agent(), long_lived=True)
for question in {questions!r}:
    answer = memory.ask(SearchRequest(query=question))
    assert answer.mode == "hybrid" and answer.hits, answer
"""


def resident(bench: Bench) -> list[Figure]:
    """Peak memory at 100,000 chunks: a first index, and a query process."""
    chunks = _FILES * _SECTIONS
    workspace = bench.notes(_FILES, _SECTIONS)
    shutil.rmtree(bench.folder / "resident", ignore_errors=True)
    with serving() as base_url:
        place = bench.place("resident", workspace, base_url=base_url)
        done = run(place.command("index", before=PEAK))
    indexing = peak_mb(done)
    code = PEAK + _ASK.format(vector=next(unit_vectors(1)).hex(), questions=questions(10))
    asked = run([sys.executable, "-c", code, str(place.config), str(place.home), str(place.workspace)])
    return [
        at_most(
            f"memory of memline index, {chunks:,} chunks x {DIMS}",
            indexing,
            150,
            "MB",
            detail=f"chunk, store and embed in one process; {done.wall_s:.0f} s",
        ),
        at_most(f"memory of a query process, {chunks:,} chunks x {DIMS}", peak_mb(asked), 150, "MB"),
    ]
