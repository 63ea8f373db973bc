"""Vectors of tokens travel with the vectors of their texts, and are forgotten with them."""

from contextlib import closing

import numpy as np
import pytest

from memline.producers.actions.backup import back_up, restore
from memline.producers.actions.forget import forget, targets_of_path
from memline.shared.embedders import token_vectors
from memline.shared.index import identities, token_rows
from memline.shared.index_writer import IndexWriter
from tests.support.embedding_server import EmbeddingServer
from tests.support.workspace import Place, note, remote

DIMS = 96
NOTES = 4

Tokens = dict[bytes, bytes]


@pytest.fixture
def server():
    """A provider of vectors with more dimensions than tokens keep."""
    with EmbeddingServer(dims=DIMS) as running:
        yield running


@pytest.fixture
def place(place, server, monkeypatch):
    monkeypatch.setattr("memline.shared.index_writer.vectors.SLICE_ROWS", 5)
    return indexed(place, server, range(NOTES))


@pytest.fixture
def other(tmp_path, server):
    """Another machine: no notes, no index."""
    there = Place(folder=tmp_path / "other")
    there.configure(**remote(server.url))
    return there


def indexed(place, server, notes):
    place.configure(**remote(server.url))
    for number in notes:
        place.write(f"memory/note-{number}.md", note(number))
    place.index()
    return place


def raw_of(digest):
    """Tokens of a text, near to few directions as those of a real model are."""
    shared = np.random.default_rng(7).normal(size=(70, DIMS)) * np.geomspace(8, 0.05, 70)[:, None]
    mixed = np.random.default_rng(list(digest)).normal(size=(24, 70)) @ shared
    return token_vectors.pack(range(0, 240, 10), mixed.astype(np.float32))


def add_tokens(place, *, fit_tokens=100):
    """Give every vector those of its tokens, as a local model does."""
    with closing(IndexWriter.of(place.agent)) as writer, writer.session() as (connection, _):
        row = identities.target(connection)
        assert row is not None
        for row_id, digest in place.rows("SELECT id, text_hash FROM vectors"):
            token_rows.store(connection, row.id, [(row_id, raw_of(digest))])
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(token_rows, "FIT_TOKENS", fit_tokens)
            token_rows.fit(connection, row.id)
    return tokens_of(place)


def tokens_of(place):
    query = "SELECT text_hash, token_vectors.tokens FROM vectors JOIN token_vectors ON vector_id = id"
    return dict(place.rows(query))


def axes_of(place):
    return bytes(place.rows("SELECT coalesce(projection, x'') FROM identities")[0][0])


def test_a_backup_holds_them(place, other, tmp_path):
    before = add_tokens(place)
    (saved,) = back_up([place.agent], tmp_path / "saved.sqlite")
    other.agent.index_path.parent.mkdir(parents=True)
    other.index()

    restore(other.agent, saved.path)

    assert len(before) == 3 * NOTES
    assert (tokens_of(other).keys(), axes_of(other)) == (before.keys(), axes_of(place))


def test_an_index_with_axes_of_its_own_makes_the_vectors_itself(place, other, server, tmp_path):
    add_tokens(place)
    indexed(other, server, range(50, 54))
    own, axes = add_tokens(other), axes_of(other)
    (saved,) = back_up([place.agent], tmp_path / "saved.sqlite")

    restored = restore(other.agent, saved.path)

    assert restored.vectors == 0
    assert (tokens_of(other), axes_of(other)) == (own, axes)


def test_what_is_forgotten_takes_them_along(place):
    before = add_tokens(place)
    texts = place.rows(
        "SELECT text_hash FROM chunks JOIN files ON files.id = file_id WHERE path LIKE '%-1.md'"
    )
    gone = [before[digest] for (digest,) in texts]
    assert len(files_with(place.home, gone)) == 1

    forget(place.agent, targets_of_path(place.agent, "memory/note-1.md"))

    assert files_with(place.home, gone) == []
    assert len(tokens_of(place)) == 3 * NOTES - 3


def files_with(folder, contents):
    """The files that hold the beginning of any of these; a page of SQLite has all of it."""
    return [
        path.name
        for path in sorted(folder.rglob("*"))
        if path.is_file() and any(each[60:260] in path.read_bytes() for each in contents)
    ]
