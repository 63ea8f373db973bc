"""One-shot searches: the CPU time of `memline search` over that of a Python that does nothing."""

from __future__ import annotations

import json

from benchmarks.bench import DIMS, Bench, Place, unit_vectors
from benchmarks.children import over_bare_ms, run
from benchmarks.corpus import questions
from benchmarks.figures import Figure, at_most

#: Replaces the call of the provider, and nothing else.
VECTOR_AT_HAND = """
from memline.shared.scheduling.questions import QueryEmbedder
def at_hand(self, text, active, state):
    with open({path!r}, "rb") as file:
        return file.read()
QueryEmbedder.embed = at_hand
"""


def keyword(bench: Bench) -> list[Figure]:
    """A keyword search over 10,000 chunks, and over a small workspace; the walk for `stale` is part of it."""
    question = questions(1)[0]
    large = bench.keyword_place(2_000, 5)
    small = bench.keyword_place(100, 5)
    _check(large, question, "keyword")
    took = over_bare_ms(
        {
            "large": large.command("search", question),
            "small": small.command("search", question),
        }
    )
    return [
        at_most(
            "one-shot keyword search, 10,000 chunks in 2,000 files",
            took["large"],
            60,
            "ms CPU",
            detail=question,
        ),
        at_most("one-shot keyword search, 500 chunks in 100 files", took["small"], 60, "ms CPU"),
    ]


def hybrid(bench: Bench) -> list[Figure]:
    """A hybrid search over 10,000 chunks whose query vector needs no request."""
    question = questions(1)[0]
    place = bench.vector_place(2_000, 5)
    vector = place.home / "question.f32"
    vector.write_bytes(next(unit_vectors(1, seed=8)))
    before = VECTOR_AT_HAND.format(path=str(vector))
    _check(place, question, "hybrid", before)
    took = over_bare_ms({"hybrid": place.command("search", question, before=before)})
    return [
        at_most(
            f"one-shot hybrid search, vector at hand, 10,000 chunks x {DIMS}", took["hybrid"], 150, "ms CPU"
        )
    ]


def _check(place: Place, question: str, mode: str, before: str = "") -> None:
    """Make sure that what is timed is a search that finds something in the way meant."""
    done = run(place.command("search", question, "--json", before=before))
    answer = json.loads(done.stdout)
    if answer["mode"] != mode or not answer["results"] or answer["stale"] or answer["warning"]:
        raise RuntimeError(f"not a {mode} search over a fresh index: {done.stdout[:500]}")
