"""What holds for every provider behind HTTP, each against a misbehaving server of its own protocol."""

from dataclasses import dataclass

import pytest

from memline.shared.embedders.remote_embedder import RemoteEmbedder
from memline.shared.errors import (
    ProviderBrokenAnswer,
    ProviderLater,
    ProviderRefused,
    ProviderStop,
    ProviderTooBig,
)
from tests.support.embedding_server import EmbeddingServer, GeminiServer, VoyageServer
from tests.unit.embedders.conftest import KEY

TEXTS = ["alpha notes", "beta plan", "会議 gamma"]

SERVERS = {"openai": EmbeddingServer, "gemini": GeminiServer, "voyage": VoyageServer}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A provider and an embedder that is connected to it."""

    name: str
    server: EmbeddingServer
    embedder: RemoteEmbedder


@pytest.fixture(params=SERVERS)
def site(request, connect):
    with SERVERS[request.param](key=KEY) as server:
        embedder = connect(server.url, provider=request.param)
        yield Site(name=request.param, server=server, embedder=embedder)


@pytest.mark.parametrize(
    ("fault", "kind", "hint"),
    [
        ("401", ProviderStop, "key"),
        ("403-quota", ProviderStop, "then run: memline index"),
        ("429-quota", ProviderStop, "then run: memline index"),
        ("404-model", ProviderStop, "memorySearch.model"),
        ("redirect:http://127.0.0.1:9/v1", ProviderStop, "http://127.0.0.1:9/v1"),
        ("429", ProviderLater, ""),
        ("error-in-200:429", ProviderLater, ""),
        ("words-in-200:Rate limit reached", ProviderLater, ""),
        ("words-in-200:Incorrect API key", ProviderStop, "key"),
        ("words-in-200:You exceeded your current quota", ProviderStop, "top up"),
        ("words-in-200:the model is broken", ProviderBrokenAnswer, ""),
        ("max-rows:2", ProviderTooBig, ""),
        ("max-tokens:5", ProviderTooBig, ""),
        ("max-text-tokens:2", ProviderTooBig, ""),
        ("max-bytes:10", ProviderTooBig, ""),
        ("refuse:beta", ProviderRefused, ""),
        ("html", ProviderBrokenAnswer, "memorySearch.remote.baseUrl"),
        ("truncated", ProviderBrokenAnswer, ""),
        ("error-in-200", ProviderBrokenAnswer, ""),
        ("bad-gzip", ProviderBrokenAnswer, ""),
        ("short", ProviderBrokenAnswer, ""),
        ("long", ProviderBrokenAnswer, ""),
        ("nan", ProviderBrokenAnswer, ""),
        ("nan:beta", ProviderBrokenAnswer, ""),
        ("zero", ProviderBrokenAnswer, ""),
    ],
)
def test_kind_of_error_and_what_to_do(site, fault, kind, hint):
    site.server.control({"fault": fault})

    with pytest.raises(kind) as caught:
        site.embedder.embed_documents(TEXTS)

    assert type(caught.value) is kind
    assert hint in caught.value.hint
    assert caught.value.message.startswith(f"{site.name} embeddings failed: ")
    assert KEY not in f"{caught.value!r} {caught.value.hint}"
    assert len(site.server.requests) == 1


def test_caps_are_read_from_the_answer(site):
    site.server.control({"script": ["max-rows:2", "max-tokens:5"]})

    with pytest.raises(ProviderTooBig) as rows:
        site.embedder.embed_documents(TEXTS)
    with pytest.raises(ProviderTooBig) as tokens:
        site.embedder.embed_documents(TEXTS)

    assert (rows.value.max_rows, rows.value.max_tokens) == (2, 0)
    assert (tokens.value.max_rows, tokens.value.max_tokens) == (0, 5)


@pytest.mark.parametrize("fault", ["500", "503", "close"])
def test_a_short_trouble_is_tried_again_at_once(site, clock, fault):
    site.server.control({"script": [fault, fault, "ok"]})
    started = clock.now()

    assert len(site.embedder.embed_documents(TEXTS)) == 3
    assert len(site.server.requests) == 3
    assert 0.6 <= clock.now() - started <= 4


def test_a_first_answer_of_other_dimensions_does_not_spoil_those_after_it(site):
    site.server.control({"script": ["wrong-dims"]})
    site.embedder.embed_documents(TEXTS)

    with pytest.raises(ProviderBrokenAnswer, match="384 dimensions; expected 383"):
        site.embedder.embed_documents(TEXTS)

    assert len(site.embedder.embed_documents(TEXTS)) == 3


def test_dimensions_that_are_ignored_are_an_error_with_a_way_out(site, connect):
    short = connect(site.server.url, provider=site.name, output_dimensionality=256)
    site.server.control({"fault": "wrong-dims"})

    with pytest.raises(ProviderBrokenAnswer) as caught:
        short.embed_documents(TEXTS)

    assert "outputDimensionality" in caught.value.hint
