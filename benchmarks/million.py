"""Vectors by the hundred thousand, made and not embedded: how searching them grows.

An index of each size holds the rows of its vectors and their signs, and no notes. As those of models, vectors
lie around a common mean and spread along few axes most: cosines of two have a deviation of 0.09, which is 3.4
times that of random ones (all-MiniLM on notes: 0.16, three times). Questions are spread alike.
Beside these there are vectors of hashed words, which lie near their mean, with questions of a few words,
which do not; and random ones, of which signs say least.
A million of 1,536 dimensions takes 8.6 GB.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from benchmarks.bench import Bench, Place
from benchmarks.children import run
from benchmarks.figures import Figure, at_least, at_most

if TYPE_CHECKING:
    import numpy as np

    Rows = np.ndarray[Any, np.dtype[np.float32]]

_DIMS = 1_536
_QUESTIONS = 40
_AT_A_TIME = 2_000

#: Searches like a long-lived process, and prints what that took.
_ASK = """
import json, os, statistics, sys, time
from contextlib import closing
from pathlib import Path
os.environ["OPENBLAS_NUM_THREADS"] = "1"
from memline.shared.index import driver, identities
from memline.shared.search.reader import SearchIndex
index, asked, long_lived = Path(sys.argv[1]), Path(sys.argv[2]).read_bytes(), sys.argv[3] == "warm"
questions = [asked[at:at + 4 * {dims}] for at in range(0, len(asked), 4 * {dims})]
search = SearchIndex(index, long_lived=long_lived)
def ask(question):
    with search.snapshot() as connection:
        backend = search.vector_backend(connection, identities.active(connection), question)
        return [cosine for _, cosine in backend.top(200, None)][:10]
began = time.process_time()
ask(questions[0])
loading = time.process_time() - began
def ask_all():
    took, found = [], []
    for question in questions:
        began = time.process_time()
        found.append(ask(question))
        took.append(time.process_time() - began)
    return 1000 * statistics.median(took), found
# The first time the rows of the nearest may be on the disk alone, then the system has them in memory.
(first, _), (again, found) = ask_all(), ask_all()
following = []
with closing(driver.open_writer(index)) as writer:
    insert = "INSERT INTO vectors (identity_id, text_hash, state, embedding) VALUES (?, ?, 'ready', ?)"
    identity = identities.active(writer).id
    for question in questions if long_lived else ():
        before = driver.scalar(writer, "SELECT max(id) FROM vectors")
        with driver.transaction(writer):
            writer.executemany(insert, ((identity, os.urandom(32), question) for _ in range(64)))
        began = time.process_time()
        ask(question)
        following.append(1000 * (time.process_time() - began))
        with driver.transaction(writer):
            writer.execute("DELETE FROM vectors WHERE id > ?", (before,))
        ask(question)
with open("/proc/self/status") as file:
    anonymous = next(int(line.split()[1]) for line in file if line.startswith("RssAnon:"))
following = statistics.median(following or [0])
print(json.dumps(dict(loading=loading, first=first, ms=again, following=following, mb=anonymous / 1024,
    found=found, kind=type(search._matrix).__name__ if long_lived else "SqliteVec")))
"""


def million(bench: Bench) -> list[Figure]:
    """Vectors of 1,536 dimensions by the number: search, memory, disk (`--sizes`; 8.6 GB for a million)."""
    return [figure for size in bench.sizes for kind in _KINDS for figure in _of_size(bench, size, kind)]


def _of_size(bench: Bench, size: int, kind: str) -> list[Figure]:
    needed = 10 * 4 * _DIMS * size // 7
    if shutil.disk_usage(bench.folder).free < needed:
        raise RuntimeError(f"{size:,} vectors need {needed / 1e9:.0f} GB in {bench.folder}")
    place = bench.place(f"vectors-{kind}-{size}", bench.folder, base_url="http://127.0.0.1:9/v1")
    made = place.home / "made.json"
    if not made.exists():
        made.write_text(json.dumps(_make(place, size, kind)))
    built = json.loads(made.read_text())
    index = place.settings().index_path
    warm, one_shot = (
        json.loads(run([sys.executable, "-c", _ASK.format(dims=_DIMS), str(index), *rest]).stdout)
        for rest in ([str(place.home / "questions"), "warm"], [str(place.home / "questions"), "once"])
    )
    what = f"{size:,} x {_DIMS}, {kind}"
    figures = [
        at_most(
            f"warm vector search, {what}",
            warm["ms"],
            80,
            "ms CPU",
            detail=f"{warm['first']:.1f} ms where the rows were not read before;"
            f" {warm['kind']}, {warm['loading']:.1f} s CPU once to load it",
        ),
        at_most(f"the same after 64 new vectors, {what}", warm["following"], 80, "ms CPU"),
        at_most(f"anonymous memory of it, {what}", warm["mb"], 450, "MB"),
        Figure(
            what=f"vector search without numpy, {what}",
            target="",
            measured=f"{one_shot['ms']:.0f} ms CPU",
        ),
        Figure(
            what=f"index, {what}",
            target="",
            measured=f"{index.stat().st_size / 1e6:,.0f} MB",
            detail=f"{built['rows_s']:.0f} s to write the rows, {built['signs_s']:.0f} s for the signs",
        ),
    ]
    for name, answers in (("warm", warm), ("without numpy", one_shot)):
        # By how near they are: of vectors of words many are as near as each other.
        pairs = zip(answers["found"], built["tenth"], strict=True)
        share = sum(each > tenth - 1e-5 for found, tenth in pairs for each in found) / (10 * _QUESTIONS)
        figures.append(at_least(f"recall of the ten nearest, {name}, {what}", share, 0.99, ""))
    return figures


def _make(place: Place, size: int, kind: str) -> dict[str, object]:
    """Write the rows and the signs; returns how long that took, and the tenth cosine of each question."""
    import numpy as np

    from memline.shared.embedders.choice import choose
    from memline.shared.index import driver, identities, meta, signs

    settings = place.settings()
    settings.index_path.unlink(missing_ok=True)
    choice = choose(settings)
    assert choice.identity is not None
    asked = np.concatenate(list(_KINDS[kind](_QUESTIONS, seed=1, is_question=True)))
    (place.home / "questions").write_bytes(asked.tobytes())
    best = np.full((_QUESTIONS, 10), -2.0)
    insert = "INSERT INTO vectors (id, identity_id, text_hash, state, embedding) VALUES (?, ?, ?, 'ready', ?)"
    began = time.monotonic()
    with closing(driver.open_writer(settings.index_path)) as writer:
        with driver.transaction(writer):
            identity = identities.ensure(writer, choice.identity, choice.base_url, 0.0).id
            writer.execute("UPDATE identities SET vector_dims = ?", (_DIMS,))
            meta.put(writer, meta.ACTIVE, identity)
            meta.put(writer, meta.TARGET, identity)
        first = 1
        for rows in _KINDS[kind](size, seed=2):
            ids = np.arange(first, first + len(rows))
            with driver.transaction(writer):
                writer.executemany(
                    insert,
                    (
                        (number, identity, hashlib.sha256(str(number).encode()).digest(), row.tobytes())
                        for number, row in zip(ids.tolist(), rows, strict=True)
                    ),
                )
            first += len(rows)
            best = -np.sort(-np.concatenate([best, asked @ rows.T], axis=1), axis=1)[:, :10]
        written = time.monotonic()
        missing = "SELECT 1 FROM vector_signs WHERE signs IS NULL LIMIT 1 OFFSET ?"
        while driver.scalar(writer, missing, signs.SLICE_ROWS - 1):
            signs.make(writer, identity, _DIMS)
        signed = time.monotonic()
    return {"rows_s": written - began, "signs_s": signed - written, "tenth": best[:, 9].tolist()}


def _of_model(count: int, *, seed: int, is_question: bool = False) -> Iterator[Rows]:
    import numpy as np

    weights = (np.arange(10, 10 + _DIMS) ** -0.65).astype(np.float32)
    for rows in _normal(count, seed):
        yield _unit(rows * weights + 0.5 * weights.mean())


def _of_words(count: int, *, seed: int, is_question: bool = False) -> Iterator[Rows]:
    """Count 210 words of a text, or 2 to 7 rarer ones of a question, by the axes that their hashes name."""
    import numpy as np

    source, words = np.random.default_rng(seed), 60_000
    axes = np.random.default_rng(0).integers(0, _DIMS, words)
    often = np.cumsum(1 / (np.arange(words) + 2.7))
    for first in range(0, count, _AT_A_TIME):
        rows = np.zeros((min(_AT_A_TIME, count - first), _DIMS), np.float32)
        for row in rows:
            drawn = np.searchsorted(often, source.uniform(0, often[-1], 210))
            drawn = drawn[drawn >= 60][: source.integers(2, 8)] if is_question else drawn
            np.add.at(row, axes[drawn], 1)
        yield _unit(rows)


def _random(count: int, *, seed: int, is_question: bool = False) -> Iterator[Rows]:
    return map(_unit, _normal(count, seed))


def _normal(count: int, seed: int) -> Iterator[Rows]:
    import numpy as np

    source = np.random.default_rng(seed)
    for first in range(0, count, _AT_A_TIME):
        yield source.standard_normal((min(_AT_A_TIME, count - first), _DIMS), np.float32)


def _unit(rows: Rows) -> Rows:
    import numpy as np

    unit: Rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")
    return unit


_KINDS = {"model": _of_model, "words": _of_words, "random": _random}


def sizes(text: str) -> list[int]:
    """Read `10k,100k,1M`."""
    units = {"k": 1_000, "m": 1_000_000}
    return [int(each.rstrip("kKmM")) * units.get(each[-1].lower(), 1) for each in text.split(",")]
