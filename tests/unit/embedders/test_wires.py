"""What goes out to each provider and what may come back, against a misbehaving server of its own protocol."""

import base64
import json
import socket
from dataclasses import dataclass

import pytest

from memline.shared.embedders.choice import choose
from memline.shared.embedders.remote import RemoteEmbedder, openai_values
from memline.shared.embedders.request import Request
from memline.shared.errors import ProviderBrokenAnswer, ProviderError, ProviderStop
from memline.shared.providers import GEMINI_PROMPTS
from tests.support.embedding_server import EmbeddingServer, GeminiServer, VoyageServer
from tests.support.fake_embedder import FakeEmbedder
from tests.unit.embedders.conftest import KEY, make_settings

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


@pytest.fixture
def gemini():
    with GeminiServer(key=KEY) as running:
        yield running


@pytest.mark.parametrize(
    ("fault", "kind", "hint"),
    [
        ("401", "stop", "key"),
        ("403-quota", "stop", "then run: memline index"),
        ("429-quota", "stop", "then run: memline index"),
        ("404-model", "stop", "memorySearch.model"),
        ("redirect:http://127.0.0.1:9/v1", "stop", "http://127.0.0.1:9/v1"),
        ("429", "later", ""),
        ("error-in-200:429", "later", ""),
        ("words-in-200:Rate limit reached", "later", ""),
        ("words-in-200:Incorrect API key", "stop", "key"),
        ("words-in-200:You exceeded your current quota", "stop", "top up"),
        ("words-in-200:the model is broken", "broken", ""),
        ("max-rows:2", "too_big", ""),
        ("max-tokens:5", "too_big", ""),
        ("max-text-tokens:2", "too_big", ""),
        ("max-bytes:10", "too_big", ""),
        ("refuse:beta", "refused", ""),
        ("html", "broken", "memorySearch.remote.baseUrl"),
        ("truncated", "broken", ""),
        ("error-in-200", "broken", ""),
        ("bad-gzip", "broken", ""),
        ("short", "broken", ""),
        ("long", "broken", ""),
        ("nan", "broken", ""),
        ("nan:beta", "broken", ""),
        ("zero", "broken", ""),
    ],
)
def test_kind_of_error_and_what_to_do(site, fault, kind, hint):
    site.server.control({"fault": fault})

    with pytest.raises(ProviderError) as caught:
        site.embedder.embed_documents(TEXTS)

    assert caught.value.kind == kind
    assert hint in caught.value.hint
    assert caught.value.message.startswith(f"{site.name} embeddings failed: ")
    assert KEY not in f"{caught.value!r} {caught.value.hint}"
    assert len(site.server.requests) == 1


@pytest.mark.parametrize("fault", ["500", "close"])
def test_a_short_trouble_is_tried_again_at_once(site, clock, fault):
    site.server.control({"script": [fault, fault, "ok"]})
    started = clock.now()

    assert site.embedder.embed_documents(TEXTS) == FakeEmbedder().embed_documents(TEXTS)
    assert len(site.server.requests) == 3
    assert 0.6 <= clock.now() - started <= 4


# OpenAI, and servers that speak its protocol.


@pytest.mark.parametrize("name", ["mistral", "ollama"])
def test_a_preset_speaks_the_protocol_of_openai_under_its_own_name(server, name):
    choice = choose(make_settings(provider=name, remote={"base_url": server.url, "api_key": KEY}))

    embedder = choice.build()
    embedder.embed_query("x", timeout_s=60)
    embedder.close()

    assert embedder.identity.provider == name
    assert server.requests[0].body["model"] == choice.model


def test_user_and_password_of_the_address_are_sent_as_a_header_and_never_shown(server, connect):
    server.control({"fault": "404-model"})
    address = server.url.replace("//", "//ann:s3cret-word@")

    with pytest.raises(ProviderStop) as caught:
        connect(address, remote={"api_key": ""}).embed_documents(TEXTS)

    assert server.requests[0].headers["authorization"] == "Basic YW5uOnMzY3JldC13b3Jk"
    assert "s3cret" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("key", ["sk-proj-abc…xyz-secret", "sk-abc\ninjected: secret"])
def test_a_key_that_cannot_be_sent_is_an_error_without_the_key(server, connect, key):
    with pytest.raises(ProviderStop) as caught:
        connect(server.url, remote={"api_key": key}).embed_documents(TEXTS)

    assert "secret" not in f"{caught.value!r} {caught.value.hint} {caught.value.__cause__!r}"
    assert not server.requests


def test_a_text_with_half_a_character_is_sent_all_the_same(server, connect):
    connect(server.url).embed_documents(["broken \ud800 text"])

    assert server.requests[0].body["input"] == ["broken ? text"]


def test_connections_are_kept(server, connect, monkeypatch):
    opened, create = [], socket.create_connection
    monkeypatch.setattr(
        socket, "create_connection", lambda *args, **o: opened.append(args) or create(*args, **o)
    )
    embedder = connect(server.url)

    for _ in range(5):
        embedder.embed_query("x", timeout_s=60)

    assert len(opened) == 1


def test_base64_is_read_strictly():
    whole = bytes(range(256))

    assert openai_values(base64.b64encode(whole).decode()) == whole
    for broken in ("AAA", "AA AA=", "AAA=\n", "A-_A", "\ud800AAA", "====", "AA==AAAA"):
        with pytest.raises(ProviderBrokenAnswer, match="not base64"):
            openai_values(broken)


# Gemini.


@pytest.mark.parametrize("model", ["gemini-embedding-2", "gemini-embedding-2-preview"])
def test_a_model_without_task_types_gets_prompts_in_their_place(gemini, connect, model):
    embedder = connect(gemini.url, provider="gemini", model=model)

    embedder.embed_documents(["alpha"])
    embedder.embed_query("where?", timeout_s=60)

    texts, question = (request.body for request in gemini.requests)
    assert embedder.identity.scheme == GEMINI_PROMPTS
    assert texts["requests"][0]["content"] == {"parts": [{"text": "title: none | text: alpha"}]}
    assert question["content"] == {"parts": [{"text": "task: search result | query: where?"}]}
    assert "taskType" not in texts["requests"][0]


#: A name of a model -> what is asked for: the name of the provider is no part of it, and nothing else.
MODELS = {f"{name}/some-model": "models/some-model" for name in ("models", "gemini", "google")} | {
    name: f"models/{name}" for name in ("a/b", "a?key=b", "a#b", "../a", "ä b")
}


@pytest.mark.parametrize("model", MODELS)
def test_no_name_of_a_model_becomes_another_address(gemini, connect, model):
    connect(gemini.url, provider="gemini", model=model).embed_documents(["alpha"])

    assert gemini.requests[0].body["requests"][0]["model"] == MODELS[model]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({}, "no list `embeddings`"),
        ([], "no list `embeddings`"),
        ({"embeddings": {}}, "no list `embeddings`"),
        ({"embeddings": [{"values": [1.0]}, {}]}, "a vector is missing"),
        ({"embeddings": [{"values": [1.0]}, None]}, "a vector is missing"),
        ({"embeddings": [{"values": [1.0]}, {"values": ["x"]}]}, "not a number"),
    ],
)
def test_an_answer_of_another_shape_is_broken(gemini, connect, monkeypatch, answer, reason):
    monkeypatch.setattr(gemini, "answer", lambda faults, body: json.dumps(answer).encode())

    with pytest.raises(ProviderBrokenAnswer, match=reason):
        connect(gemini.url, provider="gemini").embed_documents(TEXTS[:2])


# Voyage.


def test_a_request_above_what_a_free_account_may_send_in_a_minute_is_cut(connect):
    large = ["word " * 800] * 40
    with VoyageServer(key=KEY, script=["429-plan"]) as voyage:
        outcome = Request(connect(voyage.url, provider="voyage"), large, estimate=len).embed()

    assert outcome.max_rows == 20
    assert None not in outcome.vectors


def test_a_free_account_that_is_at_its_limit_is_told_how_long_to_wait_and_how_much_to_send(connect):
    large = ["word " * 800] * 40
    with VoyageServer(key=KEY, fault="429-plan") as voyage:
        outcome = Request(connect(voyage.url, provider="voyage"), large, estimate=len).embed()

    assert (outcome.error.retry_after_s, outcome.max_rows) == (20, 3)
