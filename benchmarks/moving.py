"""Export, import, backup and restore of many vectors: peak memory and time of each command."""

from __future__ import annotations

import shutil
from contextlib import closing

from benchmarks.bench import Bench, Place
from benchmarks.children import PEAK, memline, peak_mb, run
from benchmarks.figures import Figure, at_most

_VECTORS, _DIMS, _ROWS = 50_000, 1_536, 200

#: The most that each command may hold.
_LIMIT_MB = 200


def moved(bench: Bench) -> list[Figure]:
    """Peak memory of export, import, backup and restore at 50,000 vectors of 1,536 dimensions."""
    workspace = bench.notes(100, 1)
    for name in ("move-here", "move-there"):
        shutil.rmtree(bench.folder / name, ignore_errors=True)
    here, there = (bench.place(name, workspace) for name in ("move-here", "move-there"))
    _fill(here)
    file, saved = bench.folder / "moved.memline", bench.folder / "saved"
    commands = {
        "export": (*here.options(), "export", file),
        "import": (*there.options(), "import", file),
        "backup": (*there.options(), "backup", saved),
        "restore": (*there.options(), "restore", saved, "--yes"),
    }
    figures = []
    for name, arguments in commands.items():
        done = run(memline(*arguments, before=PEAK))
        figures.append(
            at_most(
                f"memory of memline {name}, {_VECTORS:,} vectors x {_DIMS:,}",
                peak_mb(done),
                _LIMIT_MB,
                "MB",
                detail=f"{done.wall_s:.0f} s",
            )
        )
    return figures


def _fill(place: Place) -> None:
    import numpy as np

    from memline.shared.embedders.protocol import Identity
    from memline.shared.index import identities, vectors
    from memline.shared.index.rows import VectorRow
    from memline.shared.index_writer import IndexWriter

    run(memline(*place.options(), "index"))
    source = np.random.default_rng(7)
    identity = Identity(provider="openai", model="bench")
    with closing(IndexWriter.of(place.settings())) as writer:
        for _ in range(0, _VECTORS, _ROWS):
            made = source.standard_normal((_ROWS, _DIMS)).astype("<f4")
            made /= np.linalg.norm(made, axis=1, keepdims=True)
            rows = [VectorRow(hash=source.bytes(32), vector=vector.tobytes()) for vector in made]
            with writer.transaction() as (connection, now):
                row = identities.take_in(connection, identity, _DIMS, now)
                vectors.take_in(connection, row, rows, now)
