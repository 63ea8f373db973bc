"""Settings and a misbehaving server for the tests of embedders."""

from collections.abc import Callable
from pathlib import Path

import pytest

from memline.shared import packages
from memline.shared.config.schema import AgentSettings, ConfigFile, MemorySearch, ModelsBlock, Remote
from memline.shared.embedders.choice import choose
from memline.shared.embedders.remote import GeminiEmbedder, OpenAIEmbedder, RemoteEmbedder, VoyageEmbedder
from tests.support.clock import ManualClock
from tests.support.embedding_server import EmbeddingServer

KEY = "sk-test-0123456789abcdef"

Connect = Callable[..., RemoteEmbedder]

KINDS: dict[str, type[RemoteEmbedder]] = {
    "openai": OpenAIEmbedder,
    "gemini": GeminiEmbedder,
    "voyage": VoyageEmbedder,
}


def make_settings(*, providers=None, environment_keys=None, remote=None, **memory):
    return AgentSettings(
        agent="main",
        workspace=Path("/nowhere"),
        index_path=Path("/nowhere/index.sqlite"),
        state_dir=Path("/nowhere"),
        memory=MemorySearch(remote=Remote(**(remote or {})), **memory),
        content=ConfigFile(models=ModelsBlock(providers=providers or {})),
        environment_keys=environment_keys or {},
    )


@pytest.fixture
def server():
    with EmbeddingServer() as running:
        yield running


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def connect(clock):
    """Make an embedder (of the OpenAI kind unless said) for a base URL; its clock is `clock`."""
    made = []

    def make(url, *, provider="openai", timeout_s=60, vector_dims=0, **settings):
        settings["remote"] = {"api_key": KEY, **settings.get("remote", {}), "base_url": url}
        choice = choose(make_settings(provider=provider, **settings))
        assert choice.identity and choice.endpoint
        embedder = KINDS[provider](
            identity=choice.identity,
            endpoint=choice.endpoint,
            timeout_s=timeout_s,
            vector_dims=vector_dims,
            clock=clock,
        )
        made.append(embedder)
        return embedder

    yield make
    for embedder in made:
        embedder.close()


@pytest.fixture
def engines_here(monkeypatch):
    """The libraries of local models are installed, as far as anyone looks."""
    monkeypatch.setattr(packages, "missing", lambda modules: ())
