"""Gemini's own protocol: the requests it documents, and the answers only it gives."""

import json
from array import array

import pytest

from memline.shared.errors import ProviderBrokenAnswer
from memline.shared.providers import GEMINI_PROMPTS
from tests.support.embedding_server import GeminiServer
from tests.support.fake_embedder import FakeEmbedder
from tests.unit.embedders.conftest import KEY

TEXTS = ["alpha notes", "beta plan"]


@pytest.fixture
def server():
    with GeminiServer(key=KEY) as running:
        yield running


def test_shortened_vectors_are_asked_for_and_made_unit_length(server, connect):
    embedder = connect(server.url, provider="gemini", output_dimensionality=64)

    vectors = embedder.embed_documents(TEXTS)
    question = embedder.embed_query("alpha", timeout_s=60)

    assert [request["outputDimensionality"] for request in server.requests[0].body["requests"]] == [64, 64]
    assert server.requests[1].body["outputDimensionality"] == 64
    for vector, text in zip([*vectors, question], [*TEXTS, "alpha"], strict=True):
        assert _numbers(vector) == pytest.approx(_numbers(FakeEmbedder(dims=64).embed_documents([text])[0]))


@pytest.mark.parametrize("model", ["gemini-embedding-2", "gemini-embedding-2-preview"])
def test_a_model_without_task_types_gets_prompts_in_their_place(server, connect, model):
    embedder = connect(server.url, provider="gemini", model=model)

    embedder.embed_documents(["alpha"])
    embedder.embed_query("where?", timeout_s=60)

    texts, question = (request.body for request in server.requests)
    assert embedder.identity.scheme == GEMINI_PROMPTS
    assert texts["requests"][0]["content"] == {"parts": [{"text": "title: none | text: alpha"}]}
    assert question["content"] == {"parts": [{"text": "task: search result | query: where?"}]}
    assert "taskType" not in texts["requests"][0]


#: A name of a model -> what is asked for: the name of the provider is no part of it, and nothing else.
MODELS = {f"{name}/some-model": "models/some-model" for name in ("models", "gemini", "google")} | {
    name: f"models/{name}" for name in ("a/b", "a?key=b", "a#b", "../a", "ä b")
}


@pytest.mark.parametrize("model", MODELS)
def test_no_name_of_a_model_becomes_another_address(server, connect, model):
    connect(server.url, provider="gemini", model=model).embed_documents(["alpha"])

    assert server.requests[0].body["requests"][0]["model"] == MODELS[model]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({}, "no `embeddings`"),
        ([], "no `embeddings`"),
        ({"embeddings": {}}, "not a list"),
        ({"embeddings": [{"values": [1.0]}, {}]}, "a vector is missing"),
        ({"embeddings": [{"values": [1.0]}, None]}, "a vector is missing"),
        ({"embeddings": [{"values": [1.0]}, {"values": ["x"]}]}, "not a number"),
    ],
)
def test_an_answer_of_another_shape_is_broken(server, connect, monkeypatch, answer, reason):
    monkeypatch.setattr(server, "answer", lambda faults, body: json.dumps(answer).encode())

    with pytest.raises(ProviderBrokenAnswer, match=reason):
        connect(server.url, provider="gemini").embed_documents(TEXTS)


def _numbers(vector):
    return list(array("f", vector))
