"""What the tests of Batch APIs share: a server and a client of each provider."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from memline.shared.batches.gemini_batches import GeminiBatch
from memline.shared.batches.job_rows import BatchResult, BatchRow
from memline.shared.batches.openai import OpenAIBatch, VoyageBatch
from memline.shared.batches.remote import BatchApi, BatchJob
from memline.shared.clock import Clock
from memline.shared.embedders.choice import choose
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

CLIENTS: dict[str, type[BatchApi]] = {"openai": OpenAIBatch, "voyage": VoyageBatch, "gemini": GeminiBatch}

#: Few dimensions, so that a vector is quickly made; no model has so few.
DIMS = 16

TEXTS = ("alpha notes", "beta plan", "gamma list", "delta word")

TAG = "job-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A server and what asks it."""

    provider: str
    server: EmbeddingServer
    api: BatchApi

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
        look = self.api.get_job(self.api.create(file_id, tag=TAG, agent="main").id)
        names = {key(text): text for text in texts}
        return {names.get(result.key, result.key): result for result in self.api.results(look)}


Open = Callable[..., Place]


def key(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def row(text: str) -> BatchRow:
    return BatchRow(key=key(text), text=text)


def client(provider: str, url: str, *, clock: Clock | None, timeout_s: float, **settings: Any) -> BatchApi:
    settings["remote"] = {"api_key": KEY, **settings.get("remote", {}), "base_url": url}
    choice = choose(make_settings(provider=provider, **settings))
    assert choice.identity and choice.endpoint
    return CLIENTS[provider](
        identity=choice.identity, endpoint=choice.endpoint, timeout_s=timeout_s, clock=clock
    )


def sent(place: Place, file_id: str) -> list[dict[str, Any]]:
    """The rows of a file as the provider got them."""
    file = place.server.batches.jobs.files[file_id.removeprefix("files/")]
    return [json.loads(line) for line in file.lines()]


def made(place: Place) -> dict[str, Any]:
    """The last request for a job."""
    return list(place.server.batches.jobs.jobs.values())[-1].request


def finished(place: Place) -> BatchJob:
    """A job over `TEXTS` at its end."""
    file_id = place.api.upload(map(row, TEXTS), tag=TAG)
    return place.api.get_job(place.api.create(file_id, tag=TAG, agent="main").id)
