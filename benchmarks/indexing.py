"""Index runs: the first one against a loop written by hand, and one that finds nothing to do."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
from contextlib import nullcontext

from benchmarks.bench import Bench, Place
from benchmarks.children import run
from benchmarks.figures import Figure, at_least, at_most
from benchmarks.provider import log_of, serving

_FILES, _SECTIONS = 2_000, 5
_TIMES = 3

#: Counts at the end of a run how many notes it opened, whoever opened them and in whatever way.
_COUNT_OPENS = """
import atexit, os, sys
opened = []
def hook(event, args):
    if event == "open" and not isinstance(args[0], int) and os.fsdecode(args[0]).endswith(".md"):
        opened.append(args[0])
sys.addaudithook(hook)
atexit.register(lambda: print("opened", len(opened), file=sys.stderr))
"""


def first(bench: Bench) -> list[Figure]:
    """The first index of 10,000 chunks, without vectors and with them, provider at zero latency."""
    return [_first(bench, has_vectors=False), _first(bench, has_vectors=True)]


def _first(bench: Bench, *, has_vectors: bool) -> Figure:
    workspace = bench.notes(_FILES, _SECTIONS)
    with serving() if has_vectors else nullcontext("") as base_url:
        by_hand: list[float] = []
        by_memline: list[float] = []
        requests: dict[str, int] = {}
        for _ in range(_TIMES):
            for name, taken in (("by-hand", by_hand), ("by-memline", by_memline)):
                shutil.rmtree(bench.folder / name, ignore_errors=True)
                place = bench.place(name, workspace, base_url=base_url)
                taken.append(_seconds(name, place))
                requests[name] = len(log_of(base_url, clear=True)["requests"]) if base_url else 0
    hand, pipeline = statistics.median(by_hand), statistics.median(by_memline)
    what = f"first index, {_FILES * _SECTIONS:,} chunks, "
    what += "with vectors, provider at zero latency" if has_vectors else "keywords only"
    detail = f"by hand {hand:.2f} s, memline index {pipeline:.2f} s"
    if has_vectors:
        detail += f"; {requests['by-hand']} and {requests['by-memline']} requests"
    return at_least(what, hand / pipeline, 0.7, "x by hand", detail=detail)


def _seconds(name: str, place: Place) -> float:
    if name == "by-hand":
        command = [sys.executable, "-m", "benchmarks.by_hand"]
        done = run([*command, str(place.config), str(place.home), str(place.workspace)])
        return float(json.loads(done.stdout)["seconds"])
    report = json.loads(run(place.command("index", "--json")).stdout)[0]
    if report["failures"] or report["vectors"]["pending"]:
        raise RuntimeError(f"not all was indexed: {report}")
    return float(report["seconds"])


def nothing_changed(bench: Bench) -> list[Figure]:
    """`memline index` over 5,000 files of which none changed: the whole command, and the notes it opens."""
    place = bench.keyword_place(5_000, 1)
    command = place.command("index")
    walls = sorted(run(command).wall_s for _ in range(9))
    counting = place.command("index", before=_COUNT_OPENS)
    opened = _opened(run(counting).stderr)
    # One that changed must be seen by the same count, or a count of none would say nothing.
    changed = next(place.workspace.rglob("*.md"))
    os.utime(changed)
    if _opened(run(counting).stderr) < 1:
        raise RuntimeError("the count of opened notes does not see a note that is read")
    return [
        at_most(
            "nothing changed, 5,000 files",
            walls[len(walls) // 2],
            0.5,
            "s wall",
            detail=f"the whole command; {walls[0]:.2f} to {walls[-1]:.2f} s",
        ),
        at_most("notes opened by it", opened, 0, "notes"),
    ]


def _opened(stderr: str) -> int:
    counts = [line.split()[1] for line in stderr.splitlines() if line.startswith("opened ")]
    return int(counts[-1])
