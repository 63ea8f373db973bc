"""A backlog by batch: how many jobs it makes, and what the rows of batches cost the store worker.

The whole run is one process, as `memline index` is, against the server of the tests with vectors that cost
nothing. The store worker's CPU time is measured on its own thread, that of batches within it by wrapping the
methods it calls for them.
"""

from __future__ import annotations

import json
import sys
from math import ceil
from urllib.request import urlopen

from benchmarks.batch_memory import provider
from benchmarks.bench import Bench
from benchmarks.children import PEAK, peak_mb, run
from benchmarks.figures import Figure, at_most

#: Notes and sections of one text each: 20,000 texts.
_FILES, _SECTIONS = 2_000, 10
_DIMS = 384

#: Rows of a batch at most, by the provider's rules.
_CAP = 50_000

_INDEX = (
    PEAK
    + """
import json, sys, threading, time
import dramatiq
from dramatiq.middleware import Middleware
spent = {"store": 0.0, "batches": 0.0}
depth = threading.local()

def timed(name, call):
    def wrapped(*args, **kwargs):
        if getattr(depth, name, False):
            return call(*args, **kwargs)
        setattr(depth, name, True)
        began = time.thread_time()
        try:
            return call(*args, **kwargs)
        finally:
            spent[name] += time.thread_time() - began
            setattr(depth, name, False)
    return wrapped

from memline.shared.index import batches
from memline.shared.index_writer import IndexWriter
for name in ("plan_batches", "take_due_batches", "sweep_batches"):
    setattr(IndexWriter, name, timed("batches", getattr(IndexWriter, name)))
batches.count = timed("batches", batches.count)

from memline.shared.queue import broker
broker.in_process()
from memline.workers import context, store
for name in ("store_files", "store_vectors", "embed_failed", "sweep"):
    actor = getattr(store, name)
    actor.fn = timed("store", actor.fn)

from pathlib import Path
from memline.producers.runs.index_run import bring_up_to_date
from memline.shared.config.load import Options, load
found = load(Options(config=Path(sys.argv[1]), home=Path(sys.argv[2]), workspace=Path(sys.argv[3])))
began = time.monotonic()
report = bring_up_to_date(found.settings, found.agent())
print(json.dumps({**spent, "seconds": time.monotonic() - began, "report": report.to_json()}))
"""
)


def backfill(bench: Bench) -> list[Figure]:
    """A first index of 20,000 texts by batch: jobs, texts sent twice, the store worker's time for batches."""
    with provider(_DIMS) as base_url:
        place = bench.place("batch-backfill", bench.notes(_FILES, _SECTIONS), base_url=base_url)
        settings = json.loads(place.config.read_text())
        remote = settings["agents"]["defaults"]["memorySearch"]["remote"]
        remote["batch"] = {"enabled": True, "pollIntervalMs": 200}
        place.config.write_text(json.dumps(settings))
        ended = run([sys.executable, "-c", _INDEX, str(place.config), str(place.home), str(place.workspace)])
        with urlopen(f"{base_url.removesuffix('/v1')}/log") as answer:
            log = json.loads(answer.read())
    told = json.loads(ended.stdout)
    texts = told["report"]["vectors"]["embedded"]
    jobs = log["batch"]["jobs"]
    assert texts >= _FILES * _SECTIONS, told
    assert log["requests"] == [], "a text went out in a request"
    share = 100 * told["batches"] / told["store"]
    return [
        at_most(
            f"jobs for {texts:,} texts",
            len(jobs),
            ceil(texts / _CAP),
            "jobs",
            detail=f"{told['seconds']:.1f} s in all; calls {log['batch']['calls']}",
        ),
        at_most("texts sent more than once", sum(job["rows"] for job in jobs) - texts, 0, "texts"),
        at_most(
            "the store worker's time for batches",
            share,
            5,
            "%",
            detail=f"{1000 * told['batches']:.0f} ms of {told['store']:.1f} s CPU",
        ),
        Figure(what="memory of the process at its peak", target="", measured=f"{peak_mb(ended):.0f} MB"),
    ]
