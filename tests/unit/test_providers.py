"""The table of providers is whole, and prices are those of the right service."""

import re
import tomllib
from pathlib import Path

import pytest

from memline.shared import providers
from memline.shared.batches.wire import KINDS
from memline.shared.config.installation import PriceEntry
from memline.shared.embedders.protocol import Embedder
from memline.shared.providers import (
    FREE,
    LISTED,
    OWN,
    PROVIDERS,
    list_prices,
    load,
    price_of,
)

SMALL = ("openai", "text-embedding-3-small")


def test_every_default_model_of_a_paid_service_has_a_price():
    for provider in PROVIDERS.values():
        if provider.key_variables:
            assert f"{provider.name}/{provider.default_model}" in list_prices(), provider.name


def test_batches_cost_less_where_there_are_any():
    for model, price in list_prices().items():
        has_batches = model.partition("/")[0] in KINDS
        assert (price.batch_per_million is not None) is has_batches
        if price.batch_per_million is not None:
            assert price.per_million / 2 <= price.batch_per_million < price.per_million


def test_the_table_is_dated():
    (as_of,) = {price.as_of for price in list_prices().values()}

    assert re.fullmatch(r"20\d\d-\d\d-\d\d", as_of)


def test_a_price_is_for_tokens_and_mode():
    price = price_of(*SMALL, public=True, own={})

    assert price is not None
    assert price.cost(2_000_000, by_batch=False) == pytest.approx(0.04)
    assert price.cost(2_000_000, by_batch=True) == pytest.approx(0.02)
    assert price.source == LISTED


@pytest.mark.parametrize(
    ("provider", "model", "public"),
    [
        ("openai", "text-embedding-3-small", False),
        ("openai", "some-model", True),
        ("ollama", "nomic-embed-text", False),
    ],
)
def test_the_price_of_a_server_or_model_of_ones_own_is_not_known(provider, model, public):
    assert price_of(provider, model, public=public, own={}) is None


def test_a_model_on_this_machine_is_free():
    price = price_of("local", "m.gguf", public=False, own={})

    assert price is not None
    assert (price.cost(10**9, by_batch=False), price.source) == (0.0, FREE)


def test_a_price_of_the_users_wins_and_the_longer_name_most():
    own = {
        "text-embedding-3-small": PriceEntry(per_million=1.0),
        "openai/text-embedding-3-small": PriceEntry(per_million=2.0),
    }

    price = price_of(*SMALL, public=True, own=own)
    elsewhere = price_of("openai", "m", public=False, own={"m": PriceEntry(per_million=0.0)})

    assert price is not None
    assert elsewhere is not None
    assert (price.per_million, price.source) == (2.0, OWN)
    assert price.batch_per_million is None
    assert elsewhere.cost(5, by_batch=False) == 0.0


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=lambda provider: provider.name)
def test_the_classes_that_the_table_names_exist(provider):
    assert Embedder in load(provider.embedder).__mro__
    assert (provider.batch_hours > 0) is (provider.name in KINDS)


def test_another_server_of_the_same_protocol_gets_smaller_requests():
    openai = PROVIDERS["openai"]

    assert openai.caps_at(public=False).max_rows < openai.caps_at(public=True).max_rows


def test_every_list_price_names_its_source():
    table = tomllib.loads((Path(providers.__file__).parent / "prices.toml").read_text("utf-8"))

    assert all(listed["source"].startswith("https://") for listed in table["providers"].values())
    assert table["providers"].keys() <= PROVIDERS.keys()
