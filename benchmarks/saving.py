"""From saving a note to finding it, while `memline up` runs."""

from __future__ import annotations

import subprocess
import time
from contextlib import closing
from sqlite3 import Connection

from benchmarks.bench import Bench, Place
from benchmarks.children import ROOT, environment, run
from benchmarks.figures import Figure, at_most
from memline.shared.index import driver

_TIMES = 5
_PATIENCE_S = 30.0


def save(bench: Bench) -> list[Figure]:
    """Seconds until a new note is found by its words; 1.5 of them are the debounce."""
    place = bench.keyword_place(100, 5)
    with subprocess.Popen(
        place.command("up"),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as up:
        try:
            assert up.stderr is not None
            while "follows" not in (line := up.stderr.readline()):
                if not line:
                    raise RuntimeError("memline up ended before it followed anything")
            with closing(driver.open_reader(place.agent.index_path)) as reader:
                taken = sorted(_save(place, reader, number) for number in range(_TIMES))
        finally:
            up.terminate()
    what = "a note saved -> keyword-searchable, memline up"
    return [at_most(what, taken[_TIMES // 2], 2, "s", detail=f"slowest of {_TIMES}: {taken[-1]:.2f} s")]


def _save(place: Place, reader: Connection, number: int) -> float:
    word = f"zyx{time.time_ns()}"
    note = place.workspace / "memory" / f"saved-{number}.md"
    began = time.monotonic()
    note.write_text(f"# Saved\n\nThe word is {word}.\n")
    while not reader.execute("SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ?", (word,)).fetchone():
        if time.monotonic() - began > _PATIENCE_S:
            raise RuntimeError(f"{note} was not searchable after {_PATIENCE_S:.0f} s")
        time.sleep(0.005)
    taken = time.monotonic() - began
    if note.name not in run(place.command("search", word)).stdout:
        raise RuntimeError(f"memline search does not find {note}")
    return taken
