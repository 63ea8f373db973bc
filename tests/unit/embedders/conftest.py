"""Settings and a misbehaving server for the tests of embedders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.clock import ManualClock
from shared.config.schema import AgentSettings, MemorySearch, Remote
from shared.embedders.choice import choose
from shared.embedders.openai import OpenAIEmbedder
from tests.support.embedding_server import EmbeddingServer

KEY = "sk-test-0123456789abcdef"

Connect = Callable[..., OpenAIEmbedder]


def make_settings(
    *, providers: Any = None, environment_keys: Any = None, remote: Any = None, **memory: Any
) -> AgentSettings:
    return AgentSettings(
        agent="main",
        workspace=Path("/nowhere"),
        index_path=Path("/nowhere/index.sqlite"),
        state_dir=Path("/nowhere"),
        memory=MemorySearch(remote=Remote(**(remote or {})), **memory),
        providers=providers or {},
        environment_keys=environment_keys or {},
    )


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as running:
        yield running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def connect(clock: ManualClock) -> Iterator[Connect]:
    """Make an embedder of the OpenAI kind for a base URL; its clock is `clock`."""
    made: list[OpenAIEmbedder] = []

    def make(url: str, *, timeout_s: float = 10, vector_dims: int = 0, **settings: Any) -> OpenAIEmbedder:
        settings["remote"] = {"api_key": KEY, **settings.get("remote", {}), "base_url": url}
        choice = choose(make_settings(provider="openai", **settings))
        assert choice.identity and choice.endpoint and choice.caps
        embedder = OpenAIEmbedder(
            identity=choice.identity,
            endpoint=choice.endpoint,
            caps=choice.caps,
            timeout_s=timeout_s,
            vector_dims=vector_dims,
            clock=clock,
        )
        made.append(embedder)
        return embedder

    yield make
    for embedder in made:
        embedder.close()
