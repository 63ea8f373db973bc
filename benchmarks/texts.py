"""Texts by the hundred thousand, made and not read from files: how keyword search grows.

400,000 pseudo-words, drawn as those of a language are (Zipf, 1 / (rank + 2.7) ** 1.07), 60 to 240 a chunk.
Questions have two to eight words of all frequencies: their ranks are spread evenly over the orders of
magnitude from 20 to 100,000. A million chunks take 2.3 GB and five minutes to write. Of each list it is also
checked that no chunk with more of the words stands behind one with fewer of them, or is left out.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks import corpus
from benchmarks.bench import Bench
from benchmarks.children import run
from benchmarks.figures import Figure, at_most

_VOCABULARY = 400_000
_AT_A_TIME = 5_000
_CHUNKS_A_FILE = 10
_QUESTIONS = 60

#: Asks as a long-lived process does: words it was not asked for, then the same twice more, then FTS5 alone.
_ASK = """
import json, sys, time
from pathlib import Path
from memline.shared.config.schema import Query
from memline.shared.search.forms import COMMON
from memline.shared.search.keyword import by_keyword
from memline.shared.search.query import analyse, any_of
from memline.shared.search.reader import SearchIndex
from memline.shared.search.request import SearchRequest
from memline.shared.search.retrieve import retrieve
index, asked = SearchIndex(Path(sys.argv[1]), long_lived=True), json.loads(sys.argv[2])
plain = (
    "SELECT rowid, bm25(chunks_fts) AS rank FROM chunks_fts"
    " WHERE chunks_fts MATCH ? ORDER BY rank LIMIT 200"
)
def search(question):
    retrieve(index, SearchRequest(query=question), Query())
def fts(question):
    with index.snapshot() as connection:
        match = " OR ".join('"' + word + '"' for word in question.split())
        connection.execute(plain, (match,)).fetchall()
def timed(call, questions):
    took = []
    for question in questions:
        began = time.process_time()
        call(question)
        took.append(1000 * (time.process_time() - began))
    took.sort()
    return took[len(took) // 2], took[len(took) * 95 // 100]
def is_wrong(question):
    with index.snapshot() as connection:
        hits = by_keyword(connection, analyse(question), None, 200, index.postings).hits[:10]
        found = "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ?"
        holders = {}
        for term in analyse(question).terms:
            rows = connection.execute(found, (any_of((term.match, *term.spellings)),)).fetchall()
            if len(rows) <= COMMON and term.halves:
                # A rare one is also held where it is written as two words.
                rows += connection.execute(found, (any_of(term.halves),)).fetchall()
            for (chunk_id,) in rows:
                holders.setdefault(chunk_id, set()).add(term.label)
    held = [holders.pop(hit.chunk_id, set()) for hit in hits]
    others = {frozenset(words) for words in holders.values()}
    return any(some < more for at, some in enumerate(held) for more in (*held[at:], *others))
fts(asked[0])
first, _, again = (timed(search, asked) for _ in range(3))
with open("/proc/self/status") as file:
    anonymous = next(int(line.split()[1]) for line in file if line.startswith("RssAnon:"))
print(json.dumps(dict(first=first, again=again, plain=timed(fts, asked[:20]), mb=anonymous / 1024,
    wrong=sum(map(is_wrong, asked)))))
"""


def words(bench: Bench) -> list[Figure]:
    """Warm keyword search over 10,000 chunks, 100,000 and a million, words of all frequencies."""
    figures: list[Figure] = []
    for size in bench.sizes:
        index = bench.folder / f"texts-{size}.sqlite"
        made = bench.folder / f"texts-{size}.json"
        if not made.exists():
            began = time.monotonic()
            _make(index, size)
            made.write_text(json.dumps(time.monotonic() - began))
        asked = json.dumps(_questions())
        took = json.loads(run([sys.executable, "-c", _ASK, str(index), asked]).stdout)
        what = f"{size:,} chunks"
        for name, (p50, p95) in (("again", took["again"]), ("first time", took["first"])):
            figures.append(
                at_most(
                    f"warm keyword search, {what}, words asked {name}, p50",
                    p50,
                    60,
                    "ms CPU",
                    detail=f"p95 {p95:.1f} ms, {took['mb']:.0f} MB; FTS5's bm25 alone"
                    f" {took['plain'][0]:.1f} and {took['plain'][1]:.1f} ms",
                )
            )
            figures.append(at_most(f"the same, p95, {what}, {name}", p95, 200, "ms CPU"))
        figures.append(
            at_most(f"lists in which more of the words are behind, {what}", took["wrong"], 0, "of 60")
        )
        figures.append(
            Figure(
                what=f"index of texts, {what}",
                target="",
                measured=f"{index.stat().st_size / 1e6:,.0f} MB",
                detail=f"{json.loads(made.read_text()):.0f} s to write it",
            )
        )
    return figures


def _questions() -> list[str]:
    chance, known = random.Random(4), _vocabulary()
    asked = []
    for _ in range(_QUESTIONS):
        ranks = {int(math.exp(chance.uniform(math.log(20), math.log(100_000)))) for _ in range(8)}
        asked.append(" ".join(known[rank] for rank in list(ranks)[: chance.randint(2, 8)]))
    return asked


def _vocabulary() -> list[str]:
    spelling = random.Random(0)
    found: dict[str, None] = {}
    while len(found) < _VOCABULARY:
        # The common ones are short.
        syllables = spelling.choice((1, 2, 2, 3, 3, 4) if len(found) < 20_000 else (3, 4, 4, 5))
        found[corpus.spell(spelling, syllables)] = None
    return list(found)


def _make(path: Path, size: int) -> None:
    """Write an index of so many chunks."""
    from memline.shared.index import driver, full_text

    path.unlink(missing_ok=True)
    with closing(driver.open_writer(path)) as writer:
        first = 1
        for texts in _texts(size):
            ids = range(first, first + len(texts))
            first += len(texts)
            files = [
                (each, f"memory/{each // 200:04}/note-{each:06}.md")
                for each in ids
                if each % _CHUNKS_A_FILE == 1
            ]
            with driver.transaction(writer):
                writer.executemany(
                    "INSERT INTO files (id, path, source, size, mtime_ns, hash, observed_ns, outcome)"
                    " VALUES (?, ?, 'memory', 1, 1, '', 1, 'indexed')",
                    files,
                )
                writer.executemany(
                    "INSERT INTO chunks"
                    " (id, file_id, ordinal, start_line, end_line, heading, text, grams, text_hash)"
                    " VALUES (?1, ?1 - (?1 - 1) % ?2, (?1 - 1) % ?2, 1, 1, '', ?3, '', CAST(?1 AS BLOB))",
                    ((each, _CHUNKS_A_FILE, text) for each, text in zip(ids, texts, strict=True)),
                )
                for table, columns in full_text.FULL_TEXT.items():
                    writer.execute(
                        f"INSERT INTO {table} (rowid, {columns})"
                        f" SELECT id, {columns} FROM chunk_documents WHERE id BETWEEN ? AND ?",
                        (ids[0], ids[-1]),
                    )
        # As after a first index.
        full_text.merge_in_slices(writer)
        full_text.store_common_words(writer)


def _texts(count: int) -> Iterator[list[str]]:
    import numpy as np

    known = np.array(_vocabulary(), dtype=object)
    shares = np.cumsum((np.arange(len(known)) + 2.7) ** -1.07)
    source = np.random.default_rng(1)
    for first in range(0, count, _AT_A_TIME):
        lengths = source.integers(60, 240, min(_AT_A_TIME, count - first))
        drawn = known[np.searchsorted(shares, source.random(int(lengths.sum())) * shares[-1])]
        ends = np.cumsum(lengths)
        yield [" ".join(drawn[end - length : end]) for end, length in zip(ends, lengths, strict=True)]
