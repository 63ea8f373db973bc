"""Voyage: OpenAI's protocol with input types, its caps, and its limits for accounts that do not pay."""

import pytest

from memline.shared.embedders.choice import choose
from memline.shared.embedders.request import Request
from memline.shared.errors import ProviderStop, ProviderTooBig
from tests.support.embedding_server import VoyageServer
from tests.unit.embedders.conftest import KEY, make_settings

TEXTS = ["alpha notes", "beta plan"]


@pytest.fixture
def server():
    with VoyageServer(key=KEY) as running:
        yield running


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
    outcome = Request(embedder, large).embed()

    assert caught.value.max_tokens == 5000
    assert outcome.max_tokens == 5000
    assert None not in outcome.vectors
