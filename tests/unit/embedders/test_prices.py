from __future__ import annotations

import re

import pytest

from shared.embedders.catalog import CATALOG
from shared.embedders.prices import AS_OF, FREE, LISTED, OWN, listed, price_of
from shared.embedders.protocol import Identity

SMALL = Identity(provider="openai", model="text-embedding-3-small")


def test_every_default_model_of_a_paid_service_has_a_price() -> None:
    for provider in CATALOG.values():
        if provider.needs_key:
            assert f"{provider.name}/{provider.default_model}" in listed(), provider.name


def test_batches_cost_less_where_there_are_any() -> None:
    for model, price in listed().items():
        has_batches = bool(CATALOG[model.partition("/")[0]].batch_module)
        assert (price.batch_per_million is not None) is has_batches
        if price.batch_per_million is not None:
            assert price.per_million / 2 <= price.batch_per_million < price.per_million


def test_the_table_is_dated() -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", AS_OF)
    assert {price.as_of for price in listed().values()} == {AS_OF}


def test_a_price_is_for_tokens_and_mode() -> None:
    price = price_of(SMALL, {})

    assert price is not None
    assert price.cost(2_000_000, by_batch=False) == pytest.approx(0.04)
    assert price.cost(2_000_000, by_batch=True) == pytest.approx(0.02)
    assert price.source == LISTED


@pytest.mark.parametrize(
    "unknown",
    [
        Identity(provider="openai", model="text-embedding-3-small", endpoint="my-server"),
        Identity(provider="openai", model="some-model"),
        Identity(provider="ollama", model="nomic-embed-text"),
    ],
)
def test_nobody_knows_the_price_of_a_server_or_model_of_ones_own(unknown: Identity) -> None:
    assert price_of(unknown, {}) is None


def test_a_model_on_this_machine_is_free() -> None:
    price = price_of(Identity(provider="local", model="m.gguf"), {})

    assert price is not None
    assert (price.cost(10**9, by_batch=False), price.source) == (0.0, FREE)


def test_a_price_of_the_users_wins_and_the_longer_name_most() -> None:
    own = {
        "text-embedding-3-small": {"perMillion": 1.0},
        "openai/text-embedding-3-small": {"perMillion": 2.0, "currency": "EUR", "asOf": "2026-11-01"},
    }

    price = price_of(SMALL, own)
    elsewhere = price_of(Identity(provider="openai", model="m", endpoint="mine"), {"m": {"perMillion": 0.0}})

    assert price is not None
    assert elsewhere is not None
    assert (price.per_million, price.currency, price.as_of, price.source) == (2.0, "EUR", "2026-11-01", OWN)
    assert price.batch_per_million is None
    assert elsewhere.cost(5, by_batch=False) == 0.0
