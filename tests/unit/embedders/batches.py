"""What the tests of Batch APIs share: a server and a client of each provider."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from shared.clock import Clock
from shared.embedders.batch import BatchResult, BatchRow
from shared.embedders.batch_gemini import GeminiBatch
from shared.embedders.batch_openai import OpenAIBatch
from shared.embedders.batch_remote import RemoteBatchApi
from shared.embedders.batch_voyage import VoyageBatch
from shared.embedders.choice import choose
from tests.support.embedding_server import EmbeddingServer
from tests.support.gemini_server import GeminiServer
from tests.support.voyage_server import VoyageServer
from tests.unit.embedders.conftest import KEY, make_settings

PROVIDERS = ("openai", "voyage", "gemini")

SERVERS: dict[str, type[EmbeddingServer]] = {
    "openai": EmbeddingServer,
    "voyage": VoyageServer,
    "gemini": GeminiServer,
}

CLIENTS: dict[str, type[RemoteBatchApi]] = {
    "openai": OpenAIBatch,
    "voyage": VoyageBatch,
    "gemini": GeminiBatch,
}

#: Few dimensions, so that a vector is quickly made; no model has so few.
DIMS = 16

TEXTS = ("alpha notes", "beta plan", "gamma list", "delta word")

TAG = "job-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A server and what asks it."""

    provider: str
    server: EmbeddingServer
    api: RemoteBatchApi

    def control(self, **batch: Any) -> None:
        self.server.control({"batch": batch})

    @property
    def calls(self) -> dict[str, int]:
        calls: dict[str, int] = self.server.log()["batch"]["calls"]
        return calls

    @property
    def jobs(self) -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = self.server.log()["batch"]["jobs"]
        return jobs

    def run(self, texts: Iterable[str] = TEXTS) -> dict[str, BatchResult]:
        """The results of a job that ends at once, by text (or by key, when it is of no text)."""
        texts = list(texts)
        file_id = self.api.upload(map(row, texts), tag=TAG)
        look = self.api.look(self.api.create(file_id, tag=TAG, agent="main").id)
        names = {key(text): text for text in texts}
        return {names.get(result.key, result.key): result for result in self.api.results(look)}


Open = Callable[..., Place]


def key(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def row(text: str) -> BatchRow:
    return BatchRow(key=key(text), text=text)


def client(
    provider: str, url: str, *, clock: Clock | None, timeout_s: float, vector_dims: int, **settings: Any
) -> RemoteBatchApi:
    settings["remote"] = {"api_key": KEY, **settings.get("remote", {}), "base_url": url}
    choice = choose(make_settings(provider=provider, **settings))
    assert choice.identity and choice.endpoint
    return CLIENTS[provider](
        identity=choice.identity,
        endpoint=choice.endpoint,
        timeout_s=timeout_s,
        vector_dims=vector_dims,
        clock=clock,
    )
