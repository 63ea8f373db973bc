"""Whole runs: a place of notes of one's own, and a provider on loopback."""

from collections.abc import Iterator

import pytest

from tests.support.embedding_server import EmbeddingServer


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    """A provider without faults, until a test asks it for some."""
    with EmbeddingServer(dims=16) as running:
        yield running


@pytest.fixture(autouse=True)
def patient_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let searches of this process take the time that they need to bring changes in."""
    monkeypatch.setattr("memline.producers.ask.CATCH_UP_S", 60)
