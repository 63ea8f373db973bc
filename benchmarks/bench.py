"""The place where corpora and indexes of a run live, and the settings to reach them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import corpus
from benchmarks.children import memline, run
from memline.shared.embedders.choice import choose
from memline.shared.index import meta
from memline.shared.index.driver import INDEX
from memline.shared.index.rows import VectorRow
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import model_change
from memline.shared.scheduling.leases import Answer
from memline.shared.sync.plan import CHUNKING_VERSION
from tests.support import workspace
from tests.support.workspace import remote

DIMS = 384

#: Vectors stored at a time.
_ROWS = 200


class Place(workspace.Place):
    """One workspace, which several places may share, with a home and a configuration of its own."""

    def __init__(self, folder: Path, notes: Path, memory: dict[str, Any]) -> None:
        self._notes = notes
        super().__init__(folder=folder, memory=memory)

    @property
    def workspace(self) -> Path:
        """The folder of the notes."""
        return self._notes

    def command(self, *args: str, before: str = "") -> list[str]:
        """The command line of `memline ARGS` for this place; `before`: as for `children.memline`."""
        return memline(*self.arguments(*args), before=before)


class Bench:
    """Makes places in a folder; those that are there from an earlier run are used again."""

    def __init__(self, folder: Path) -> None:
        # An index of another version is not the one that is measured.
        self.folder = folder / f"{corpus.VERSION}-{INDEX.version}-{CHUNKING_VERSION}"
        self.folder.mkdir(parents=True, exist_ok=True)

    def notes(self, files: int, sections: int) -> Path:
        """A workspace of so many notes of so many chunks."""
        notes = self.folder / f"notes-{files}x{sections}"
        ready = notes / ".written"
        if not ready.exists():
            corpus.write(notes, files, sections)
            ready.touch()
        return notes

    def place(self, name: str, notes: Path, *, base_url: str = "", **settings: object) -> Place:
        """A home of its own for an index of `notes`; without `base_url` there is no provider.

        `settings`: more keys of `memorySearch.remote`.
        """
        memory = remote(base_url, model="bench", **settings) if base_url else {"provider": "none"}
        (self.folder / name / "home").mkdir(parents=True, exist_ok=True)
        return Place(self.folder / name, notes, memory)

    def keyword_place(self, files: int, sections: int) -> Place:
        """A place whose index holds no vectors, up to date."""
        place = self.place(f"keyword-{files}x{sections}", self.notes(files, sections))
        run(place.command("index"))
        return place

    def vector_place(self, files: int, sections: int) -> Place:
        """A place whose index holds a vector for every chunk; its provider is never asked."""
        name, notes = f"vector-{files}x{sections}", self.notes(files, sections)
        ready = self.folder / name / ".filled"
        if not ready.exists():
            # Keywords by the command, vectors by hand: the provider's part is not what is measured here.
            run(self.place(name, notes).command("index"))
        place = self.place(name, notes, base_url="http://127.0.0.1:9/v1")
        if not ready.exists():
            _fill(place)
            ready.touch()
        return place


def _fill(place: Place) -> None:
    settings = place.agent
    choice = choose(settings)
    assert choice.identity is not None
    with closing(IndexWriter.of(settings)) as writer:
        model_change.use(writer.accounts, choice, time.time())
        meta.put(writer.connection, meta.WORKSPACE, str(place.workspace))
        hashes = [row[0] for row in writer.connection.execute("SELECT text_hash FROM vectors ORDER BY id")]
        made = unit_vectors(len(hashes))
        for first in range(0, len(hashes), _ROWS):
            rows = tuple(VectorRow(hash=one, vector=next(made)) for one in hashes[first : first + _ROWS])
            writer.store_vectors(Answer(identity=choice.identity, vectors=rows))


def unit_vectors(count: int, *, seed: int = 7, dims: int = DIMS) -> Iterator[bytes]:
    """Random vectors of unit length, the same every time."""
    source = np.random.default_rng(seed)
    for _ in range(count):
        vector = source.standard_normal(dims).astype("<f4")
        yield (vector / np.linalg.norm(vector)).astype("<f4").tobytes()


def timed_ms(times: int, call: Callable[[], object]) -> float:
    """Median wall milliseconds of a call."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return 1000 * sorted(taken)[len(taken) // 2]
