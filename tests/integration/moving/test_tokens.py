"""Vectors of tokens travel with the vectors of their texts, and are forgotten with them."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from memline.producers.actions.backup import back_up, backups_at, restore
from memline.producers.actions.forget import forget
from memline.producers.actions.forget_targets import targets_of_path
from memline.producers.bridges.export import export, take_in
from memline.shared.embedders import token_vectors
from memline.shared.index import driver, identities, token_rows
from memline.shared.index.archive import ArchiveRefused
from memline.shared.index_writer import IndexWriter
from tests.support.embedding_server import EmbeddingServer
from tests.support.workspace import Place, note, remote

DIMS = 96
NOTES = 4

Tokens = dict[bytes, bytes]


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    """A provider of vectors with more dimensions than tokens keep."""
    with EmbeddingServer(dims=DIMS) as running:
        yield running


@pytest.fixture
def place(place: Place, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr("memline.producers.bridges.export.SLICE_ROWS", 5)
    return indexed(place, server, range(NOTES))


@pytest.fixture
def other(tmp_path: Path, server: EmbeddingServer) -> Place:
    """Another machine: no notes, no index."""
    there = Place(folder=tmp_path / "other")
    there.configure(**remote(server.url))
    return there


def indexed(place: Place, server: EmbeddingServer, notes: range) -> Place:
    place.configure(**remote(server.url))
    for number in notes:
        place.write(f"memory/note-{number}.md", note(number))
    place.index()
    return place


def raw_of(digest: bytes) -> bytes:
    """Tokens of a text, near to few directions as those of a real model are."""
    shared = np.random.default_rng(7).normal(size=(70, DIMS)) * np.geomspace(8, 0.05, 70)[:, None]
    mixed = np.random.default_rng(list(digest)).normal(size=(24, 70)) @ shared
    return token_vectors.pack(range(0, 240, 10), mixed.astype(np.float32))


def add_tokens(place: Place, *, fit_tokens: int = 100) -> Tokens:
    """Give every vector those of its tokens, as a local model does."""
    with closing(IndexWriter.of(place.agent)) as writer, writer.session() as (connection, _):
        row = identities.target(connection)
        assert row is not None
        for row_id, digest in connection.execute("SELECT id, text_hash FROM vectors").fetchall():
            token_rows.store(connection, row.id, [(row_id, raw_of(digest))])
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(token_rows, "FIT_TOKENS", fit_tokens)
            token_rows.reduce(connection, row.id)
    return tokens_of(place)


def tokens_of(place: Place) -> Tokens:
    query = "SELECT text_hash, token_vectors.tokens FROM vectors JOIN token_vectors ON vector_id = id"
    return dict(place.rows(query))


def axes_of(place: Place) -> bytes:
    return bytes(place.rows("SELECT coalesce(projection, x'') FROM identities")[0][0])


@pytest.mark.parametrize("fit_tokens", [100, 10**9], ids=["reduced", "all dimensions"])
def test_they_come_with_an_export_as_they_are(
    place: Place, other: Place, tmp_path: Path, fit_tokens: int
) -> None:
    before = add_tokens(place, fit_tokens=fit_tokens)

    export(place.agent, tmp_path / "moved.memline")
    take_in(other.agent, tmp_path / "moved.memline")
    other.index()
    take_in(other.agent, tmp_path / "moved.memline")

    assert len(before) == 3 * NOTES
    assert tokens_of(other) == before
    assert axes_of(other) == axes_of(place)
    assert bool(axes_of(place)) == (fit_tokens == 100)


def test_vectors_that_came_without_them_get_them_later(place: Place, other: Place, tmp_path: Path) -> None:
    export(place.agent, tmp_path / "before.memline")
    before = add_tokens(place)
    export(place.agent, tmp_path / "after.memline")
    take_in(other.agent, tmp_path / "before.memline")

    moved = take_in(other.agent, tmp_path / "after.memline")

    assert (moved.vectors, moved.known_vectors) == (0, 3 * NOTES)
    assert tokens_of(other) == before


def test_an_index_with_axes_of_its_own_brings_them_to_these(
    place: Place, other: Place, server: EmbeddingServer, tmp_path: Path
) -> None:
    add_tokens(place)
    indexed(other, server, range(50, 54))
    own = add_tokens(other)
    axes = axes_of(other)
    assert axes != axes_of(place)

    export(place.agent, tmp_path / "moved.memline")
    take_in(other.agent, tmp_path / "moved.memline")

    assert axes_of(other) == axes
    found = tokens_of(other)
    assert {digest: found[digest] for digest in own} == own
    for digest in tokens_of(place):
        exact = token_vectors.unpack(token_vectors.project(raw_of(digest), axes))[1].astype(float)
        came = token_vectors.unpack(found[digest])[1].astype(float)
        cosines = (exact * came).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(came, axis=1)
        assert cosines.mean() > 0.9


def test_axes_that_are_found_between_two_attempts_of_an_export_go_along(
    place: Place, other: Place, tmp_path: Path
) -> None:
    class Stopped(Exception):
        pass

    def stop(_: int) -> None:
        raise Stopped

    add_tokens(place, fit_tokens=10**9)
    with pytest.raises(Stopped):
        export(place.agent, tmp_path / "moved.memline", on_progress=stop)
    reduced = add_tokens(place)

    export(place.agent, tmp_path / "moved.memline")
    take_in(other.agent, tmp_path / "moved.memline")

    assert tokens_of(other) == reduced


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE vectors SET tokens = zeroblob(length(tokens)) WHERE rowid = 2",
        "UPDATE vectors SET tokens = NULL WHERE rowid = 2",
        "UPDATE identities SET projection = zeroblob(length(projection))",
        "UPDATE identities SET projection = NULL",
    ],
)
def test_an_export_with_other_tokens_than_were_written_is_refused(
    place: Place, other: Place, tmp_path: Path, statement: str
) -> None:
    add_tokens(place)
    file = tmp_path / "moved.memline"
    export(place.agent, file)
    with closing(driver.library().connect(str(file), isolation_level=None)) as connection:
        connection.execute(statement)

    with pytest.raises(ArchiveRefused):
        take_in(other.agent, file)

    assert not other.index_path.exists()


def test_a_restore_keeps_those_that_were_made_since(place: Place, tmp_path: Path) -> None:
    back_up([place.agent], tmp_path / "saved")
    place.write("memory/later.md", note(9))
    place.index()
    before = add_tokens(place)
    (saved,) = backups_at(tmp_path / "saved", [place.agent], place.agent)

    restore(saved, place.agent)

    assert tokens_of(place) == before
    assert axes_of(place)


def test_a_backup_holds_them(place: Place, tmp_path: Path) -> None:
    before = add_tokens(place)
    axes = axes_of(place)
    back_up([place.agent], tmp_path / "saved")
    place.index_path.unlink()
    (saved,) = backups_at(tmp_path / "saved", [place.agent], place.agent)

    restore(saved, place.agent)

    assert (tokens_of(place), axes_of(place)) == (before, axes)


def test_what_is_forgotten_takes_them_along(place: Place) -> None:
    before = add_tokens(place)
    export(place.agent, place.home / "all.memline")
    back_up([place.agent], place.home / "saved")
    texts = place.rows(
        "SELECT text_hash FROM chunks JOIN files ON files.id = file_id WHERE path LIKE '%-1.md'"
    )
    gone = [before[digest] for (digest,) in texts]
    assert len(gone) == 3
    assert len(files_with(place.home, gone)) == 3

    forget(place.agent, targets_of_path(place.agent, "memory/note-1.md"))

    assert files_with(place.home, gone) == []
    assert len(tokens_of(place)) == 3 * NOTES - 3


def files_with(folder: Path, contents: list[bytes]) -> list[str]:
    """The files that hold the beginning of any of these; a page of SQLite has all of it."""
    return [
        path.name
        for path in sorted(folder.rglob("*"))
        if path.is_file() and any(each[60:260] in path.read_bytes() for each in contents)
    ]
