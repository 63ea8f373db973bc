"""Voyage: OpenAI's protocol with input types, its caps, and its limits for accounts that do not pay."""

import pytest

from memline.shared.embedders.choice import choose
from memline.shared.embedders.request import embed
from memline.shared.errors import ProviderStop, ProviderTooBig
from tests.support.embedding_server import VoyageServer
from tests.support.fake_embedder import FakeEmbedder
from tests.unit.embedders.conftest import KEY, make_settings

TEXTS = ["alpha notes", "beta plan"]


@pytest.fixture
def server():
    with VoyageServer(key=KEY) as running:
        yield running


def test_texts_and_questions_go_out_with_their_input_type(server, connect):
    embedder = connect(server.url, provider="voyage", model="voyage/voyage-4")

    embedder.embed_documents(TEXTS)
    embedder.embed_query("where?", timeout_s=60)

    texts, question = server.requests
    assert texts.body == {
        "model": "voyage-4",
        "input": TEXTS,
        "input_type": "document",
        "truncation": False,
        "encoding_format": "base64",
    }
    assert question.body == {**texts.body, "input": ["where?"], "input_type": "query"}
    assert texts.headers["authorization"] == f"Bearer {KEY}"


def test_dimensions_are_asked_for_by_their_name_there(server, connect):
    vectors = connect(server.url, provider="voyage", output_dimensionality=256).embed_documents(TEXTS)

    assert server.requests[0].body["output_dimension"] == 256
    assert "dimensions" not in server.requests[0].body
    assert vectors == FakeEmbedder(dims=256).embed_documents(TEXTS)


def test_dimensions_that_the_model_does_not_have_stop_with_the_key_to_change(server, connect):
    with pytest.raises(ProviderStop) as caught:
        connect(server.url, provider="voyage", output_dimensionality=300).embed_documents(TEXTS)

    assert "outputDimensionality" in caught.value.hint


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("", 60_000), ("voyage-3-large", 60_000), ("voyage-4", 160_000), ("voyage-4-lite", 500_000)],
)
def test_a_request_is_as_large_as_half_of_the_cap_of_the_model(model, tokens):
    caps = choose(make_settings(provider="voyage", model=model, environment_keys={"voyage": KEY})).caps

    assert caps
    assert (caps.max_rows, caps.max_tokens) == (1000, tokens)


def test_a_request_above_what_such_an_account_may_send_in_a_minute_is_cut(server, connect):
    large = ["word " * 800] * 40
    server.control({"script": ["429-plan", "429-plan"]})
    embedder = connect(server.url, provider="voyage")

    with pytest.raises(ProviderTooBig) as caught:
        embedder.embed_documents(large)
    outcome = embed(embedder, large)

    assert caught.value.max_tokens == 5000
    assert outcome.max_tokens == 5000
    assert None not in outcome.vectors
