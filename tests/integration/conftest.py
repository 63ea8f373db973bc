"""Whole runs: a place of notes of one's own, and a provider on loopback."""

import pytest

from tests.support.chat_server import ChatServer
from tests.support.embedding_server import EmbeddingServer
from tests.support.redis_server import RedisServer


@pytest.fixture
def server():
    """A provider without faults, until a test asks it for some."""
    with EmbeddingServer(dims=16) as running:
        yield running


@pytest.fixture(autouse=True)
def patient_searches(monkeypatch):
    """Let searches of this process take the time that they need to bring changes in."""
    monkeypatch.setattr("memline.producers.store_changes.CATCH_UP_S", 60)


@pytest.fixture
def redis(tmp_path):
    with RedisServer(tmp_path / "redis") as running:
        yield running


@pytest.fixture
def chat():
    """A model that writes one note of what was said."""
    with ChatServer("- Ada moves to Oslo in May") as running:
        yield running


@pytest.fixture
def notes(place):
    """A place with two notes, indexed."""
    place.write("MEMORY.md", "# Facts\n\nInvoices are whole cents.\n")
    place.write("memory/2026-02-10.md", "Deploy failed with ERR_CONN_42.\n")
    # A search brings changed files in for a second and a half, which is short on a loaded machine.
    place.index()
    return place
