"""How each part grows with the number of chunks: indexing, searching, storing, sweeping, reporting, queueing.

Notes of five chunks, vectors of 384 dimensions from a provider at zero latency. CPU time throughout: what a
whole command takes with all its threads, or a call in a process that is warm. For the queue the model is
changed: every chunk of the index waits, and some thousands of them are embedded.
"""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import closing

from benchmarks import plots
from benchmarks.bench import Bench, Place, unit_vectors
from benchmarks.children import PEAK, memline, peak_mb, run
from benchmarks.corpus import questions
from benchmarks.figures import Figure, at_most
from benchmarks.fleet_processes import FleetProcesses, wait_until
from benchmarks.one_shot import VECTOR_AT_HAND
from benchmarks.provider import serving

_SECTIONS = 5
_QUESTIONS = 40

#: Vectors that have come through the queue when it begins to be measured, and when that ends.
_QUEUED = 1_000, 8_000

#: Asks, stores and keeps order in one long-lived process; prints milliseconds of CPU, medians.
_WARM = """
import json, statistics, sys, time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from memline.shared.config.load import Options, load
from memline.shared.index.rows import Chunk, FileRow
from memline.shared.scheduling.questions import QueryEmbedder
from memline.shared.search.request import SearchRequest
from memline.shared.findings.answerer import Answerer
from memline.shared.index_writer import IndexWriter
vector, asked = bytes.fromhex(sys.argv[4]), json.loads(sys.argv[5])
QueryEmbedder.embed = lambda self, text, active, state: vector
config, home, workspace = map(Path, sys.argv[1:4])
settings = load(Options(config=config, home=home, workspace=workspace)).agent()
def median(calls):
    took = []
    for call in calls:
        began = time.process_time()
        call()
        took.append(time.process_time() - began)
    return 1000 * statistics.median(took)
found = {}
for mode in ("keyword", "hybrid"):
    provider = "none" if mode == "keyword" else settings.memory.provider
    mine = replace(settings, memory=replace(settings.memory, provider=provider))
    with closing(Answerer(mine, long_lived=True)) as memory:
        assert memory.ask(SearchRequest(query=asked[0])).mode == mode
        found[mode] = median([lambda q=q: memory.ask(SearchRequest(query=q)) for q in asked])
def note(number):
    chunks = tuple(Chunk(start_line=n, end_line=n, text=f"{number} {asked[n]}") for n in range(5))
    at = time.time_ns()
    return FileRow(path="memory/grown.md", source="memory", outcome="indexed", size=1, mtime_ns=at,
        hash=str(number), observed_ns=at, chunks=chunks, chunking="c1")
with closing(IndexWriter.of(settings)) as writer:
    writer.sweep()
    found["store"] = median([lambda n=n: writer.store_file(note(n)) for n in range(15)])
    found["sweep"] = median([writer.sweep] * 9)
print(json.dumps(found))
"""


def growth(bench: Bench) -> list[Figure]:
    """What grows with the index, at 10,000, 100,000 and a million chunks; draws docs/images/growth-*.svg."""
    sizes = bench.sizes
    measured = {}
    for size in sizes:
        kept = bench.folder / f"growth-{size}.json"
        if not kept.exists():
            kept.write_text(json.dumps(_measure(bench, size)))
        measured[size] = {name: (unit, value) for name, (unit, value) in json.loads(kept.read_text()).items()}
    plots.growth(measured)
    figures = []
    first = measured[sizes[0]]
    for name, (unit, value) in first.items():
        values = {size: found[name][1] for size, found in measured.items()}
        detail = ", ".join(f"{size:,}: {each:.4g} {unit}" for size, each in values.items())
        if len(sizes) == 1 or value <= 0:
            figures.append(Figure(what=f"growth of {name}", target="", measured=detail))
            continue
        times = sizes[-1] / sizes[0]
        share = values[sizes[-1]] / value
        figures.append(
            # A fifth more than linear is noise on a shared machine.
            at_most(f"growth of {name}, {times:g} times the chunks", share, 1.2 * times, "x", detail=detail)
        )
    return figures


def _measure(bench: Bench, size: int) -> dict[str, tuple[str, float]]:
    """Return name -> (unit, value) for an index of `size` chunks."""
    workspace = bench.notes(size // _SECTIONS, _SECTIONS)
    name = f"growth-{size}"
    shutil.rmtree(bench.folder / name, ignore_errors=True)
    with serving() as base_url:
        place = bench.place(name, workspace, base_url=base_url)
        made = run(memline(*place.options(), "index", before=PEAK))
        unchanged = run(memline(*place.options(), "index"))
    found = {
        "index": ("s CPU", made.cpu_s),
        "no-change run": ("s CPU", unchanged.cpu_s),
        "memory of index": ("MB", peak_mb(made)),
        **_searched(place),
    }
    with serving() as base_url:
        place = bench.place(name, workspace, base_url=base_url)
        return found | _queued(place)


def _searched(place: Place) -> dict[str, tuple[str, float]]:
    asked = questions(_QUESTIONS)
    arguments = (str(place.config), str(place.home), str(place.workspace), next(unit_vectors(1)).hex())
    warm = json.loads(run([sys.executable, "-c", _WARM, *arguments, json.dumps(asked)]).stdout)
    index = place.settings().index_path
    vector = place.home / "question.f32"
    vector.write_bytes(next(unit_vectors(1, seed=8)))
    at_hand = VECTOR_AT_HAND.format(path=str(vector))
    return {
        "disk": ("MB", sum(each.stat().st_size for each in index.parent.iterdir()) / 1e6),
        "keyword search, warm": ("ms CPU", warm["keyword"]),
        "hybrid search, warm": ("ms CPU", warm["hybrid"]),
        "hybrid search, one-shot": ("ms CPU", 1000 * _command(place, "search", asked[1], before=at_hand)),
        "store of a note": ("ms CPU", warm["store"]),
        "sweep": ("ms CPU", warm["sweep"]),
        "status": ("ms CPU", 1000 * _command(place, "status")),
    }


def _queued(place: Place) -> dict[str, tuple[str, float]]:
    """Change the model, and let a fleet embed the first thousands of what waits."""
    if not shutil.which("redis-server"):
        return {}
    from memline.shared.embedders.choice import choose
    from memline.shared.index import driver, identities
    from memline.shared.index_writer import IndexWriter

    place.config.write_text(place.config.read_text().replace('"bench"', '"bench-2"'))
    settings = place.settings()
    choice = choose(settings)
    with closing(IndexWriter.of(settings)) as writer:
        writer.retarget(choice.identity, choice.base_url)
    with closing(driver.open_reader(settings.index_path)) as reader, FleetProcesses(place) as fleet:
        target = identities.target(reader)
        assert target is not None
        count = "SELECT count(*) FROM vectors WHERE identity_id = ? AND active = 1 AND state = 'ready'"
        first, last = _QUEUED

        def stored(wanted: int) -> None:
            wait_until(lambda: driver.scalar(reader, count, target.id) >= wanted, f"{wanted} vectors")

        fleet.start("embed", threads=2)
        fleet.start("store")
        stored(first)
        before = fleet.cpu_s()
        stored(last)
        took = fleet.cpu_s() - before
        depth = sorted(_cpu_ms(fleet, "queue") for _ in range(5))[2]
        return {
            "queue, a vector embedded and stored": ("ms CPU", 1000 * took / (last - first)),
            "queue, memory of Redis": ("MB", fleet.peak_memory() / 2**20),
            "memline queue": ("ms CPU", depth),
        }


def _cpu_ms(fleet: FleetProcesses, *arguments: str) -> float:
    return 1000 * run(memline(*arguments), variables=fleet.environment()).cpu_s


def _command(place: Place, *arguments: str, before: str = "") -> float:
    """Median CPU seconds of five runs."""
    return sorted(run(memline(*place.options(), *arguments, before=before)).cpu_s for _ in range(5))[2]
