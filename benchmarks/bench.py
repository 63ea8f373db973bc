"""The place where corpora and indexes of a run live, and the settings to reach them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import corpus
from benchmarks.children import memline, run

if TYPE_CHECKING:
    from memline.shared.config.schema import AgentSettings

DIMS = 384

#: Vectors stored at a time.
_ROWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One workspace with its index."""

    workspace: Path
    home: Path
    config: Path

    def options(self) -> tuple[str | Path, ...]:
        """Global options of the command line that lead here."""
        return ("--config", self.config, "--home", self.home, "--workspace", self.workspace)

    def settings(self) -> AgentSettings:
        """The resolved settings of this place."""
        from memline.shared.config.load import Options, load

        return load(Options(config=self.config, home=self.home, workspace=self.workspace)).agent()


class Bench:
    """Makes places in a folder; those that are there from an earlier run are used again."""

    def __init__(self, folder: Path) -> None:
        from memline.shared.index.driver import INDEX
        from memline.shared.sync.plan import CHUNKING_VERSION

        # An index of another version is not the one that is measured.
        self.folder = folder / f"{corpus.VERSION}-{INDEX.version}-{CHUNKING_VERSION}"
        self.folder.mkdir(parents=True, exist_ok=True)

    def notes(self, files: int, sections: int) -> Path:
        """A workspace of so many notes of so many chunks."""
        workspace = self.folder / f"notes-{files}x{sections}"
        ready = workspace / ".written"
        if not ready.exists():
            corpus.write(workspace, files, sections)
            ready.touch()
        return workspace

    def place(self, name: str, workspace: Path, *, base_url: str = "") -> Place:
        """A home of its own for an index of `workspace`; without `base_url` there is no provider."""
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        memory: dict[str, object] = {"provider": "none"}
        if base_url:
            memory = {"provider": "openai", "model": "bench", "remote": {"baseUrl": base_url}}
        config = home / "config.json5"
        config.write_text(json.dumps({"agents": {"defaults": {"memorySearch": memory}}}))
        return Place(workspace=workspace, home=home, config=config)

    def keyword_place(self, files: int, sections: int) -> Place:
        """A place whose index holds no vectors, up to date."""
        place = self.place(f"keyword-{files}x{sections}", self.notes(files, sections))
        run(memline(*place.options(), "index"))
        return place

    def vector_place(self, files: int, sections: int) -> Place:
        """A place whose index holds a vector for every chunk; its provider is never asked."""
        place = self.place(
            f"vector-{files}x{sections}", self.notes(files, sections), base_url="http://127.0.0.1:9/v1"
        )
        ready = place.home / ".filled"
        if not ready.exists():
            self._fill(place)
            ready.touch()
        return place

    def _fill(self, place: Place) -> None:
        from memline.shared.embedders.choice import choose
        from memline.shared.index import meta
        from memline.shared.index.rows import LearnedCaps, VectorRow
        from memline.shared.index_writer import IndexWriter
        from memline.shared.scheduling import model_change

        # Keywords by the command, vectors by hand: the provider's part is not what is measured here.
        without = self.place(f"{place.home.name}-unfilled", place.workspace)
        run(
            memline("--config", without.config, "--home", place.home, "--workspace", place.workspace, "index")
        )
        settings = place.settings()
        choice = choose(settings)
        assert choice.identity is not None
        with closing(IndexWriter.of(settings)) as writer:
            model_change.use(writer.accounts, choice, time.time())
            meta.put(writer.connection, meta.WORKSPACE, str(place.workspace))
            hashes = [
                row[0] for row in writer.connection.execute("SELECT text_hash FROM vectors ORDER BY id")
            ]
            made = unit_vectors(len(hashes))
            for first in range(0, len(hashes), _ROWS):
                rows = [VectorRow(hash=digest, vector=next(made)) for digest in hashes[first : first + _ROWS]]
                writer.store_vectors(choice.identity, "", rows, LearnedCaps())


def unit_vectors(count: int, *, seed: int = 7) -> Iterator[bytes]:
    """Random vectors of unit length, the same every time."""
    import numpy as np

    source = np.random.default_rng(seed)
    for _ in range(count):
        vector = source.standard_normal(DIMS).astype("<f4")
        yield (vector / np.linalg.norm(vector)).astype("<f4").tobytes()


def timed_ms(times: int, call: object) -> float:
    """Median wall milliseconds of a call without arguments."""
    assert callable(call)
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return 1000 * sorted(taken)[len(taken) // 2]
