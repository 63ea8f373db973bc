import re
from datetime import datetime
from zlib import crc32

import numpy as np
import pytest

from memline.shared.config.schema import Query
from memline.shared.embedders import token_vectors
from memline.shared.embedders.protocol import LateVector
from memline.shared.index import identities
from memline.shared.index.rows import FileRow, VectorRow
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling.leases import Answer
from memline.shared.search.request import SearchRequest
from memline.shared.search.search_index import SearchIndex
from memline.shared.search.service import retrieve
from memline.shared.sources.chunking import split
from memline.shared.sources.dates import day_of_path
from memline.shared.sources.markdown import outline
from tests.support.clock import ManualClock
from tests.support.fake_embedder import FakeEmbedder
from tests.support.index_rows import retarget

DIMS = 32


class Notes:
    """An index filled from texts, with vectors of the fake embedder when asked for."""

    def __init__(self, path, clock):
        self.path = path
        self.clock = clock
        self.embedder = FakeEmbedder(dims=DIMS)
        self.writer = IndexWriter(path, clock=clock)
        #: The identity of the vectors that are searched.
        self.active = None

    def add(self, path, text, *, source="memory", mtime=0, tags="", names="", day=""):
        self.clock.advance(1)
        lines = text.split("\n")
        chunks = tuple(split(lines, outline(lines), max_tokens=400, overlap_tokens=80))
        self.writer.store_file(
            FileRow(
                path=path,
                source=source,
                outcome="indexed" if chunks else "empty",
                size=len(text),
                mtime_ns=int(mtime * 1e9),
                hash=str(hash(text)),
                observed_ns=self.clock.now_ns(),
                chunks=chunks,
                chunking="c1",
                tags=tags,
                names=names,
                day=day or str(day_of_path(path) or ""),
            )
        )

    def embed(self, *, has_tokens=False):
        """Give every text its vector, and those of its tokens."""
        retarget(self.writer, self.embedder.identity)
        while requests := self.writer.lease(self.embedder.caps, credits=8, only_full=False):
            for request in requests:
                found = self.embedder.embed_documents([row.text for row in request.texts])
                rows = tuple(
                    VectorRow(hash=row.hash, vector=vector, tokens=tokens_of(row.text) if has_tokens else b"")
                    for row, vector in zip(request.texts, found, strict=True)
                )
                answer = Answer(identity=request.identity, lease=request.lease, vectors=rows)
                self.writer.store_vectors(answer)
        self.active = identities.active(self.writer.connection)

    def question(self, text):
        return self.embedder.embed_query(text, timeout_s=1)

    def vector(self, connection, active):
        """Return what embeds a question."""
        return self.question

    def vector_with_tokens(self, connection, active):
        return lambda text: LateVector(self.question(text), tokens_of(text))


def tokens_of(text):
    """Token vectors of a text: a direction of its own for every word."""
    words = [(match.start(), match[0].lower()) for match in re.finditer(r"\w+", text)]
    rows = np.array([np.random.default_rng(crc32(word.encode())).normal(size=64) for _, word in words])
    return token_vectors.pack([place for place, _ in words], rows.reshape(-1, 64).astype(np.float32))


def paths(index, question, **options):
    """The paths of the hits, best first."""
    return [hit.path for hit in ask(index, question, **options).hits]


def ask(index, question, *, max_results=10, settings=None, embedder=None, clock=None, day="", **options):
    if day:
        clock = ManualClock(datetime.fromisoformat(f"{day}T12:00").timestamp())
    request = SearchRequest(query=question, max_results=max_results, **options)
    return retrieve(index, request, settings or Query(), embedder=embedder, clock=clock or ManualClock())


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def notes(tmp_path, clock):
    made = Notes(tmp_path / "index.sqlite", clock)
    yield made
    made.writer.close()


@pytest.fixture
def opened(notes):
    """Open the index of `notes` for searching."""
    indexes = []

    def open_index(**options):
        indexes.append(SearchIndex(notes.path, **options))
        return indexes[-1]

    yield open_index
    for index in indexes:
        index.close()


@pytest.fixture
def index(opened):
    return opened()
