"""An index with a batch and a provider in memory, and the servers of the providers with their Batch APIs."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

from memline.shared.clock import ManualClock
from memline.shared.index.batches import Batch
from memline.shared.index_writer import IndexWriter
from tests.support.batch_desk import TEXTS, Desk
from tests.support.embedding_server import EmbeddingServer
from tests.support.index_rows import file_row
from tests.unit.batches.providers import DIMS, PROVIDERS, SERVERS, Open, Place, client
from tests.unit.embedders.conftest import KEY


@pytest.fixture
def empty_desk(writer: IndexWriter, clock: ManualClock) -> Desk:
    """An index without texts."""
    return Desk(writer, clock)


@pytest.fixture
def desk(empty_desk: Desk) -> Desk:
    """An index with a file of `TEXTS` texts that are wanted."""
    empty_desk.writer.store_file(file_row("a.md", *(f"text {n}" for n in range(TEXTS))))
    return empty_desk


@pytest.fixture
def batch(desk: Desk) -> Batch:
    """A batch of those texts that no worker has begun with."""
    return desk.make()


@pytest.fixture(scope="session")
def batch_servers() -> Iterator[Callable[[str], EmbeddingServer]]:
    """The server of a provider, as if it was just started: starting one takes longer than most tests."""
    with ExitStack() as opened:

        @cache
        def started(provider: str) -> EmbeddingServer:
            return opened.enter_context(SERVERS[provider](dims=DIMS, key=KEY))

        def fresh(provider: str) -> EmbeddingServer:
            server = started(provider)
            server.control({"fault": "", "script": [], "clear_log": True})
            server.batches.clear()
            return server

        yield fresh


@pytest.fixture
def open_batches(clock: ManualClock, batch_servers: Callable[[str], EmbeddingServer]) -> Iterator[Open]:
    """The server of a provider with its Batch API connected; see `providers`."""
    with ExitStack() as opened:

        def open_(provider: str, **settings: Any) -> Place:
            server = batch_servers(provider)
            api = client(provider, server.url, clock=clock, timeout_s=10, **settings)
            opened.callback(api.close)
            return Place(provider=provider, server=server, api=api)

        yield open_


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    """Every provider with a Batch API, where a test does not name some."""
    name: str = request.param
    return name


@pytest.fixture
def place(provider: str, open_batches: Open) -> Place:
    return open_batches(provider)
