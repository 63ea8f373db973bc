"""From saving a note to finding it, while `memline up` runs."""

from __future__ import annotations

import subprocess
import time
from contextlib import closing
from typing import TYPE_CHECKING

from benchmarks.bench import Bench, Place
from benchmarks.children import ROOT, environment, memline, run
from benchmarks.figures import Figure, at_most

if TYPE_CHECKING:
    from sqlite3 import Connection

_TIMES = 5
_PATIENCE_S = 30.0


def save(bench: Bench) -> list[Figure]:
    """Seconds until a new note is found by its words; 1.5 of them are the debounce."""
    place = bench.keyword_place(100, 5)
    return [_figure("a note saved -> keyword-searchable, memline up", place, imports=False)]


def save_during_import(bench: Bench) -> list[Figure]:
    """The same while `memline up` reads 20,000 chunks for the first time."""
    place = bench.place("import-2500x8", bench.notes(2_500, 8))
    place.settings().index_path.unlink(missing_ok=True)
    return [_figure("a note saved -> found, while 20,000 chunks are imported", place, imports=True)]


def _figure(what: str, place: Place, *, imports: bool) -> Figure:
    from memline.shared.index import driver

    taken: list[float] = []
    with subprocess.Popen(
        memline(*place.options(), "up"),
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
            with closing(driver.open_reader(place.settings().index_path)) as reader:
                for number in range(_TIMES):
                    taken.append(_save(place, reader, number, is_busy=imports))
                    if imports and not _is_importing(reader):
                        # This one was found after its end.
                        taken.pop()
                        break
        finally:
            up.terminate()
    if not taken:
        raise RuntimeError("the import ended before a note was found")
    middle = sorted(taken)[len(taken) // 2]
    return at_most(what, middle, 2, "s", detail=f"slowest of {len(taken)}: {max(taken):.2f} s")


def _is_importing(reader: Connection) -> bool:
    return reader.execute("SELECT 1 FROM job_files LIMIT 1").fetchone() is not None


def _save(place: Place, reader: Connection, number: int, *, is_busy: bool) -> float:
    word = f"zyx{time.time_ns()}"
    note = place.workspace / "memory" / f"saved-{number}.md"
    began = time.monotonic()
    note.write_text(f"# Saved\n\nThe word is {word}.\n")
    while not reader.execute("SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ?", (word,)).fetchone():
        if time.monotonic() - began > _PATIENCE_S:
            raise RuntimeError(f"{note} was not searchable after {_PATIENCE_S:.0f} s")
        time.sleep(0.005)
    taken = time.monotonic() - began
    if not is_busy and note.name not in run(memline(*place.options(), "search", word)).stdout:
        raise RuntimeError(f"memline search does not find {note}")
    return taken
