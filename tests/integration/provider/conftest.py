"""Runs against a provider that misbehaves: the notes, the vectors they should have, and no long waits."""

import pytest
from msgspec.structs import replace

from memline.shared.embedders import http as provider_client
from memline.shared.index import vectors
from memline.shared.scheduling import health, limits
from tests.support.embedding_server import EmbeddingServer
from tests.support.workspace import Place, note, remote

#: Notes of a workspace here; each has three texts.
NOTES = 10
TEXTS = 3 * NOTES
#: Texts in a request: a run needs several of them.
ROWS = 6


@pytest.fixture
def place(place, server):
    """Notes whose texts the stub server embeds."""
    place.configure(**remote(server.url, maxRows=ROWS))
    with_notes(place, NOTES)
    return place


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    """Waits that nobody but ourselves asked for are short."""
    monkeypatch.setattr(health, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(health, "REQUEST_RULES", replace(health.REQUEST_RULES, open_s=0.5))
    monkeypatch.setattr(limits, "FAILURE_COOLDOWN_S", 0.05)
    monkeypatch.setattr(vectors, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(provider_client, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(provider_client, "JITTER_S", 0.01)


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """The vectors of a run without any fault, by text hash."""
    with EmbeddingServer(dims=16) as server:
        place = Place(folder=tmp_path_factory.mktemp("right") / "user", memory=remote(server.url))
        with_notes(place, NOTES)
        place.index()
        return place.contents().vectors


def with_notes(place, count):
    """The workspace with its first `count` notes and no others."""
    for old in place.workspace.rglob("*.md"):
        old.unlink()
    for number in range(count):
        place.write(f"memory/note-{number}.md", note(number))
