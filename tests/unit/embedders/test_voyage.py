"""Voyage: OpenAI's protocol with input types, its caps, and its limits for accounts that do not pay."""

import pytest

from memline.shared.embedders.choice import choose
from memline.shared.embedders.request import embed
from memline.shared.errors import ProviderLater, ProviderStop, ProviderTooBig
from tests.support.fake_embedder import FakeEmbedder
from tests.support.voyage_server import VoyageServer
from tests.unit.embedders.conftest import KEY, make_settings, refusal

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


@pytest.mark.parametrize("fault", ["floats", "permuted", "no-index"])
def test_unusual_answers_that_fit_give_the_same_vectors(server, connect, fault):
    server.control({"fault": fault})

    vectors = connect(server.url, provider="voyage").embed_documents(TEXTS)

    assert vectors == FakeEmbedder().embed_documents(TEXTS)


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("", 60_000), ("voyage-3-large", 60_000), ("voyage-4", 160_000), ("voyage-4-lite", 500_000)],
)
def test_a_request_is_as_large_as_half_of_the_cap_of_the_model(model, tokens):
    caps = choose(make_settings(provider="voyage", model=model, environment_keys={"voyage": KEY})).caps

    assert caps
    assert (caps.max_rows, caps.max_tokens) == (1000, tokens)


def test_an_account_without_a_payment_method_waits_for_its_turn(server, connect):
    server.control({"fault": "429-plan"})

    with pytest.raises(ProviderLater) as caught:
        connect(server.url, provider="voyage").embed_documents(TEXTS)

    assert caught.value.retry_after_s == 20
    assert "payment method" in caught.value.message


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


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dimensions": 256}, "dimensions"),
        ({"input_type": "RETRIEVAL_QUERY"}, "input_type"),
        ({"output_dimension": 100}, "output_dimension"),
        ({"encoding_format": "float"}, "encoding_format"),
        ({"input": ["x"] * 1001}, "batch size limit is 1000"),
        ({"input": ["x" * 4] * 999 + ["x" * 500_000]}, "max allowed tokens per submitted batch is 120000"),
        ({"input": [""]}, "empty"),
    ],
)
def test_the_server_of_the_tests_refuses_what_voyage_would_refuse(server, change, reason):
    good = {"model": "voyage-4-large", "input": TEXTS, "input_type": "query"}
    headers = {"Authorization": f"Bearer {KEY}"}

    assert reason in refusal(f"{server.url}/embeddings", {**good, **change}, headers)
