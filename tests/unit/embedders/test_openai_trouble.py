from __future__ import annotations

import socket
from email.utils import formatdate

import pytest

from shared.clock import ManualClock
from shared.embedders.catalog import CATALOG
from shared.embedders.endpoint import Endpoint
from shared.embedders.openai import OpenAIEmbedder
from shared.embedders.protocol import Identity
from shared.errors import (
    ProviderLater,
)
from tests.support.embedding_server import EmbeddingServer
from tests.unit.embedders.conftest import Connect

TEXTS = ["alpha notes", "beta plan", "会議 gamma"]


def test_retry_after_is_handed_on_and_nobody_tries_before(server: EmbeddingServer, connect: Connect) -> None:
    for fault, seconds in (("429:60", 60.0), ("503:30", 30.0), ("429", None)):
        server.control({"fault": fault, "clear_log": True})

        with pytest.raises(ProviderLater) as caught:
            connect(server.url).embed_documents(TEXTS)

        assert caught.value.retry_after_s == seconds
        assert len(server.requests) == 1


def test_retry_after_may_be_a_date(server: EmbeddingServer, connect: Connect) -> None:
    server.control({"fault": f"429:{formatdate(4_000_000_000, usegmt=True)}"})

    with pytest.raises(ProviderLater) as caught:
        connect(server.url).embed_documents(TEXTS)

    assert caught.value.retry_after_s
    assert caught.value.retry_after_s > 3600


@pytest.mark.parametrize("fault", ["500", "503", "close"])
def test_a_short_trouble_is_tried_again_at_once(
    server: EmbeddingServer, connect: Connect, clock: ManualClock, fault: str
) -> None:
    server.control({"script": [fault, fault, "ok"]})
    started = clock.now()

    vectors = connect(server.url).embed_documents(TEXTS)

    assert len(vectors) == 3
    assert len(server.requests) == 3
    assert 0.6 <= clock.now() - started <= 4


@pytest.mark.parametrize("fault", ["500", "close"])
def test_a_lasting_trouble_is_left_to_the_caller_after_three_tries(
    server: EmbeddingServer, connect: Connect, fault: str
) -> None:
    server.control({"fault": fault})

    with pytest.raises(ProviderLater):
        connect(server.url).embed_documents(TEXTS)

    assert len(server.requests) == 3


def test_a_server_that_hangs_is_given_up_at_the_time_limit(server: EmbeddingServer, connect: Connect) -> None:
    server.control({"fault": "hang"})

    with pytest.raises(ProviderLater, match=r"no answer within 0\.3 s"):
        connect(server.url).embed_query("x", timeout_s=0.3)

    assert len(server.requests) == 1


class HurriedClock(ManualClock):
    """A second goes by whenever somebody looks."""

    def now(self) -> float:
        self.advance(1)
        return super().now()


def test_an_answer_that_comes_too_slowly_is_given_up(
    server: EmbeddingServer,
) -> None:
    embedder = OpenAIEmbedder(
        identity=Identity(provider="openai", model="m"),
        endpoint=Endpoint(provider="openai", base_url=server.url, public=False),
        caps=CATALOG["openai"].caps,
        timeout_s=1.5,
        clock=HurriedClock(),
    )

    with pytest.raises(ProviderLater, match=r"no answer within 1\.5 s"):
        embedder.embed_documents(TEXTS)

    embedder.close()


def test_a_server_on_this_machine_is_not_asked_through_a_proxy(
    server: EmbeddingServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)

    assert connect(server.url).embed_documents(TEXTS)


def test_no_server_at_all_is_later_and_names_the_address(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]

    with pytest.raises(ProviderLater) as caught:
        connect(f"http://127.0.0.1:{port}/v1").embed_documents(TEXTS)

    assert f"http://127.0.0.1:{port}" in caught.value.hint
